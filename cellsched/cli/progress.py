# SPDX-License-Identifier: Apache-2.0
"""A progress bar for the terminal."""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
from typing import TextIO

_WIDTH = 40


@contextlib.contextmanager
def bar(
    what: str, total: int, stream: TextIO
) -> Iterator[Callable[[int], None]]:
    """Show a bar while something is done; give what tells how far it is.

    Nothing is shown where the stream is no terminal.
    """
    if not stream.isatty():
        yield lambda done: None
        return

    def show(done: int) -> None:
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
