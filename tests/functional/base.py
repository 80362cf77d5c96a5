# SPDX-License-Identifier: Apache-2.0
"""The base of the stories: a deployment, and questions about it."""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import logging
from typing import Any
import uuid

import futurist
import sqlalchemy as sa

from cellsched.audit import auditor
from cellsched.cells import target
from cellsched.claims import base as claims_base
from cellsched import clock
from cellsched.conductor import recovery
from cellsched.conductor.tasks import build_and_schedule
from cellsched import context
from cellsched.db.api import models as api_models
from cellsched.db.api import operator_changes
from cellsched.db.cell import models as cell_models
from cellsched import exception
from cellsched.listing import server
from cellsched import objects
from cellsched.rpc import scheduler as scheduler_rpc
from cellsched.standalone import deployment
from cellsched.testing.clock import WrongClock
from cellsched.wiring import services
from tests.unit import base

#: Until a story that hangs is broken off.
TIMEOUT_S = 900

ADMIN = context.RequestContext(
    user_id='user', project_id='project', is_admin=True)

USER = context.member('user', 'project')

#: What a server of the flavor ``small`` takes.
SMALL = {'VCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 10}

CLOCK = clock.Clock()

#: Options of ``[scheduler]`` for stories about what hosts and cells report.
#: Otherwise a request may meet the report before.
READ_EACH_TIME = {'refresh_interval': 0}


def paced(
    options: Mapping[str, Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
    """Return options with which a story decides when work is resumed.

    A story takes a database away by a change of its mapping, which each
    service has to meet at once. The schedulers have the interval of
    production. What the options say otherwise goes first.
    """
    return {**options, **{
        group: {**own, **options.get(group, {})}
        for group, own in (
            ('cells', {'refresh_interval': 0}),
            ('conductor', {'recovery_interval': 3600,
                           'cast_check_interval': 3600}))}}


class TestCase(base.TestCase):
    """A story, in cells of its own.

    ``deploy`` comes first. Flavors are ``small`` and ``huge``, which takes
    more memory than a host has unless that is said.
    """

    #: Returns the URL of a database by its name, if it is no file of SQLite's.
    database_url: Callable[[str], str] | None = None

    timeout_s = TIMEOUT_S

    world: deployment.Deployment

    def setUp(self) -> None:
        super().setUp()
        # What happened is told at this level.
        logger = logging.getLogger('cellsched')
        self.addCleanup(logger.setLevel, logger.level)
        logger.setLevel(logging.INFO)

    def deploy(
        self, cells: Mapping[str, Iterable[str | deployment.DeployedHost]], /,
        aggregates: Mapping[str, Mapping[str, str]] | None = None,
        reached: Callable[[str], None] = lambda step: None,
        **options: Mapping[str, Any],
    ) -> None:
        """Start a deployment of these cells, with these options.

        :param reached: is told what step of a task was done
        """
        self.world = deployment.Deployment(
            self.temporary_directory(), [
                deployment.DeployedCell(name, [
                    deployment.DeployedHost(host)
                    if isinstance(host, str) else host
                    for host in hosts])
                for name, hosts in cells.items()],
            aggregates, paced(options), reached=reached,
            database_url=self.database_url)
        self.world.start()
        self.addCleanup(self.world.stop)
        self.world.api.flavors.create(ADMIN, 'small', 1, 512, 10)
        self.world.api.flavors.create(ADMIN, 'huge', 1, 131072, 10)

    # What users do.

    def create(
        self, name: str = 'server', flavor: str = 'small', **wishes: Any
    ) -> list[str]:
        """Create servers; return their uuids."""
        return self.world.api.servers.create(USER, name, flavor, **wishes)

    def built(self, *args: Any, **wishes: Any) -> list[server.Server]:
        """Create servers; return them once each has its fate."""
        return self.settled(self.create(*args, **wishes))

    def get(self, uuid: str) -> server.Server:
        return self.world.api.servers.get(ADMIN, uuid)

    def listed(self) -> list[str]:
        """Return the uuids of the servers that a listing shows."""
        page = self.world.api.servers.list(USER)
        return [found.uuid for found in page.servers]

    def delete(self, uuid: str) -> None:
        self.world.api.servers.delete(USER, uuid)

    def unheard(self) -> services.API:
        """Return an API whose messages get lost on their way."""
        conf = self.world.conf('api')
        conf.set_override('transport_url', f'local://{uuid.uuid4().hex}/lost')
        api = services.api(conf)
        self.addCleanup(api.close)
        return api

    # Waiting.

    def until(self, true: Callable[[], Any], what: str) -> Any:
        """Wait for something; return it."""
        deadline = CLOCK.monotonic() + TIMEOUT_S / 2
        while not (found := true()):
            self.assertLess(CLOCK.monotonic(), deadline,
                            f'waiting in vain until {what}')
            CLOCK.sleep(0.02)
        return found

    def soon(self, check: Callable[[], None]) -> None:
        """Check until it holds: what is given back is given back last."""
        deadline = CLOCK.monotonic() + TIMEOUT_S / 2
        while True:
            try:
                return check()
            except AssertionError:
                if CLOCK.monotonic() > deadline:
                    raise
            CLOCK.sleep(0.02)

    def settled(self, uuids: Iterable[str]) -> list[server.Server]:
        """Return servers once each has its fate."""
        def settled(uuid: str) -> server.Server | None:
            found = self.get(uuid)
            return found if found.status != 'BUILD' else None

        return [self.until(lambda: settled(uuid), f'{uuid} has its fate')
                for uuid in uuids]

    def gone(self, *uuids: str) -> None:
        """Wait until servers are gone."""
        def gone(uuid: str) -> bool:
            try:
                self.get(uuid)
            except exception.InstanceNotFound:
                return True
            return False

        for each in uuids:
            self.until(lambda: gone(each), f'{each} is gone')

    # What operators see.

    def cells(self) -> dict[str, objects.CellMapping]:
        """Return the cells by name, cell0 among them."""
        cells = self.world.api.parts.cells
        cells.refresh()
        return {cell.name: cell for cell in cells.all()}

    def query(self, cell: str, statement: sa.Select[Any]) -> Sequence[Any]:
        """Return what a cell's database answers."""
        # To read the cells again takes longer than most queries.
        known = {each.name: each for each in self.world.api.parts.cells.all()}
        mapping = known.get(cell) or self.cells()[cell]
        targets = self.world.api.parts.targets
        with targets.database(mapping).reader() as connection:
            return connection.execute(statement).all()

    def rows(self, uuid: str) -> dict[str, Any]:
        """Return an instance's rows that are not deleted, by cell."""
        table = cell_models.instances
        statement = sa.select(table).where(
            table.c.uuid == uuid, table.c.deleted == 0)
        return {cell: row for cell in self.cells()
                for row in self.query(cell, statement)}

    def mapped(self, uuid: str) -> str | None:
        """Return the cell that an instance is mapped to."""
        mappings = api_models.instance_mappings
        cells = api_models.cell_mappings
        return self._scalar(
            sa.select(cells.c.name)
            .join(mappings, mappings.c.cell_id == cells.c.id)
            .where(mappings.c.instance_uuid == uuid))

    def requested(self, uuid: str) -> bool:
        """Return whether there is a build request of an instance."""
        table = api_models.build_requests
        return bool(self._scalar(
            sa.select(table.c.id).where(table.c.instance_uuid == uuid)))

    def held(self, uuid: str) -> list[claims_base.Claim]:
        """Return what an instance has claimed."""
        return self.world.api.parts.claims.claims_of([uuid]).get(uuid, [])

    def provider(self, cell: str, host: str) -> str:
        """Return the uuid of a host's compute node."""
        table = cell_models.compute_nodes
        [[found]] = self.query(
            cell, sa.select(table.c.uuid).where(table.c.host == host))
        return found

    def driver(self, host: str) -> Any:
        """Return the virtualisation driver of a host."""
        return self.world.agents[host].parts.driver

    def _scalar(self, statement: sa.Select[Any]) -> Any:
        with self.world.api.parts.database.reader() as connection:
            return connection.execute(statement).scalar()

    # What goes wrong.

    def take_down(self, cell: str) -> None:
        """Let nobody above the cells reach a cell's database any more."""
        self._set_database(
            cell, f'sqlite:///{self.world.directory}/gone/{cell}.sqlite')

    def bring_back(self, cell: str) -> None:
        self._set_database(
            cell, f'sqlite:///{self.world.directory}/{cell}.sqlite')

    def _set_database(self, cell: str, url: str) -> None:
        table = api_models.cell_mappings
        # As a command does it, so that the next request meets it.
        with operator_changes.known(
                self.world.api.parts.database, CLOCK) as connection:
            connection.execute(
                sa.update(table).where(table.c.name == cell)
                .values(database_connection=url))
        self.world.api.parts.cells.refresh()

    # Conductors beside the deployment's own.

    def task(
        self, kind: type = build_and_schedule.BuildAndSchedule,
        late_s: float = 0, **parts: Any,
    ) -> Any:
        """Return the task as another conductor would run it."""
        mine, later = self.world.api.parts, self.later(late_s)
        return kind(**{
            'database': later.database,
            'targets': target.Targets(later.databases, mine.transports),
            'cell0': mine.cell0,
            'scheduler': scheduler_rpc.SchedulerAPI(
                mine.transports.get(), mine.database.timestamp),
            'compute': mine.compute, 'claims': mine.claims,
            'quotas': mine.quotas, 'clock': WrongClock(late_s),
            'host': 'other', 'limits': build_and_schedule.TaskLimits(60),
            **parts})

    def recover(self, late_s: float = 0, **parts: Any) -> None:
        """Take up what lies about, as a conductor does at that time."""
        recovery.Recoverer(
            self.later(late_s).database, self.task(late_s=late_s, **parts),
            60, futurist.SynchronousExecutor()).run()

    def later(self, late_s: float, name: str = 'api') -> services.Components:
        """Return the parts of a process in a deployment that lives later."""
        parts = services.Components(self.world.conf(name), WrongClock(late_s))
        self.addCleanup(parts.close)
        return parts

    # The invariants.

    def assertIsIn(self, cell: str, uuid: str) -> None:
        """The server is in this cell, in no other, and nobody builds it."""
        self.assertEqual({cell}, set(self.rows(uuid)))
        self.assertEqual(cell, self.mapped(uuid))
        self.assertFalse(self.requested(uuid))

    def assertHoldsNothing(self, uuid: str) -> None:
        """The server has given back what it had claimed."""
        self.soon(lambda: self.assertEqual([], self.held(uuid)))

    def assertLeftNothing(self, uuid: str) -> None:
        """There is no trace of the server that anybody could meet."""
        def check() -> None:
            self.assertEqual({}, self.rows(uuid))
            self.assertFalse(self.requested(uuid))
            self.assertEqual([], self.held(uuid))
            self.assertNotIn(uuid, self.listed())

        self.soon(check)

    def release_leaked(self) -> None:
        """Do what a conductor does of its own, twice."""
        [run] = [function for service in self.world._services
                 for function, _, _ in service.periodic
                 if isinstance(getattr(function, '__self__', None),
                               auditor.LeakedClaims)]
        for _ in range(2):
            run()

    def assertClaimsMatch(self) -> None:
        """What is claimed is what the servers on the hosts take."""
        self.soon(lambda: self.assertEqual(self._taken(), self._claimed()))

    def _taken(self) -> dict[str, Any]:
        """Return what servers take, by compute node."""
        table, nodes = cell_models.instances, cell_models.compute_nodes
        devices = cell_models.block_device_mapping
        on_volume = sa.exists().where(
            devices.c.instance_uuid == table.c.uuid, devices.c.deleted == 0,
            devices.c.boot_index == 0,
            devices.c.destination_type == 'volume').label('on_volume')
        taken: dict[str, Any] = collections.defaultdict(collections.Counter)
        for cell in self.cells():
            for row in self.query(
                    cell, sa.select(
                        table, nodes.c.uuid.label('provider'), on_volume)
                    .join(nodes, nodes.c.host == table.c.host)
                    .where(table.c.deleted == 0)):
                taken[row.provider].update({
                    'VCPU': row.vcpus, 'MEMORY_MB': row.memory_mb,
                    'DISK_GB': 0 if row.on_volume else row.root_gb})
        # A unary plus leaves out amounts of zero.
        return {node: dict(+amounts) for node, amounts in taken.items()}

    def _claimed(self) -> dict[str, Any]:
        """Return what is claimed, by compute node."""
        claimed = {
            usage.provider: {name: amount for name, amount
                             in usage.used.items() if amount}
            for usage in self.world.api.parts.claims.usages().usages}
        return {node: used for node, used in claimed.items() if used}
