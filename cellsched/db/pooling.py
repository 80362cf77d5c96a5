# SPDX-License-Identifier: Apache-2.0
"""A pool whose connections outlive the moment that needs them.

SQLAlchemy closes each connection beyond ``max_pool_size`` as it is given back,
and with more threads than that it opens another one a moment later. To open
one takes PostgreSQL longer than all that a build asks of it, and the new one
has neither planned nor prepared anything.
"""

from typing import Any

from sqlalchemy import pool
from sqlalchemy.util import queue

from cellsched import clock as clock_

#: Seconds after which connections go that nobody needed meanwhile.
LINGERING_S = 60.0

_CLOCK = clock_.Clock()


class _Idle(queue.Queue[Any]):
    """Connections that nobody uses; as many as there ever were at a time.

    It is full while it has more than it should and some that were not needed
    for a while: those that stayed when it was at its emptiest.
    """

    def _init(self, maxsize: int) -> None:
        super()._init(maxsize)
        self._fewest = self._surplus = 0
        self._looked_at = _CLOCK.monotonic()

    def put(
        self, item: Any, block: bool = True, timeout: float | None = None
    ) -> None:
        with self.mutex:
            if self._has_surplus():
                raise queue.Full
            super().put(item, block, timeout)

    def _full(self) -> bool:
        return False

    def _get(self) -> Any:
        item = super()._get()
        idle = self._qsize()
        self._fewest = min(self._fewest, idle)
        self._surplus = min(self._surplus, idle)
        return item

    def _has_surplus(self) -> bool:
        """Whether what is given back now is one too many."""
        idle = self._qsize()
        now = _CLOCK.monotonic()
        if now - self._looked_at >= LINGERING_S:
            self._surplus, self._fewest = self._fewest, idle
            self._looked_at = now
        if not self._surplus or idle < self.maxsize:
            return False
        self._surplus -= 1
        return True


class LingeringPool(pool.QueuePool):
    """Keeps ``pool_size`` connections, and others while they are needed.

    Of those beyond, each one that is given back is closed in place of one that
    was idle for ``LINGERING_S``. There are never more than ``pool_size`` and
    ``max_overflow`` together.
    """

    _queue_class = _Idle
