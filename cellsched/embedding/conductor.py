# SPDX-License-Identifier: Apache-2.0
"""The conductor that services of other projects embed."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import datetime
from typing import Any
from typing import Self

from oslo_config import cfg
from oslo_utils import uuidutils

from cellsched.cells.maintenance import CellMaintenance
from cellsched.conductor.tasks import build_and_schedule
from cellsched.context import RequestContext
from cellsched.db.api import build_requests
from cellsched.db.api import cell_mappings
from cellsched.db.api import host_mappings
from cellsched.db.api import instance_mappings
from cellsched.db.api import request_specs
from cellsched.db import session
from cellsched.listing import server
from cellsched import objects
from cellsched.quota.base import QuotaDriver
from cellsched.rpc import scheduler as scheduler_rpc
from cellsched.wiring.components import Components
from cellsched.wiring import conductor

#: Fields of a request that schedulers expect to be there.
_UNSET = ('availability_zone', 'image', 'ignore_hosts', 'force_hosts',
          'force_nodes', 'retry', 'limits', 'instance_group')


class Mappings:
    """Reads mappings of the API database, and adds cells to them.

    :param database: the API database
    :param maintenance: what adds cells
    """

    def __init__(
        self, database: session.Database,
        maintenance: CellMaintenance,
    ) -> None:
        self._database = database
        self._maintenance = maintenance

    def cells(self) -> list[objects.CellMapping]:
        """Return every cell, cell0 and disabled ones among them."""
        with self._database.reader() as connection:
            return cell_mappings.list_all(connection)

    def hosts(self, names: Iterable[str]) -> list[objects.HostMapping]:
        """Return the mappings of hosts; unmapped ones are left out."""
        with self._database.reader() as connection:
            found = host_mappings.get_many(connection, names)
        return [objects.HostMapping(host=host, cell_mapping=cell)
                for host, cell in found.items()]

    def instances(
        self, uuids: Iterable[str]
    ) -> dict[str, objects.InstanceMapping]:
        """Return the mappings of servers by uuid; others are left out.

        One that has no cell yet is being placed; one in cell0 could not be
        built.
        """
        with self._database.reader() as connection:
            return instance_mappings.get_many(connection, uuids)

    def create_cell(
        self, name: str, transport_url: str, database_connection: str,
        uuid: str | None = None,
    ) -> objects.CellMapping:
        """Map a cell, whose database has its schema, or gets it later.

        :raises cellsched.exception.CellMappingExists: another cell has one of
            its URLs, its database or its uuid
        :raises cellsched.exception.WrongDatabase: its database is that of
            something else
        :raises cellsched.exception.InvalidField: a URL has braces that are
            not of a template's fields
        :raises cellsched.exception.ConfigurationInvalid: a URL is none that
            can be opened
        """
        return self._create(objects.CellMapping(
            uuid=uuid or uuidutils.generate_uuid(), name=name,
            transport_url=transport_url,
            database_connection=database_connection, disabled=False))

    def create_cell0(self, database_connection: str) -> objects.CellMapping:
        """Map cell0, where the records of what could not be built go.

        :raises cellsched.exception.CellMappingExists: it is mapped, or its
            database is that of a cell
        :raises cellsched.exception.WrongDatabase: as :meth:`create_cell`
        :raises cellsched.exception.InvalidField: as :meth:`create_cell`
        :raises cellsched.exception.ConfigurationInvalid: as
            :meth:`create_cell`
        """
        return self._create(objects.CellMapping(
            uuid=objects.CELL0_UUID, name='cell0', transport_url='none:///',
            database_connection=database_connection, disabled=False))

    def _create(self, mapping: objects.CellMapping) -> objects.CellMapping:
        self._maintenance.create(mapping)
        return mapping


class EmbeddedConductor:
    """Builds servers, each to its one fate, in a process of any service.

    A build that was accepted ends as one server in one cell, or as one record
    in cell0 that says why, or deleted, whatever is killed on the way. That
    holds as long as some process calls the functions of :attr:`periodic`.

    To be made after a process has forked. Methods may be called by several
    threads at a time.

    :param conf: has the options of :func:`.register_opts`
    :param parts: are used instead of its own, and not closed with it
    :raises cellsched.exception.ConfigurationInvalid: names an option that is
        missing or wrong
    :raises cellsched.exception.SchemaOutOfDate: a database lacks its tables
    :raises cellsched.exception.DatabaseUnreachable: one does not answer
    """

    #: The build task.
    task: build_and_schedule.BuildAndSchedule
    #: The client of schedulers.
    scheduler: scheduler_rpc.SchedulerAPI
    #: Cells, and where hosts and servers are.
    mappings: Mappings

    def __init__(
        self, conf: cfg.ConfigOpts,
        parts: Components | None = None,
    ) -> None:
        self.parts = Components(conf) if parts is None else parts
        self._own_parts = parts is None
        try:
            builds = conductor.builds(self.parts)
            self.scheduler = builds.scheduler
            self.task = builds.task
            self._periodic = builds.periodic
            self.mappings = Mappings(
                self.parts.database, CellMaintenance(
                    self.parts.database, self.parts.cells,
                    self.parts.targets, self.parts.clock))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def periodic(self) -> Sequence[tuple[Callable[[], None], float]]:
        """Functions to be called all the time, and seconds between calls.

        Each in a thread of its own: one must not wait for another. They
        renew leases, take up builds that were left lying, tell compute hosts
        again, and release claims that leaked. What they raise while a
        database or a broker is away passes, and they are to be called again.
        """
        return self._periodic

    def accept(
        self, context: RequestContext, names: Mapping[str, str],
        spec: objects.RequestSpec, min_count: int = 1,
    ) -> list[str]:
        """Accept servers; return the uuids of those that are new.

        From then on each comes to its fate, whoever calls :meth:`run` for it
        or dies. To accept again what was accepted changes nothing, so who
        keeps uuids before this may repeat it after a crash.

        :param names: names of the servers, by their uuids
        :param spec: what each of them is to be; project, user and numbers are
            set here
        :param min_count: how many of them must be built for any to be
        :raises cellsched.exception.OverQuota: the project's quota has no room
            for all of them
        """
        return _accept(
            self.parts.database, self.parts.quotas, context, names, spec,
            min_count)

    def run(
        self, context: RequestContext, uuids: Sequence[str]
    ) -> None:
        """Build servers that were accepted; returns when they were cast.

        Those that are gone, or that another conductor builds, are left out.
        What fails of something that passes is tried again by
        :attr:`periodic`.
        """
        self.task.run(context, uuids)

    def get(
        self, context: RequestContext, uuid: str
    ) -> server.Server:
        """Return a server, wherever it is.

        :raises cellsched.exception.InstanceNotFound: there is none
        """
        return self.parts.listing.get(context, uuid)[0]

    def close(self) -> None:
        """Close what was opened here; waits for builds that were begun.

        Nobody may be in one of the other methods, or in what
        :attr:`periodic` names.
        """
        if self._own_parts:
            self.parts.close()


def _accept(
    database: session.Database, quotas: QuotaDriver,
    context: RequestContext, names: Mapping[str, str],
    spec: objects.RequestSpec, min_count: int = 1,
) -> list[str]:
    """Put servers into the API database; return the uuids of new ones.

    :param names: names of the servers, by their uuids
    :raises cellsched.exception.OverQuota: there is no room for all of them
    """
    project_id = context.project_id or ''
    with database.writer() as connection:
        known = instance_mappings.get_many(connection, names)
        uuids = [uuid for uuid in names if uuid not in known]
        if not uuids:
            return []
        quotas.check(connection, context.project_id, context.user_id,
                     spec.flavor, len(uuids), len(uuids))
        now = database.now()
        build_requests.create(connection, [
            objects.BuildRequest(
                instance_uuid=uuid, project_id=project_id,
                instance=_instance(
                    context, uuid, names[uuid], index, spec, now),
                block_device_mappings=None, tags=None, buried=False)
            for index, uuid in enumerate(uuids)], now, min_count)
        request_specs.create(
            connection, _specs(context, spec, uuids), now)
        instance_mappings.create(
            connection, uuids, project_id, context.user_id, now, spec.flavor)
    return uuids


def _instance(
    context: RequestContext, uuid: str, name: str, index: int,
    spec: objects.RequestSpec, now: datetime.datetime,
) -> objects.Instance:
    flavor, image = spec.flavor, spec.get('image')
    return objects.Instance(
        uuid=uuid, project_id=context.project_id, user_id=context.user_id,
        image_ref=image.get('id') if image else None, display_name=name,
        launch_index=index, vm_state='building', task_state='scheduling',
        power_state=0, vcpus=flavor.vcpus, memory_mb=flavor.memory_mb,
        root_gb=flavor.root_gb, ephemeral_gb=flavor.get('ephemeral_gb', 0),
        instance_type_id=flavor.get('id'), created_at=now, flavor=flavor,
        availability_zone=spec.get('availability_zone'))


def _specs(
    context: RequestContext, spec: objects.RequestSpec,
    uuids: list[str],
) -> list[dict[str, Any]]:
    """Return the primitives of what is asked for each server."""
    primitive = spec.obj_to_primitive()
    return [{**primitive, 'nova_object.data': {
        **dict.fromkeys(_UNSET), 'is_bfv': False, 'scheduler_hints': {},
        **primitive['nova_object.data'], 'project_id': context.project_id,
        'user_id': context.user_id, 'num_instances': len(uuids),
        'instance_uuid': uuid}} for uuid in uuids]
