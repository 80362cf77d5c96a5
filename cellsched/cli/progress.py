# SPDX-License-Identifier: Apache-2.0
"""Progress: a bar on a terminal, a line now and then elsewhere."""

from collections.abc import Iterator
import contextlib
from typing import Protocol
from typing import TextIO

from cellsched.clock import Clock

_WIDTH = 40

#: Seconds between lines where there is no terminal.
_LINES_S = 5.0


class Progress(Protocol):
    """Tells how far something is."""

    def __call__(self, done: int, of: int | None = None, /) -> None:
        """Tell how much is done; and of how much, where that has changed."""


@contextlib.contextmanager
def bar(
    what: str, total: int, stream: TextIO, clock: Clock | None = None
) -> Iterator[Progress]:
    """Show a bar while something is done; give what tells how far it is.

    Where the stream is no terminal, what takes long writes a line every few
    seconds, and other things nothing.

    :param clock: says when it is time for a line; without it there are none
    """
    if stream.isatty():
        with _bar(what, total, stream) as show:
            yield show
    elif clock is not None:
        yield _lines(what, total, stream, clock)
    else:
        yield lambda done, of=None: None


@contextlib.contextmanager
def _bar(what: str, total: int, stream: TextIO) -> Iterator[Progress]:

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


def _lines(
    what: str, total: int, stream: TextIO, clock: Clock
) -> Progress:
    said_at = clock.monotonic()

    def show(done: int, of: int | None = None, /) -> None:
        nonlocal total, said_at
        total = total if of is None else of
        now = clock.monotonic()
        if now - said_at >= _LINES_S:
            said_at = now
            print(f'{what} {done}/{total}', file=stream, flush=True)
    return show
