# SPDX-License-Identifier: Apache-2.0
"""Aggregates: create, get, list, change, delete."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from oslo_utils import uuidutils

from cellsched.api import authorization
from cellsched.api import base
from cellsched.api import schemas
from cellsched.api import validation
from cellsched.clock import Clock
from cellsched.context import RequestContext
from cellsched.db.api import aggregates
from cellsched.db.api import host_mappings
from cellsched.db import session
from cellsched import exception

#: The metadata key with the availability zone of the hosts.
ZONE_KEY = 'availability_zone'

_WHERE = 'aggregate'


class Aggregates(base.Controller):
    """Manages aggregates, sets of hosts of any cells with metadata.

    An aggregate is identified by its id or its name. The key
    ``availability_zone`` is the zone of its hosts; a host is in at most one
    zone.
    """

    def __init__(
        self, authorizer: authorization.Authorizer, database: session.Database,
        clock: Clock,
        new_uuid: Callable[[], str] = uuidutils.generate_uuid,
    ) -> None:
        super().__init__(authorizer)
        self._database = database
        self._clock = clock
        self._new_uuid = new_uuid

    @base.requires('os_compute_api:os-aggregates:create')
    def create(
        self, context: RequestContext, name: str,
        metadata: Mapping[str, str] | None = None,
    ) -> aggregates.AggregateRow:
        """Create an aggregate without hosts.

        :raises cellsched.exception.InvalidField: names the field and the
            bound
        :raises cellsched.exception.AggregateExists: the name is in use
        """
        metadata = {} if metadata is None else metadata
        validation.check_text(_WHERE, 'name', name)
        validation.validate(_WHERE, 'metadata', metadata, schemas.METADATA)
        for key, value in metadata.items():
            # None removes a key, and a new aggregate has none.
            validation.check_text(_WHERE, f'metadata.{key}', value)
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
        """
        validation.validate(_WHERE, 'metadata', metadata, schemas.METADATA)
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
        """
        validation.validate(_WHERE, 'hosts', hosts, schemas.HOSTS)
        with self._database.reader() as connection:
            mapped = host_mappings.get_many(connection, hosts)
        for host in hosts:
            if host not in mapped:
                raise exception.HostMappingNotFound(host=host)
        return self._change(name, aggregates.add_hosts, hosts)

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
        """
        validation.validate(_WHERE, 'hosts', hosts, schemas.HOSTS)
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
        """
        number = self._get(name).id
        with self._database.writer() as connection:
            aggregates.delete(connection, number, self._clock.now())

    def _get(self, name: str) -> aggregates.AggregateRow:
        validation.check_text(_WHERE, 'name', name)
        with self._database.reader() as connection:
            return aggregates.get(connection, name)

    def _change(
        self, name: str, query: Callable[..., None], values: Any
    ) -> aggregates.AggregateRow:
        # Concurrent changes of aggregates wait for each other, so the check
        # after the change stays valid.
        number = self._get(name).id
        with self._database.writer() as connection:
            query(connection, number, values, self._clock.now())
            changed = aggregates.get(connection, str(number))
            zone = changed.metadata.get(ZONE_KEY)
            if zone is not None:
                _check_zones(zone, aggregates.values_by_host(
                    connection, ZONE_KEY, changed.hosts))
        return changed


def _check_zones(zone: str, zones: Mapping[str, set[str]]) -> None:
    for host, found in zones.items():
        for other in sorted(found - {zone}):
            raise exception.HostInOtherZone(host=host, zone=other)
