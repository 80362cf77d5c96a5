# SPDX-License-Identifier: Apache-2.0
"""Errors under the names by which callers know them.

An error travels by its module and class, and a caller makes it anew if it
allows that module. Who embeds this project allows ours, Nova and what is like
it allow ``nova.exception``.
"""

from collections.abc import Callable
import functools
from typing import Any

from cellsched import exception

#: The forms that there are, for ``[scheduler] remote_exceptions``.
OURS, NOVA = 'cellsched', 'nova'

_NOVA_MODULE = 'nova.exception'


def translation(form: str) -> Callable[[Exception], Exception]:
    """Return what turns errors into a form."""
    return {OURS: _as_it_is, NOVA: as_nova}[form]


def as_nova(error: Exception) -> Exception:
    """Return an error as Nova would send it, if it would at all.

    It has the text of ours. Why no host was found is in the text; the list of
    rejections is not, because callers of Nova's know of none. A request that
    is refused finds no host either, and so does one that a plug-in failed or
    that somebody else could decide: that is what they undo their steps for.
    """
    if isinstance(error, (exception.HostsInDoubt, exception.InvalidField,
                          exception.PluginFailed)):
        error = exception.NoValidHost(reason=error.format_message())
    if isinstance(error, exception.NoValidHost):
        # That and what is derived from it have the same names there.
        return _nova(type(error).__name__)(
            error.format_message(), reason=error.reason, code=error.code)
    return error


def _as_it_is(error: Exception) -> Exception:
    return error


class _Named(Exception):
    """An error that is only made to be sent."""

    def __init__(self, message: str, **kwargs: Any) -> None:
        super().__init__(message)
        self.kwargs = kwargs


@functools.cache
def _nova(name: str) -> type[_Named]:
    return type(name, (_Named,), {'__module__': _NOVA_MODULE})
