# SPDX-License-Identifier: Apache-2.0
"""Claims of servers that are moved, and the end of a move.

A server that goes to another host keeps what it holds where it is until it
has gone there; what it gets meanwhile is claimed in another name. When its
row says that it is there, that becomes what it holds.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from uuid import UUID
from uuid import uuid5

from oslo_log import log

from cellsched.claims import base
from cellsched.db.cell import instance_history
from cellsched.db.cell import instances
from cellsched.db.cell import server_moves
from cellsched.db import session
from cellsched import objects

LOG = log.getLogger(__name__)

#: In which instances have the names by which they claim where they go.
_NAMESPACE = UUID('6f1e2c7a-5b0d-4d3e-9a84-c2f7d0b9e615')


def consumer(instance: str) -> str:
    """Return the name in which an instance claims where it is moved to."""
    return str(uuid5(_NAMESPACE, instance))


def names(instances_: Sequence[str]) -> list[str]:
    """Return all names in which instances may hold something."""
    return [*instances_, *map(consumer, instances_)]


class MoveClaims:
    """Ends moves in one cell: their rows, their servers and their claims.

    The server's row is held while its claims are changed, and they are
    changed only for the move that is going on or where there is none. So who
    is late takes nothing from a later move, which claims in the same name.

    :param host: who says so in faults
    """

    def __init__(
        self, claims: base.ClaimStore, host: str) -> None:
        self._claims = claims
        self._host = host

    def give_up(
        self, database: session.Database, move: server_moves.Migration,
        reason: Exception,
        statuses: Sequence[str] = server_moves.UNMOVED,
        revert: str | None = None,
        tell: Callable[[], None] = lambda: None,
    ) -> bool:
        """End a move whose server has not gone; return whether that did it.

        The server is what it was, or in ERROR after a rebuild. One that is
        being deleted is left alone, and nothing has failed then: no fault is
        recorded. What was claimed for the move is given
        back, by whoever comes last.

        :param statuses: of which the move must be in one
        :param revert: the transition of the server, if it is not that of all
            such moves
        :param tell: is called when a move was ended whose server stays
        """
        uuid = move.instance_uuid
        with database.writer() as connection:
            now = database.now()
            server_moves.hold(connection, uuid)
            ended = server_moves.advance(
                connection, move.uuid, statuses, server_moves.ERROR, now)
            stays = ended and _stays(instances.get(connection, uuid))
            if stays:
                instances.transit(
                    connection, uuid, revert or move.kind.revert, now,
                    host=move.source_compute)
                instance_history.record(
                    connection, uuid, reason, self._host, now,
                    move.migration_type)
            if ended:
                instance_history.fail(
                    connection, uuid, move.kind.action, move.migration_type,
                    now, reason, self._host)
            self._settle(connection, uuid)
        if ended:
            LOG.warning('The %s of %s is given up: %s',
                        move.migration_type, uuid, reason)
        if stays:
            tell()
        return ended

    def complete(
        self, database: session.Database, move: server_moves.Migration
    ) -> bool:
        """Let the claims follow a server that has gone; return if that did it.

        May be done again at any point, and by several at once.
        """
        uuid = move.instance_uuid
        after = (server_moves.FINISHED if move.kind.leaves
                 else server_moves.DONE)
        with database.writer() as connection:
            now = database.now()
            server_moves.hold(connection, uuid)
            current = server_moves.get(connection, move.uuid)
            if current is None or current.status != server_moves.MOVED:
                return False
            if move.kind.leaves:
                self._claims.transfer(consumer(uuid), uuid)
            server_moves.advance(
                connection, move.uuid, [server_moves.MOVED], after, now)
            instance_history.finish(
                connection, uuid, move.kind.action, now)
            self._settle(connection, uuid)
        return True

    def settle(self, database: session.Database, uuid: str) -> None:
        """Give back what was claimed for moves of a server that have ended.

        A claim may come after the end of its move, of a scheduler that nobody
        waited for any more.
        """
        with database.writer() as connection:
            server_moves.hold(connection, uuid)
            self._settle(connection, uuid)

    def _settle(self, connection: Any, uuid: str) -> None:
        """Give back what no move holds any more."""
        row = instances.get(connection, uuid)
        if row is None:
            self._claims.release(names([uuid]))
        elif server_moves.live(connection, uuid) is None:
            self._claims.release(
                names([uuid]) if row.host is None else [consumer(uuid)])


def _stays(row: objects.Instance | None) -> bool:
    """Return whether a server is not deleted, nor being deleted."""
    return row is not None and row.task_state != 'deleting'
