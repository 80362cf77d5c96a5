# SPDX-License-Identifier: Apache-2.0
"""Moves of all servers of a host to other hosts."""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any

from cellsched.api import authorization
from cellsched.api import base
from cellsched.api.moves import Moves
from cellsched.api import server_details
from cellsched.api.services import Services
from cellsched.api import validation
from cellsched.cells import target
from cellsched.claims import base as claims_base
from cellsched.clock import Clock
from cellsched.context import RequestContext
from cellsched.db.api import host_mappings
from cellsched.db.cell import instances
from cellsched.db.cell import on_host
from cellsched.db.cell import server_moves
from cellsched.db.cell import services
from cellsched.db.cell import states
from cellsched.db import session
from cellsched import exception
from cellsched.migrations import LocalDeletion

#: The largest number of concurrent moves of a host.
MOVES_MAX = 100

_INTERVAL_S = 1.0

MOVED = 'moved'
MOVING = 'moving'
STAYS = 'stays'


@dataclasses.dataclass(frozen=True)
class Departure:
    """A server of a host, and the outcome of its move.

    :param outcome: ``moved``, also for a deleted server; ``moving`` if the
        move was in progress at the end; or ``stays``
    :param reason: the reason if it stays, or if the host did not remove its
        copy of a server that is on another host; or empty
    """

    uuid: str
    name: str | None
    outcome: str
    reason: str = ''


