# SPDX-License-Identifier: Apache-2.0
"""Interrupts (SIGINT) of a process that has not started yet."""

from collections.abc import Iterator
import contextlib
import signal


@contextlib.contextmanager
def ended_by_interrupts() -> Iterator[None]:
    """Let an interrupt, for example during an import, show no traceback."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGINT, handler)
