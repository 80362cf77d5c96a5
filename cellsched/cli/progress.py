# SPDX-License-Identifier: Apache-2.0
"""Progress: a bar on a terminal, else a line every few seconds."""

from collections.abc import Iterator
import contextlib
from typing import Protocol
from typing import TextIO

from cellsched.clock import Clock

_WIDTH = 40

#: Seconds between lines where there is no terminal.
_LINES_S = 5.0


class Progress(Protocol):
    """Shows the progress of an operation."""

    def __call__(self, done: int, of: int | None = None, /) -> None:
        """Show how much is done, and the total if it has changed."""


@contextlib.contextmanager
def bar(
    what: str, total: int, stream: TextIO, clock: Clock | None = None
) -> Iterator[Progress]:
    """Show a bar during an operation; yield a function that updates it.

    If the stream is not a terminal, a line is printed every few seconds.

    :param clock: the clock for these lines; without a clock there are none
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
        # Clear the line for the output that follows.
        stream.write('\r\x1b[K')
        stream.flush()


def _lines(
    what: str, total: int, stream: TextIO, clock: Clock
) -> Progress:
    printed_at = clock.monotonic()

    def show(done: int, of: int | None = None, /) -> None:
        nonlocal total, printed_at
        total = total if of is None else of
        now = clock.monotonic()
        if now - printed_at >= _LINES_S:
            printed_at = now
            print(f'{what} {done}/{total}', file=stream, flush=True)
    return show
