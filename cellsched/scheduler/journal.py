# SPDX-License-Identifier: Apache-2.0
"""Lines of the log that are written apart from who has something to say.

To format a line takes oslo.log a tenth of what it takes to decide and to
claim, and whoever asked waits for it.
"""

import collections
import logging

from cellsched import context as context_

#: Lines that may wait; who says more writes them all.
WAITING_MAX = 1000


class Journal:
    """Keeps lines until somebody has the time to write them."""

    def __init__(self) -> None:
        self._waiting: collections.deque[
            tuple[logging.Logger, logging.LogRecord]] = collections.deque()

    def say(
        self, logger: logging.Logger, context: context_.RequestContext,
        text: str, *values: object,
    ) -> None:
        """Have a line written later, with the time of now.

        None of the values may be changed any more.
        """
        if not logger.isEnabledFor(logging.INFO):
            return
        self._waiting.append((logger, logger.makeRecord(
            logger.name, logging.INFO, '', 0, text, values, None,
            extra={'context': context})))
        if len(self._waiting) > WAITING_MAX:
            self.write()

    def write(self) -> None:
        """Write what waits; several threads may do so at a time."""
        while self._waiting:
            try:
                logger, record = self._waiting.popleft()
            except IndexError:
                # Another thread was faster.
                return
            logger.handle(record)


def say_now(
    logger: logging.Logger, context: context_.RequestContext, text: str,
    *values: object,
) -> None:
    """Write a line at once, as :meth:`Journal.say` has it done later."""
    logger.info(text, *values, extra={'context': context})
