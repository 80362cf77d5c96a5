# SPDX-License-Identifier: Apache-2.0
"""Changes and removal of cells, hosts and instance mappings."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
import dataclasses
import enum
from typing import Any

from oslo_log import log

from cellsched.cells import registry
from cellsched.cells import target
from cellsched.clock import Clock
from cellsched.db.api import aggregates
from cellsched.db.api import cell_mappings
from cellsched.db.api import host_mappings
from cellsched.db.api import instance_mappings
from cellsched.db.api import operator_changes
from cellsched.db import cell as cell_schema
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import instances
from cellsched.db.cell import on_host
from cellsched.db import session
from cellsched.db import tokens
from cellsched import exception
from cellsched import objects
from cellsched.validation.uuids import canonical

LOG = log.getLogger(__name__)

#: Servers in one transaction.
BATCH = 500

#: Attempts to reach the database of a cell before it counts as lost, and the
#: seconds between them.
_ATTEMPTS_MAX = 3
_ATTEMPT_INTERVAL_S = 2.0


@dataclasses.dataclass(frozen=True)
class LostCell:
    """A cell whose database is lost, and its contents.

    :param reason: why the database does not answer
    :param hosts: names of its mapped hosts
    :param servers: number of its servers that are not deleted, by project
    :param deleted: number of its servers that are deleted
    """

    cell: objects.CellMapping
    reason: str
    hosts: list[str]
    servers: dict[str, int]
    deleted: int


class CellMaintenance:
    """Changes and removes mappings of cells and hosts.

    Each operation is one transaction on the API database that locks what it
    has checked, so that no server or host is added meanwhile. Requests that
    begin after an operation are decided with its change.
    """

    def __init__(
        self, database: session.Database, cells: registry.CellRegistry,
        targets: target.Targets, clock: Clock,
    ) -> None:
        self._database = database
        self._cells = cells
        self._targets = targets
        self._clock = clock

    def create(
        self, mapping: objects.CellMapping, check: bool = False
    ) -> None:
        """Map a cell; its database may be empty.

        :param check: whether its database and its broker must answer;
            otherwise the database may be made later
        :raises cellsched.exception.CellMappingExists: another cell has its
            name, one of its URLs, its database or its uuid
        :raises cellsched.exception.DatabaseUnreachable: its database does not
            answer
        :raises cellsched.exception.BrokerUnreachable: its broker does not
            answer
        :raises cellsched.exception.BrokerRefused: its broker refuses the user,
            the password or the virtual host
        :raises cellsched.exception.WrongDatabase: its database belongs to
            another service
        :raises cellsched.exception.InvalidField: a URL has braces that are not
            template fields
        :raises cellsched.exception.ConfigurationInvalid: a URL cannot be
            opened
        """
        self._check_urls(mapping, must_answer=check)
        create = (cell_mappings.create if mapping.is_cell0()
                  else cell_mappings.create_apart)
        with self._database.writer() as connection:
            create(connection, mapping, self._clock.now())
        operator_changes.announce(self._database, self._clock)
        self._cells.refresh()

    def update(
        self, uuid: str, values: Mapping[str, Any]
    ) -> objects.CellMapping:
        """Change a cell; return its new mapping.

        :param values: some of ``name``, ``transport_url``,
            ``database_connection`` and ``disabled``
        :raises cellsched.exception.CellMappingNotFound: no such cell
        :raises cellsched.exception.CellMappingExists: another cell has the
            name, one of the URLs, or the database
        :raises cellsched.exception.Cell0CannotBeDisabled: cell0 cannot be
            disabled
        :raises cellsched.exception.WrongDatabase: as :meth:`create`
        :raises cellsched.exception.InvalidField: as :meth:`create`
        :raises cellsched.exception.ConfigurationInvalid: as :meth:`create`
        """
        if values.get('disabled') and uuid == objects.CELL0_UUID:
            raise exception.Cell0CannotBeDisabled()
        self._cells.refresh()
        changed = self._cells.get(uuid).obj_clone()
        for name, value in values.items():
            setattr(changed, name, value)
        self._check_urls(changed, values)
        with self._database.writer() as connection:
            changed = cell_mappings.update_apart(
                connection, uuid, values, self._clock.now())
        operator_changes.announce(self._database, self._clock)
        self._cells.refresh()
        return changed

    def _check_urls(
        self, mapping: objects.CellMapping,
        fields: Collection[str] = ('database_connection', 'transport_url'),
        must_answer: bool = False,
    ) -> None:
        if 'transport_url' in fields:
            target.check(mapping.transport_url, 'transport_url')
            transport = self._targets.transport(mapping)
            if transport is None and not mapping.is_cell0():
                raise exception.InvalidField(
                    where='cell', field='transport_url',
                    problem='only cell0 can have none',
                    expected='the URL of a message broker')
            self._check_broker(mapping)
            if must_answer:
                self._targets.check_broker(mapping)
        if 'database_connection' in fields:
            target.check(
                mapping.database_connection, 'database_connection')
            self._check_database(mapping, must_answer)

    def _check_broker(self, mapping: objects.CellMapping) -> None:
        """Check that no other cell has the same virtual host.

        Otherwise services of one cell would receive messages for the other.
        """
        places = self._targets.broker_places(mapping)
        for cell in self._cells.all():
            if cell.uuid == mapping.uuid or not places:
                continue
            try:
                shared = places & self._targets.broker_places(cell)
            except exception.ConfigurationInvalid as exc:
                LOG.warning('Could not compare the broker with that of '
                            'cell %s: %s', cell.identity, exc)
                continue
            if shared:
                raise exception.CellMappingExists(
                    uuid=cell.identity, field='transport URL')

    def _check_database(
        self, mapping: objects.CellMapping, must_answer: bool
    ) -> None:
        """Check that a database is empty or a cell's, and of no other cell.

        The file of an SQLite database may be made later.
        """
        with self._targets.connected_once(mapping) as database:
            try:
                cell_schema.SCHEMA.check_place(database)
            except exception.DATABASE_UNAVAILABLE as exc:
                if must_answer:
                    raise
                LOG.warning('Database of cell %s is not checked: %s',
                            mapping.identity, exc)
                return
            for cell in self._cells.all():
                if cell.uuid != mapping.uuid and self._has(cell, database):
                    raise exception.CellMappingExists(
                        uuid=cell.identity, field='database connection')

    def _has(
        self, cell: objects.CellMapping, database: session.Database
    ) -> bool:
        """Return whether a database is known to belong to a cell."""
        try:
            with self._targets.connected_once(cell) as other:
                return tokens.is_same_database(database, other)
        except (exception.DatabaseError,
                exception.ConfigurationInvalid) as exc:
            LOG.warning('Could not compare the database with that of cell %s: '
                        '%s', cell.identity, exc)
            return False

    def list_hosts(
        self, uuid: str | None = None
    ) -> list[tuple[objects.CellMapping, str]]:
        """Return the mapped hosts with their cells, by host name.

        :param uuid: of this cell only
        :raises cellsched.exception.CellMappingNotFound: no such cell
        """
        self._cells.refresh()
        cells = {cell.uuid: cell for cell in (
            [self._cells.get(uuid)] if uuid else self._cells.all())}
        with self._database.reader() as connection:
            hosts = host_mappings.by_cell(connection)
        return sorted(
            ((cells[of], host) for of, names in hosts.items() if of in cells
             for host in names), key=lambda pair: pair[1])

    def delete_host(self, uuid: str, host: str) -> None:
        """Unmap a host, and remove it from all aggregates.

        The next discovery maps it again.

        :raises cellsched.exception.CellMappingNotFound: no such cell
        :raises cellsched.exception.HostMappingNotFound: it is not mapped
        :raises cellsched.exception.HostMappingExists: it is in another cell
        :raises cellsched.exception.HostInUse: it has servers
        """
        self._cells.refresh()
        cell = self._cells.get(uuid)
        with self._database.writer() as connection:
            mapped = host_mappings.get_many(connection, [host]).get(host)
            if mapped is None:
                raise exception.HostMappingNotFound(host=host)
            if mapped.uuid != uuid:
                raise exception.HostMappingExists(
                    host=host, cell=cell.identity,
                    mapped_cell=mapped.identity)
            host_mappings.delete(connection, cell.id, [host])
            with self._targets.database(cell).writer() as in_cell:
                count = on_host.count(in_cell, host)
                if count:
                    raise exception.HostInUse(host=host, count=count)
                compute_nodes.mark_unmapped(in_cell, [host])
            # Last, as it locks the feed for all calls.
            aggregates.forget_hosts(connection, [host], self._clock.now())
        operator_changes.announce(self._database, self._clock)

    def delete(self, uuid: str, force: bool = False) -> list[str]:
        """Unmap an empty cell; return its hosts.

        The cell's database is kept. Its hosts are marked as unmapped, so that
        they are discovered if the cell is mapped again. A database that does
        not answer is skipped.

        :param force: also unmap its hosts, and servers that are deleted
        :raises cellsched.exception.CellMappingNotFound: no such cell
        :raises cellsched.exception.CellInUse: names what the cell has
        """
        with self._database.writer() as connection:
            cell = cell_mappings.find(connection, uuid, lock=True)
            if cell is None:
                raise exception.CellMappingNotFound(uuid=uuid)
            hosts = sorted(host_mappings.by_cell(connection).get(uuid, ()))
            if hosts and not force:
                raise exception.CellInUse(
                    cell=cell.identity, by=exception.CellInUse.HOSTS,
                    count=len(hosts))
            living, deleted = instance_mappings.count_in_cell(
                connection, cell.id)
            if living:
                raise exception.CellInUse(
                    cell=cell.identity, by=exception.CellInUse.SERVERS,
                    count=living)
            if deleted and not force:
                raise exception.CellInUse(
                    cell=cell.identity, by=exception.CellInUse.DELETED,
                    count=deleted)
            host_mappings.delete(connection, cell.id)
            instance_mappings.delete_in_cell(connection, cell.id)
            cell_mappings.delete(connection, cell.id)
            if hosts:
                self._forget(cell, hosts)
                aggregates.forget_hosts(connection, hosts, self._clock.now())
        operator_changes.announce(self._database, self._clock)
        self._cells.refresh()
        return hosts

    def find_losses(self, uuid: str) -> LostCell | None:
        """Return what is lost if a cell is removed without its database.

        :returns: None if the database answers, or if it is cell0
        :raises cellsched.exception.CellMappingNotFound: no such cell
        """
        self._cells.refresh()
        cell = self._cells.get(uuid)
        reason = None if cell.is_cell0() else self._unanswered(cell)
        if reason is None:
            return None
        with self._database.reader() as connection:
            hosts = sorted(host_mappings.by_cell(connection).get(uuid, ()))
            _, deleted = instance_mappings.count_in_cell(connection, cell.id)
            servers = instance_mappings.count_by_project(connection, cell.id)
        return LostCell(cell, reason, hosts, servers, deleted)

    def _unanswered(self, cell: objects.CellMapping) -> str | None:
        """Return why the database of a cell does not answer, or None."""
        for attempt in range(_ATTEMPTS_MAX):
            if attempt:
                self._clock.sleep(_ATTEMPT_INTERVAL_S)
            try:
                with self._targets.connected_once(cell) as database:
                    if not database.exists():
                        return 'Its file does not exist.'
                    cell_schema.SCHEMA.check_place(database)
                    return None
            except exception.WrongDatabase:
                return None
            except exception.DatabaseUnreachable as exc:
                reason = exc.format_message()
        return reason

    def delete_lost(
        self, lost: LostCell, release: Callable[[list[str]], None]
    ) -> None:
        """Remove a cell whose database is lost, with its hosts and servers.

        The records of the servers are removed: they are gone for their users,
        and count for no quota. An unfinished build is scheduled again, to
        another cell. Idempotent: an interrupted call can be repeated.

        :param lost: result of :meth:`find_losses`
        :param release: releases the claims of servers, by their uuids
        :raises cellsched.exception.CellInUse: servers are still added to it
        """
        # 1. No new server may come, except by a request in progress.
        self.update(lost.cell.uuid, {'disabled': True})
        while True:
            # 2. Remove the servers in batches. The claims go first: if the
            # process stops, the next call finds the mappings again.
            with self._database.reader() as connection:
                uuids = instance_mappings.list_in_cell(
                    connection, lost.cell.id, BATCH)
            if not uuids:
                break
            release(uuids)
            with self._database.writer() as connection:
                removed = instance_mappings.forget(
                    connection, uuids, lost.cell.id)
                instance_mappings.withdraw(
                    connection, [each for each in uuids
                                 if each not in removed],
                    lost.cell.id, self._clock.now())
        # 3. Unmap the hosts and the cell.
        self.delete(lost.cell.uuid, force=True)

    def _forget(self, cell: objects.CellMapping, hosts: list[str]) -> None:
        try:
            with self._targets.database(cell).writer() as connection:
                compute_nodes.mark_unmapped(connection, hosts)
        except exception.CellschedException as exc:
            LOG.warning('Could not mark the hosts of cell %s as unmapped: %s',
                        cell.identity, exc)


class MappingVerdict(enum.IntEnum):
    """The state of a server's mapping; its value is Nova's exit code."""

    ALIVE = 0
    NOT_MAPPED = 1
    WITHOUT_CELL = 2
    DELETED = 3
    ARCHIVED = 4


class InstanceMapper:
    """Maps the servers of cells; idempotent.

    Accepted servers are mapped. Servers of a cell that ran without an API
    database, or under Nova before cells, are not. Mapped servers are skipped,
    so the mapper needs no stored position.
    """

    def __init__(
        self, database: session.Database, cells: registry.CellRegistry,
        targets: target.Targets, clock: Clock,
    ) -> None:
        self._database = database
        self._cells = cells
        self._targets = targets
        self._clock = clock

    def count(self, cell_uuid: str) -> int:
        """Return the number of servers of a cell, including deleted ones.

        :raises cellsched.exception.CellMappingNotFound: no such cell
        """
        cell = self._cells.get(cell_uuid)
        with self._targets.database(cell).reader() as connection:
            return instances.count_all(connection)

    def map(
        self, cell_uuid: str, most: int | None = None,
        progress: Callable[[int], None] = lambda looked: None,
    ) -> tuple[int, bool]:
        """Map servers of a cell, oldest first, including deleted ones.

        :param most: maximum number of servers to map
        :param progress: called with the number of servers that were read
        :returns: number of mapped servers, and whether there are more
        :raises cellsched.exception.CellMappingNotFound: no such cell
        """
        cell = self._cells.get(cell_uuid)
        database = self._targets.database(cell)
        after = looked = mapped = 0
        while True:
            with database.reader() as connection:
                rows = instances.page_by_id(connection, after, BATCH)
            if not rows:
                return mapped, False
            after = rows[-1]['id']
            with self._database.writer() as connection:
                known = instance_mappings.get_many(
                    connection, [row['uuid'] for row in rows])
                missing = [row for row in rows if row['uuid'] not in known]
                room = len(missing) if most is None else most - mapped
                mapped += instance_mappings.create_missing(
                    connection, missing[:room], cell.id,
                    self._clock.now())
            if len(missing) > room:
                return mapped, True
            looked += len(rows)
            progress(looked)

    def verify(self, uuid: str) -> MappingVerdict:
        """Return the state of a server's mapping."""
        uuid = canonical(uuid) or uuid
        with self._database.reader() as connection:
            mapping = instance_mappings.get_many(connection, [uuid]).get(uuid)
        if mapping is None:
            return MappingVerdict.NOT_MAPPED
        if mapping.cell_mapping is None:
            return MappingVerdict.WITHOUT_CELL
        with self._targets.database(mapping.cell_mapping).reader() as in_cell:
            if instances.get(in_cell, uuid) is not None:
                return MappingVerdict.ALIVE
            if instances.is_deleted(in_cell, uuid):
                return MappingVerdict.DELETED
        return MappingVerdict.ARCHIVED
