# SPDX-License-Identifier: Apache-2.0
"""Polling of servers until a condition holds for each."""

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

#: The largest number of servers that are read one by one.
_SINGLE_MAX = 3


class Watch:
    """Servers, as they were read last.

    If a cell does not answer, ``problem`` is the error until the next
    successful reading.

    :param interval_s: the first interval between readings; it grows
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
        """Read some of the servers, or all."""
        self.problem = None
        pending = list(self.found if uuids is None else uuids)
        if len(pending) > _SINGLE_MAX:
            found = self._list(pending)
            self.found.update(found)
            # A listing does not have deleted servers.
            pending = [uuid for uuid in pending if uuid not in found]
        for uuid in pending:
            try:
                self.found[uuid] = self._servers.get(self._context, uuid)
            except exception.InstanceNotFound:
                self.found[uuid] = self.found[uuid].deleted()
            except exception.CellschedException as exc:
                self.problem = exc

    def _list(self, uuids: Iterable[str]) -> dict[str, server.Server]:
        """Return the servers that a listing finds."""
        found: dict[str, server.Server] = {}
        remaining = iter(uuids)
        while some := list(itertools.islice(remaining, query.VALUES_MAX)):
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
        """Read until all servers are settled, or until the timeout.

        :param settled: returns whether a server needs no further reading
        :param advance: called with the number of settled servers
        :returns: the servers that are not settled
        """
        deadline = clock.monotonic() + timeout_s
        interval_s = self._interval_s
        pending = list(self.found)
        while True:
            self.look(pending)
            pending = [uuid for uuid in pending
                       if not settled(self.found[uuid])]
            advance(len(self.found) - len(pending))
            rest_s = deadline - clock.monotonic()
            if not pending or rest_s <= 0:
                return pending
            clock.sleep(min(interval_s, rest_s))
            interval_s = min(interval_s * 1.5, _INTERVAL_MAX_S)


def _unknown(uuid: str) -> server.Server:
    return server.Server(
        uuid=uuid, name=None, project_id=None, status='UNKNOWN',
        task_state=None, cell=None, host=None, availability_zone=None,
        attempts=0, reason='', created_at=None)
