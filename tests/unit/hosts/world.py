# SPDX-License-Identifier: Apache-2.0
"""A small deployment that a host table is read from."""

from concurrent import futures

import fixtures

from cellsched.cells import discovery
from cellsched.cells import gather
from cellsched.cells import registry
from cellsched.cells import target
from cellsched.claims import base as claims_base
from cellsched.claims import memory
from cellsched import context
from cellsched.db.api import host_mappings
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import services
from cellsched.db import session
from cellsched.host_manager import manager
from cellsched.objects import child_providers
from cellsched.testing import clock
from cellsched.testing import databases
from tests.unit.db import samples

CONTEXT = context.admin()

#: Seconds that a cell may take to answer.
TIMEOUT_S = 10.0

#: What is to be done after this time is never done by itself.
FOR_EVER_S = 1e9

#: By how much the clocks of schedulers are ahead.
WRONG_S = 600.0


class Targets(target.Targets):
    """The ways into cells; ``behaviour`` is called first, by cell name."""

    def __init__(self, *args):
        super().__init__(*args)
        self.behaviour = {}

    def target_cell(self, context, cell):
        self.behaviour.get(cell.name, lambda: None)()
        return super().target_cell(context, cell)


class Threads(futures.ThreadPoolExecutor):
    """Threads that query cells, and what they do of it, by cell name."""

    def __init__(self, count):
        super().__init__(count)
        #: The last query of each cell.
        self.queries = {}
        #: Called once, when a cell is read but its query has not ended.
        self.when_read = {}

    def submit(self, function, *cells):
        name = cells[0].name if cells else ''

        def query():
            result = function(*cells)
            self.when_read.pop(name, lambda: None)()
            return result

        self.queries[name] = super().submit(query)
        return self.queries[name]


class World(fixtures.Fixture):
    """Cells with hosts, a claim store, and loaders that read them."""

    def __init__(self, *cells):
        self._names = cells
        self.providers = {}

    def _setUp(self):
        #: That of the databases, by which agents report.
        self.clock = clock.FakeClock()
        #: The scheduler's own.
        self.own_clock = clock.WrongClock(WRONG_S, self.clock)
        self.claims = memory.MemoryClaims()
        self.database = self.useFixture(
            databases.APIDatabase(self.clock)).database
        opened = session.Databases(self.clock)
        self.addCleanup(opened.close)
        self.targets = Targets(opened, None)
        self.threads = Threads(4)
        self.addCleanup(self.threads.shutdown)
        self.cells = {name: self.add_cell(name) for name in self._names}

    def add_cell(self, name):
        url = self.useFixture(databases.CellDatabase()).url
        return samples.map_cell(self.database, samples.cell(
            name, database_connection=url, transport_url='none:///'))

    def add_host(self, cell, host, *nodes, vcpus=8, memory_mb=8192,
                 disk_gb=100, children=None, **inventory):
        """Have an agent report a host; return the uuid of its last node.

        :param children: inventories and traits of child providers, by name
        """
        with self.writer(cell) as connection:
            for node in nodes or [host]:
                uuid = compute_nodes.save(connection, samples.uuids(1)[0],
                                          host, node, self.node_values(
                                              vcpus, memory_mb, disk_gb),
                                          self.clock.now())
                self.providers[node] = uuid
                if children:
                    compute_nodes.save(
                        connection, uuid, host, node, self.node_values(
                            vcpus, memory_mb, disk_gb,
                            providers=self._children(uuid, children)),
                        self.clock.now())
                self.claims.set_inventory(uuid, {
                    'VCPU': claims_base.Inventory(vcpus),
                    'MEMORY_MB': claims_base.Inventory(memory_mb),
                    'DISK_GB': claims_base.Inventory(disk_gb), **inventory})
        self.report(cell, host)
        return uuid

    def _children(self, node, children):
        """Have the inventories of child providers told; return the facts."""
        said = [child_providers.Child(
            child_providers.uuid_of(node, name), name, None,
            frozenset(traits)) for name, (_, traits) in children.items()]
        for each in said:
            self.providers[each.name] = each.uuid
            self.claims.set_inventory(each.uuid, children[each.name][0])
            self.claims.set_traits(each.uuid, each.traits, node)
        return child_providers.dump(said)

    @staticmethod
    def node_values(vcpus, memory_mb, disk_gb, **values):
        return {'vcpus': vcpus, 'vcpus_used': 0, 'memory_mb': memory_mb,
                'memory_mb_used': 0, 'local_gb': disk_gb, 'local_gb_used': 0,
                'hypervisor_type': 'fake', 'hypervisor_version': 1,
                'cpu_info': '', 'cpu_allocation_ratio': 1.0,
                'ram_allocation_ratio': 1.0, 'disk_allocation_ratio': 1.0,
                **values}

    def report(self, cell, host):
        """Have a host say that it is alive."""
        with self.writer(cell) as connection:
            services.report(connection, samples.uuids(1)[0], host,
                            services.COMPUTE, 'compute', self.clock.now())

    def writer(self, cell):
        return self.targets.database(self.cells[cell]).writer()

    def mapped(self, *hosts):
        """Return the names of the cells of hosts."""
        with self.database.reader() as connection:
            found = host_mappings.get_many(connection, hosts)
        return {host: cell.name for host, cell in found.items()}

    def loader(self, interval_s=1.0, kind=manager.HostManager,
               timeout_s=TIMEOUT_S, full_interval_s=FOR_EVER_S, **options):
        cells = registry.CellRegistry(self.database, self.clock, 0)
        return kind(
            self.database, cells,
            gather.Gatherer(
                self.threads, self.targets, self.clock, timeout_s),
            discovery.Discovery(
                self.database, cells, self.targets, self.clock),
            self.claims, self.own_clock,
            manager.RefreshPolicy(
                interval_s, full_interval_s), 'nova', **options)

    def claim(self, host, vcpus, consumer=None):
        """Claim on a host; return the consumer."""
        consumer = consumer or samples.uuids(1)[0]
        self.claims.claim([claims_base.Claim(
            consumer, self.providers[host], {'VCPU': vcpus})])
        return consumer
