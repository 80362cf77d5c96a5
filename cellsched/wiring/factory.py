# SPDX-License-Identifier: Apache-2.0
"""Factories of what runs, whose parts may be left out."""

from collections.abc import Callable
import functools
from typing import Any
from typing import TypeVar

from oslo_config import cfg

from cellsched.parts import process

_Made = TypeVar('_Made')
_Parts = TypeVar('_Parts', bound=process.ProcessParts)


def factory(
    parts_of: Callable[[cfg.ConfigOpts], _Parts]
) -> Callable[[Callable[[Any, _Parts], _Made]], Callable[..., _Made]]:
    """Return a decorator that lets parts be left out.

    Those that it makes are closed if they come to no use.

    :param parts_of: makes them
    """
    def decorate(make: Callable[[Any, _Parts], _Made]) -> Callable[..., _Made]:
        @functools.wraps(make)
        def made(conf: cfg.ConfigOpts, parts: _Parts | None = None) -> _Made:
            if parts is not None:
                return make(conf, parts)
            parts = parts_of(conf)
            try:
                return make(conf, parts)
            except BaseException:
                parts.close()
                raise
        return made
    return decorate