class HostDrain(base.Controller):
    """Moves all servers of a host to other hosts of its cell.

    The state is in the database of the cell, so an interrupted call can be
    repeated, and moves the servers that are still on the host.

    :param down_s: seconds without a report after which a host is down
    """

    def __init__(
        self, authorizer: authorization.Authorizer, database: session.Database,
        targets: target.Targets, moves: Moves,
        services: Services, history: server_details.ServerHistory,
        claims: claims_base.Claims, clock: Clock, down_s: float,
    ) -> None:
        super().__init__(authorizer)
        self._database = database
        self._targets = targets
        self._moves = moves
        self._services = services
        self._history = history
        self._deletion = LocalDeletion(claims, down_s)
        self._clock = clock
        self._down_s = down_s

    @base.requires('cellsched:hosts:drain')
    def drain(
        self, context: RequestContext, host: str,
        at_once: int = 10, timeout_s: float = 3600,
        reason: str = 'drain',
        show: Callable[[int, int], None] = lambda done, total: None,
        rebuild: bool = False,
    ) -> list[Departure]:
        """Disable a host, and migrate its servers; return the outcomes.

        A server whose local disks cannot be transferred stays.

        Blocks until each server has moved or stays, or until the timeout. A
        server has moved when the host has removed its copy; if the host goes
        down before, the call ends without waiting for it. Moves in progress
        at the end continue. The host stays disabled.

        :param at_once: the number of concurrent moves, 1 to 100
        :param reason: the reason that the host is disabled
        :param show: called with the number of finished servers and of all
        :param rebuild: build all servers anew on their new hosts; the data on
            their local disks is lost
        :raises cellsched.exception.InvalidField: names the field and the
            bound, or the host is down
        :raises cellsched.exception.HostMappingNotFound: the host is not mapped
        :raises cellsched.exception.DatabaseUnreachable: its cell does not
            answer
        """
        departures = self._departures(host, at_once)
        if not departures.is_up():
            raise exception.InvalidField(
                where='host', field='name',
                problem='the host%(host)s is down',
                expected='a host that is up; for a host that is down, use '
                         'evacuate',
                internals={'host': f' {host}'})
        self._services.set(context, host, services.COMPUTE, True, reason)
        migrate = (functools.partial(self._moves.migrate, rebuild=True)
                   if rebuild else self._moves.migrate)
        return departures.run(
            lambda uuid: migrate(context, uuid),
            lambda uuid: self._reason(context, uuid), timeout_s, show)

    @base.requires('cellsched:hosts:evacuate')
    def evacuate(
        self, context: RequestContext, host: str,
        to: str | None = None, at_once: int = 10, timeout_s: float = 3600,
        show: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[Departure]:
        """Evacuate the servers of a failed host; return the outcomes.

        As :meth:`drain`, but the service of the host does not change, and the
        host removes its copies when it returns. Deletions that wait for the
        host are completed.

        :param to: the destination of all servers; by default the scheduler
            selects a host for each
        :raises cellsched.exception.HostMappingNotFound: the host is not mapped
        """
        departures = self._departures(host, at_once, evacuates=True)
        self._deletion.delete_all(departures.database, host)
        return departures.run(
            lambda uuid: self._moves.evacuate(context, uuid, to),
            lambda uuid: self._reason(context, uuid), timeout_s, show)

    def _departures(
        self, host: str, at_once: int, evacuates: bool = False
    ) -> '_Departures':
        validation.check_text('host', 'name', host)
        validation.check_count('host', 'at_once', at_once, MOVES_MAX)
        with self._database.reader() as connection:
            cell = host_mappings.get(connection, host)
        return _Departures(
            self._targets.database(cell), host, at_once, self._clock,
            self._down_s, evacuates)

    def _reason(self, context: RequestContext, uuid: str) -> str:
        """Return the reason why the last move of a server failed."""
        page = self._history.migrations(context, uuid, limit=1)
        return page.migrations[0].reason if page.migrations else ''


@dataclasses.dataclass(eq=False)
class _Departures:
    """The servers of a host, and the progress of their moves.

    :param evacuates: whether the host is down: moves replace the tasks of
        servers, and the host is not expected to remove its copies
    :ivar reasons: reasons of the servers that stay
    :ivar copies: servers on other hosts, of which the host still has a copy
    """

    database: session.Database
    host: str
    at_once: int
    clock: Clock
    down_s: float
    evacuates: bool
    names: dict[str, str | None] = dataclasses.field(default_factory=dict)
    begun: set[str] = dataclasses.field(default_factory=set)
    reasons: dict[str, str] = dataclasses.field(default_factory=dict)
    copies: set[str] = dataclasses.field(default_factory=set)

    def is_up(self) -> bool:
        """Return whether the host is up."""
        with self.database.reader() as connection:
            return services.is_up(connection, self.host, self.database.now(),
                                  self.down_s)

    def run(
        self, begin: Callable[[str], None], why: Callable[[str], str],
        timeout_s: float, show: Callable[[int, int], None],
    ) -> list[Departure]:
        deadline = self.clock.monotonic() + timeout_s
        while True:
            rows = self._read()
            self._go_on(rows, begin, why)
            pending = rows.keys() - self.reasons.keys()
            waiting = pending or self.copies and self.is_up()
            show(len(self.names) - len(pending | self.copies),
                 len(self.names))
            if not waiting or self.clock.monotonic() >= deadline:
                return [self._departure(uuid, rows) for uuid in self.names]
            self.clock.sleep(_INTERVAL_S)

    def _read(self) -> dict[str, Any]:
        """Return the servers that are still on the host."""
        with self.database.reader() as connection:
            rows = {row.uuid: row
                    for row in on_host.list_all(connection, self.host)}
            # A former machine of this name never removes its copies.
            moves = [] if self.evacuates else server_moves.list_left(
                connection, self.host,
                services.look(connection, self.host).host_id)
            copies = instances.get_many(
                connection, [move.instance_uuid for move in moves])
        self.copies = copies.keys() - rows.keys()
        for uuid, row in (*copies.items(), *rows.items()):
            self.names[uuid] = row.display_name
        return rows

    def _go_on(
        self, rows: dict[str, Any], begin: Callable[[str], None],
        why: Callable[[str], str],
    ) -> None:
        """Find failed moves, and begin further moves."""
        for uuid in self.begun & rows.keys():
            row = rows[uuid]
            if row.move is None and row.task_state is None:
                self.begun.discard(uuid)
                self.reasons[uuid] = why(uuid) or 'the move failed'
        self.begun &= rows.keys()
        # Other moves of servers of a host that is down do not continue.
        moving = {uuid for uuid, row in rows.items() if row.move is not None
                  and (not self.evacuates
                       or row.kind == server_moves.EVACUATION)}
        self.begun |= moving
        for uuid, row in rows.items():
            if len(self.begun) >= self.at_once:
                break
            if uuid in self.begun or uuid in self.reasons:
                continue
            if row.task_state is not None and not (
                    self.evacuates and row.vm_state in states.EVACUABLE):
                # A server with a task may be movable in the next round.
                continue
            try:
                begin(uuid)
            except exception.InstanceNotFound:
                continue
            except exception.CellschedException as exc:
                if row.move is not None and isinstance(
                        exc, exception.InstanceInvalidState):
                    # Another host that is up completes this move.
                    continue
                self.reasons[uuid] = exc.format_message()
            else:
                self.begun.add(uuid)

    def _departure(self, uuid: str, rows: dict[str, Any]) -> Departure:
        if uuid in rows:
            outcome = STAYS if uuid in self.reasons else MOVING
            reason = self.reasons.get(uuid, '')
        elif uuid in self.copies:
            outcome, reason = MOVING, (
                f'the agent of host {self.host} has not removed its copy of '
                'the server')
        else:
            outcome, reason = MOVED, ''
        return Departure(uuid, self.names[uuid], outcome, reason)
