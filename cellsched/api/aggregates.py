# SPDX-License-Identifier: Apache-2.0
"""Aggregates: create, get, list, change, delete."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from oslo_utils import uuidutils

from cellsched.api import authorization
from cellsched.api import base
from cellsched.api import validation
from cellsched.cells import target
from cellsched.clock import Clock
from cellsched.context import RequestContext
from cellsched.db.api import aggregates
from cellsched.db.api import host_mappings
from cellsched.db.api import operator_changes
from cellsched.db.cell import on_host
from cellsched.db import session
from cellsched import exception
from cellsched.objects import keys
from cellsched.validation import json_schema

#: The metadata key with the availability zone of the hosts.
ZONE_KEY = 'availability_zone'

_WHERE = 'aggregate'


class Aggregates(base.Controller):
    """Manages aggregates, sets of hosts of any cells with metadata.

    An aggregate is identified by its id or its name. The key
    ``availability_zone`` is the zone of its hosts; a host is in at most one
    zone. As in Nova, no change moves a host with servers to another zone.

    Requests that begin after a call are decided with its change.

    :param default_zone: the zone of hosts without one
    """

    def __init__(
        self, authorizer: authorization.Authorizer, database: session.Database,
        targets: target.Targets, clock: Clock, default_zone: str,
        new_uuid: Callable[[], str] = uuidutils.generate_uuid,
    ) -> None:
        super().__init__(authorizer)
        self._database = database
        self._targets = targets
        self._default_zone = default_zone
        self._clock = clock
        self._new_uuid = new_uuid

    @base.requires('os_compute_api:os-aggregates:create')
    def create(
        self, context: RequestContext, name: str,
        metadata: Mapping[str, str] | None = None,
    ) -> aggregates.AggregateRow:
        """Create an aggregate without hosts.

        A number is refused as its name, as it could be the id of another one.

        :raises cellsched.exception.InvalidField: names the field and the
            bound
        :raises cellsched.exception.AggregateExists: the name is in use
        """
        metadata = {} if metadata is None else metadata
        validation.check_text(_WHERE, 'name', name)
        if name.isascii() and name.isdecimal():
            raise exception.InvalidField(
                where=_WHERE, field='name',
                problem=f'{json_schema.shown(name)} is a number',
                expected='a name that cannot be the id of an aggregate')
        json_schema.check(
            _WHERE, metadata, validation.METADATA, 'metadata')
        for key, value in metadata.items():
            # None removes a key, and a new aggregate has none.
            validation.check_text(_WHERE, f'metadata.{key}', value)
        keys.METADATA.check(metadata, _WHERE, 'metadata')
        with self._database.writer() as connection:
            aggregates.create(connection, self._new_uuid(), name, [],
                              metadata, self._clock.now())
        return self._get(name)

    @base.requires('os_compute_api:os-aggregates:show')
    def get(
        self, context: RequestContext, name: str
    ) -> aggregates.AggregateRow:
        """Return an aggregate by its id or its name.

        :raises cellsched.exception.InvalidField: the name is invalid
        :raises cellsched.exception.AggregateNotFound: it does not exist
        """
        return self._get(name)

    @base.requires('os_compute_api:os-aggregates:index')
    def list_all(
        self, context: RequestContext
    ) -> list[aggregates.AggregateRow]:
        """Return every aggregate, the oldest first."""
        with self._database.reader() as connection:
            return aggregates.list_all(connection)

    @base.requires('os_compute_api:os-aggregates:set_metadata')
    def set_metadata(
        self, context: RequestContext, name: str,
        metadata: Mapping[str, str | None],
    ) -> aggregates.AggregateRow:
        """Change some keys and return the aggregate; None removes a key.

        :raises cellsched.exception.InvalidField: names the field and the
            bound
        :raises cellsched.exception.AggregateNotFound: it does not exist
        :raises cellsched.exception.HostInOtherZone: one of its hosts is
            in another zone
        :raises cellsched.exception.ZoneInUse: the zone would change, and a
            host has servers
        :raises cellsched.exception.DatabaseUnreachable: the zone would change,
            and a cell does not answer
        """
        json_schema.check(
            _WHERE, metadata, validation.METADATA, 'metadata')
        keys.METADATA.check(metadata, _WHERE, 'metadata')
        return self._change(name, aggregates.set_metadata, metadata)

    @base.requires('os_compute_api:os-aggregates:add_host')
    def add_hosts(
        self, context: RequestContext, name: str, hosts: Sequence[str]
    ) -> aggregates.AggregateRow:
        """Add hosts, which must be mapped to cells; return the aggregate.

        A host that is in the aggregate is accepted.

        :raises cellsched.exception.InvalidField: names the field and the
            bound
        :raises cellsched.exception.AggregateNotFound: it does not exist
        :raises cellsched.exception.HostMappingNotFound: a host is not mapped
        :raises cellsched.exception.HostInOtherZone: a host is in another zone;
            no host is added then
        :raises cellsched.exception.ZoneInUse: as :meth:`set_metadata`
        :raises cellsched.exception.DatabaseUnreachable: likewise
        """
        json_schema.check(_WHERE, hosts, validation.HOSTS, 'hosts')
        with self._database.reader() as connection:
            mapped = host_mappings.get_many(connection, hosts)
        for host in hosts:
            if host not in mapped:
                raise exception.HostMappingNotFound(host=host)
        return self._change(name, aggregates.add_hosts, hosts, hosts)

    @base.requires('os_compute_api:os-aggregates:remove_host')
    def remove_hosts(
        self, context: RequestContext, name: str, hosts: Sequence[str]
    ) -> aggregates.AggregateRow:
        """Remove hosts; return the aggregate.

        :raises cellsched.exception.InvalidField: names the field and the
            bound
        :raises cellsched.exception.AggregateNotFound: it does not exist
        :raises cellsched.exception.AggregateHostNotFound: a host is not in
            it; no host is removed then
        :raises cellsched.exception.ZoneInUse: as :meth:`set_metadata`
        :raises cellsched.exception.DatabaseUnreachable: likewise
        """
        json_schema.check(_WHERE, hosts, validation.HOSTS, 'hosts')
        present = set(self._get(name).hosts)
        for host in hosts:
            if host not in present:
                raise exception.AggregateHostNotFound(
                    host=host, aggregate=name)
        return self._change(name, aggregates.remove_hosts, hosts)

    @base.requires('os_compute_api:os-aggregates:delete')
    def delete(self, context: RequestContext, name: str) -> None:
        """Delete an aggregate; its hosts are not deleted.

        :raises cellsched.exception.InvalidField: the name is invalid
        :raises cellsched.exception.AggregateNotFound: it does not exist
        :raises cellsched.exception.AggregateInUse: its hosts share a resource
            provider, which must be deleted first
        :raises cellsched.exception.ZoneInUse: as :meth:`set_metadata`
        :raises cellsched.exception.DatabaseUnreachable: likewise
        """
        self._apply(self._get(name), aggregates.delete)

    def _get(self, name: str) -> aggregates.AggregateRow:
        validation.check_text(_WHERE, 'name', name)
        with self._database.reader() as connection:
            return aggregates.get(connection, name)

    def _change(
        self, name: str, query: Callable[..., None], values: Any,
        added: Sequence[str] = (),
    ) -> aggregates.AggregateRow:
        """Change an aggregate and return it.

        :param added: the hosts that the change adds
        """
        found = self._get(name)
        self._apply(found, query, values, added=added)
        return self._get(str(found.id))

    def _apply(
        self, aggregate: aggregates.AggregateRow,
        query: Callable[..., None], *values: Any, added: Sequence[str] = (),
    ) -> None:
        """Change an aggregate, unless hosts with servers change their zone.

        The cells are read without a transaction: a change that moves hosts to
        another zone is rolled back, the hosts are checked, and the change is
        made again.
        """
        hosts = list(dict.fromkeys([*aggregate.hosts, *added]))
        checked: dict[str, tuple[str, str]] = {}
        while True:
            with self._database.reader() as connection:
                before = aggregates.values_by_host(connection, ZONE_KEY, hosts)
            try:
                with operator_changes.known(
                        self._database, self._clock) as connection:
                    # Concurrent changes of aggregates wait for each other, so
                    # the checks after the change stay valid.
                    query(
                        connection, aggregate.id, *values, self._clock.now())
                    moved = self._moved(before, aggregates.values_by_host(
                        connection, ZONE_KEY, hosts), hosts)
                    if not moved.items() <= checked.items():
                        raise _ZonesChange(moved)
                return
            except _ZonesChange as exc:
                self._check_empty(exc.moved)
                checked.update(exc.moved)

    def _moved(
        self, before: Mapping[str, set[str]], after: Mapping[str, set[str]],
        hosts: Iterable[str],
    ) -> dict[str, tuple[str, str]]:
        """Return the zones before and after a change, where they differ.

        :raises cellsched.exception.HostInOtherZone: a host is in two zones
        """
        moved = {}
        for host in hosts:
            old, new = before.get(host, set()), after.get(host, set())
            if len(new) > 1 and new != old:
                raise exception.HostInOtherZone(
                    host=host, zone=min(old & new or new))
            zones = (min(old, default=self._default_zone),
                     min(new, default=self._default_zone))
            if zones[0] != zones[1]:
                moved[host] = zones
        return moved

    def _check_empty(self, moved: Mapping[str, tuple[str, str]]) -> None:
        """Make sure that hosts have no servers.

        :param moved: their zones before and after the change, by host
        """
        with self._database.reader() as connection:
            cells = host_mappings.get_many(connection, moved)
        for host, cell in sorted(cells.items()):
            with self._targets.database(cell).reader() as connection:
                count = on_host.count(connection, host)
            if count:
                before, after = moved[host]
                raise exception.ZoneInUse(
                    host=host, before=before, after=after, count=count)


class _ZonesChange(Exception):
    """Rolls a change back that would move hosts to other zones.

    :param moved: their zones before and after the change, by host
    """

    def __init__(self, moved: dict[str, tuple[str, str]]) -> None:
        super().__init__(moved)
        self.moved = moved
