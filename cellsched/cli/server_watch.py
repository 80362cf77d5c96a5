# SPDX-License-Identifier: Apache-2.0
"""Looking at servers until something is true of each of them."""

from collections.abc import Callable
from collections.abc import Iterable
import itertools

from cellsched.api.servers import Servers
from cellsched.clock import Clock
from cellsched.context import RequestContext
from cellsched import exception
from cellsched.listing import query
from cellsched.listing import server

_INTERVAL_MIN_S = 0.1
_INTERVAL_MAX_S = 1.0

#: Servers that are looked at each by itself, at most.
_SINGLE_MAX = 3


class Watch:
    """Servers, as they were when they were looked at last.

    To look fails where a cell does not answer. That is not the end of it, as
    it may answer the next time: ``problem`` is what it was, until then.

    :param interval_s: seconds until they are looked at again; it grows
    """

    def __init__(
        self, servers: Servers, context: RequestContext,
        uuids: Iterable[str], interval_s: float = _INTERVAL_MIN_S,
    ) -> None:
        self._interval_s = interval_s
        self._servers = servers
        self._context = context
        self.found: dict[str, server.Server] = {
            uuid: _unknown(uuid) for uuid in uuids}
        self.problem: exception.CellschedException | None = None

    def look(self, uuids: Iterable[str] | None = None) -> None:
        """Look at some of the servers, or at all."""
        self.problem = None
        asked = list(self.found if uuids is None else uuids)
        if len(asked) > _SINGLE_MAX:
            found = self._list(asked)
            self.found.update(found)
            # Only one by one it is told what became of the others.
            asked = [uuid for uuid in asked if uuid not in found]
        for uuid in asked:
            try:
                self.found[uuid] = self._servers.get(self._context, uuid)
            except exception.InstanceNotFound:
                self.found[uuid] = self.found[uuid].deleted()
            except exception.CellschedException as exc:
                self.problem = exc

    def _list(self, uuids: Iterable[str]) -> dict[str, server.Server]:
        """Return those servers that a listing finds."""
        found: dict[str, server.Server] = {}
        left = iter(uuids)
        while some := list(itertools.islice(left, query.VALUES_MAX)):
            try:
                page = self._servers.list(self._context, {'uuid': some})
            except exception.CellschedException as exc:
                self.problem = exc
                break
            found.update((each.uuid, each) for each in page.servers)
        return found

    def wait(
        self, settled: Callable[[server.Server], bool], timeout_s: float,
        clock: Clock, advance: Callable[[int], None],
    ) -> list[str]:
        """Look until all are settled; return those that are not in time.

        :param advance: is told how many are
        """
        deadline = clock.monotonic() + timeout_s
        interval_s = self._interval_s
        left = list(self.found)
        while True:
            self.look(left)
            left = [uuid for uuid in left if not settled(self.found[uuid])]
            advance(len(self.found) - len(left))
            rest_s = deadline - clock.monotonic()
            if not left or rest_s <= 0:
                return left
            clock.sleep(min(interval_s, rest_s))
            interval_s = min(interval_s * 1.5, _INTERVAL_MAX_S)


def _unknown(uuid: str) -> server.Server:
    return server.Server(
        uuid=uuid, name=None, project_id=None, status='UNKNOWN',
        task_state=None, cell=None, host=None, availability_zone=None,
        attempts=0, reason='', created_at=None)
