# SPDX-License-Identifier: Apache-2.0
"""Conditions that repeat, such as a cell that does not answer.

They are logged when they begin and when they end, and not in between: the
code that meets one does so once a second, or with each request.
"""

from collections.abc import Callable
from collections.abc import Container
from collections.abc import Mapping
import dataclasses
import logging
import threading
from typing import Any

from cellsched import exception
from cellsched import urls

#: Kinds of reasons of one condition that are logged.
_KINDS_MAX = 5


@dataclasses.dataclass(eq=False)
class _Condition:
    """A condition that has not ended.

    :param began: the monotonic time
    :param kinds: the kinds of its reasons that are logged
    """

    began: float
    times: int = 0
    kinds: set[str] = dataclasses.field(default_factory=set)


class Conditions:
    """Logs the begin and the end of conditions.

    The text of a condition identifies it. Its first occurrence is logged with
    the reason, and so is one with an error of another kind. Further ones are
    counted. The end is logged with the number and the duration. Thread-safe.

    :param logger: writes the lines
    :param monotonic: returns the monotonic time
    """

    def __init__(
        self, logger: Any, monotonic: Callable[[], float]
    ) -> None:
        self._logger = logger
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._present: dict[str, _Condition] = {}

    def __contains__(self, text: object) -> bool:
        """Return whether a condition has begun and has not ended."""
        return text in self._present

    def occur(
        self, text: str, reason: BaseException | str = '',
        level: int = logging.WARNING, traceback: bool = False,
    ) -> None:
        """Count a condition; log it if it is new.

        :param text: the condition
        :param reason: the error, or the reason in words
        :param traceback: whether the traceback of the error is logged
        """
        kind = '' if isinstance(reason, str) else exception.kind_of(reason)
        with self._lock:
            found = self._present.get(text)
            if found is None:
                found = self._present[text] = _Condition(self._monotonic())
            found.times += 1
            if kind in found.kinds or len(found.kinds) == _KINDS_MAX:
                return
            found.kinds.add(kind)
        shown = (urls.mask_text(reason) if isinstance(reason, str)
                 else exception.describe(reason))
        self._logger.log(level, '%s', f'{text}: {shown}' if shown else text,
                         exc_info=reason if traceback else None)

    def end(self, text: str) -> None:
        """Log that a condition has ended, if it had begun."""
        if text not in self._present:
            return
        with self._lock:
            found = self._present.pop(text, None)
        if found is not None:
            self._logger.info(
                '%s: this has ended after %.0f s; it occurred %d times', text,
                self._monotonic() - found.began, found.times)

    def replace(
        self, reasons: Mapping[str, BaseException | str],
        level: int = logging.WARNING, among: Container[str] | None = None,
    ) -> None:
        """Count these conditions, and end all others.

        :param reasons: the reasons by condition
        :param among: the conditions that may end; None for all
        """
        for text in [*self._present]:
            if text not in reasons and (among is None or text in among):
                self.end(text)
        for text, reason in reasons.items():
            self.occur(text, reason, level)
