# SPDX-License-Identifier: Apache-2.0
"""A progress bar for the terminal."""

from collections.abc import Iterator
import contextlib
from typing import Protocol
from typing import TextIO

_WIDTH = 40


class Progress(Protocol):
    """Tells how far something is."""

    def __call__(self, done: int, of: int | None = None, /) -> None:
        """Tell how much is done; and of how much, where that has changed."""


@contextlib.contextmanager
def bar(
    what: str, total: int, stream: TextIO
) -> Iterator[Progress]:
    """Show a bar while something is done; give what tells how far it is.

    Nothing is shown where the stream is no terminal.
    """
    if not stream.isatty():
        yield lambda done, of=None: None
        return

    def show(done: int, of: int | None = None, /) -> None:
        nonlocal total
        total = total if of is None else of
        filled = _WIDTH * done // max(total, 1)
        stream.write(f'\r{what} [{"#" * filled:<{_WIDTH}}] {done}/{total}')
        stream.flush()

    show(0)
    try:
        yield show
    finally:
        # The line goes, as what comes next is not about progress.
        stream.write('\r\x1b[K')
        stream.flush()
