# SPDX-License-Identifier: Apache-2.0
"""An agent with its cell, its driver, and one server to build."""

import threading

from oslo_config import cfg
import sqlalchemy as sa

from cellsched.claims import base as claims_base
from cellsched.claims import memory
from cellsched.compute import agent
from cellsched.compute import guests
from cellsched.compute import progress
from cellsched import context
from cellsched.db.cell import instance_history
from cellsched.db.cell import instances
from cellsched.db.cell import models
from cellsched.network import fake as fake_network
from cellsched import objects
from cellsched.observability.metrics import Metrics
from cellsched.testing import clients
from cellsched.testing import clock
from cellsched.testing import databases
from cellsched.virt import fake
from tests.unit import base
from tests.unit.db import samples

USER = context.member('user', 'project')

DEADLINE_S = 600


class Driver(fake.FakeDriver):
    """Says when a build has come to it; ``error`` is what builds end in."""

    error = None

    #: Called when a server is up.
    when_up = staticmethod(lambda: None)

    def __init__(self, conf, clock):
        super().__init__(conf, clock)
        self.spawned = []
        self.reached = threading.Event()

    def spawn(self, instance, node):
        self.spawned.append((instance.uuid, node))
        self.reached.set()
        super().spawn(instance, node)
        self.when_up()
        if self.error is not None:
            self.destroy(instance)
            raise self.error


class AgentTestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.clock = clock.FakeClock()
        self.cell = self.useFixture(
            databases.CellDatabase(self.clock)).database
        self.claims = memory.MemoryClaims()
        self.provider = samples.uuids(1)[0]
        self.claims.set_inventory(
            self.provider, {'VCPU': claims_base.Inventory(8)})
        self.conductor = clients.FakeConductor()
        self.outcomes = progress.Outcomes()
        self.conf = self.make_conf()
        self.network = fake_network.FakeNetworks(self.conf)
        self.driver = self.make_driver()
        self.agent = self.make_agent('host1')
        [self.uuid] = samples.uuids(1)
        self.instance = samples.instance(self.uuid, build_attempts=1)
        with self.cell.writer() as connection:
            instances.create(connection, [self.instance], self.clock.now())
        self.claims.claim([claims_base.Claim(
            self.uuid, self.provider, {'VCPU': 1})])

    def make_conf(self):
        conf = cfg.ConfigOpts()
        for plugin in fake.FakeDriver, fake_network.FakeNetworks:
            conf.register_opts(plugin.opts(), group=plugin.group)
        conf([], default_config_files=[], default_config_dirs=[])
        return conf

    def make_driver(self):
        return Driver(self.conf, self.clock)

    def make_agent(self, host, driver=None, guests_=None, **options):
        driver = driver or self.driver
        return agent.Agent(
            host, self.cell, self.claims, driver, self.conductor, self.clock,
            self.outcomes, self.network,
            guests_ or guests.Guests(host, self.cell, driver, self.clock),
            Metrics(), **options)

    def build(self, tried=1, hosts=(), by=None, retry=True, spec=None):
        properties = {'limits': {}}
        if retry:
            properties['retry'] = {
                'num_attempts': tried, 'hosts': [['host1', 'node1']]}
        (by or self.agent).build_and_run_instance(
            USER, instance=self.instance, request_spec=spec,
            filter_properties=properties, node='node1', limits={},
            host_list=[objects.Selection(
                service_host=host, nodename=host) for host in hosts])

    def terminate(self, by=None):
        (by or self.agent).terminate_instance(USER, instance=self.instance)

    def put(self, now=samples.LATER, **values):
        """Change the row of the server in a way that no agent does."""
        with self.cell.writer() as connection:
            samples.put(connection, self.uuid, values, now)

    def delete(self):
        """Delete the server as the API does; return who is to be told."""
        with self.cell.writer() as connection:
            if instances.delete(
                    connection, self.uuid, self.clock.now(), host=None):
                self.claims.release([self.uuid])
                return None
            instances.transit(
                connection, self.uuid, 'mark_deleting', self.clock.now())
            return instances.get(connection, self.uuid).host

    @property
    def row(self):
        with self.cell.reader() as connection:
            return connection.execute(
                sa.select(models.instances)
                .where(models.instances.c.uuid == self.uuid)).one()

    @property
    def fault(self):
        with self.cell.reader() as connection:
            return instance_history.latest(
                connection, [self.uuid]).get(self.uuid)

    @property
    def holds(self):
        return bool(self.claims.claims_of([self.uuid]))

    def assertState(self, *expected):
        row = self.row
        self.assertEqual(expected, (row.vm_state, row.task_state, row.host))

    def assertNetworks(self, *hosts):
        """It has networks, set up on these hosts, and its row says so."""
        self.assertEqual({self.uuid: set(hosts)}, self.network.allocated())
        self.assertTrue(self.row.network_allocated)

    def assertNoNetworks(self):
        self.assertEqual({}, self.network.allocated())
        self.assertFalse(self.row.network_allocated)

    def assertGone(self):
        self.assertEqual(('deleted', None), (
            self.row.vm_state, self.row.task_state))
        self.assertNotEqual(0, self.row.deleted)
        self.assertFalse(self.holds)
        self.assertEqual([], self.driver.list_instances())
        self.assertNoNetworks()
