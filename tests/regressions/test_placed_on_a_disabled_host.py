# SPDX-License-Identifier: Apache-2.0
"""A request is decided with what operators have set before it began."""

import uuid

from cellsched.cells import maintenance
from cellsched import exception
from cellsched import plugins
from cellsched.standalone import deployment
from cellsched.testing import builders
from cellsched.wiring import services
from tests.functional import base

COMPUTE = 'nova-compute'

#: An interval that no test reaches: nothing is read but for the reason that
#: is tested.
NEVER_S = 3600

#: Two schedulers, as a change reaches each of them, and the other drivers.
DRIVERS = ('filter_scheduler', 'filter_scheduler', 'provider_scheduler')

FILTERS = ('ComputeFilter', 'AvailabilityZoneFilter',
           'AggregateInstanceExtraSpecsFilter',
           'AggregateMultiTenancyIsolation')

SSD = {'aggregate_instance_extra_specs:ssd': 'true'}


class TestDefaultInterval(base.TestCase):

    def test_disabled_host_gets_no_server_and_an_enabled_host_does(self):
        self.deploy({'cell1': ['a1']}, scheduler={'refresh_interval': 1.0},
                    cells={'refresh_interval': 10.0})
        self.built()
        states = []
        for disabled in (True, False) * 3:
            self.world.api.services.set(
                base.ADMIN, 'a1', COMPUTE, disabled=disabled)
            states += [each.status for each in self.built()]

        self.assertEqual(['ERROR', 'ACTIVE'] * 3, states)


class ChangeCase(base.TestCase):
    """Selections by drivers that read nothing by themselves.

    The host ``a1`` is the best one of two.
    """

    def setUp(self):
        super().setUp()
        self.deploy(
            {'cell1': [deployment.DeployedHost(
                'a1', vcpus=1000, memory_mb=2 ** 20)],
             'cell2': [deployment.DeployedHost('b1', vcpus=100)]},
            {'fast': {'ssd': 'true'}},
            scheduler={'refresh_interval': NEVER_S},
            cells={'refresh_interval': NEVER_S},
            filter_scheduler={'enabled_filters': FILTERS})
        self.api = self.world.api
        self.make_drivers(*DRIVERS)
        # A scheduler that reads a host maps it.
        self.assertEqual({'a1'}, {*self.chosen()})

    def make_drivers(self, *names):
        self.drivers = []
        for name in names:
            parts = services.Components(self.world.conf('api'))
            self.addCleanup(parts.close)
            self.drivers.append(
                plugins.load(plugins.DRIVERS, name)(parts.conf, parts))

    def chosen(self, **fields):
        """Return the host that each driver selects, or None."""
        return [self.select(driver, **fields) for driver in self.drivers]

    def select(self, driver, **fields):
        instance = str(uuid.uuid4())
        try:
            [[first, *_]] = driver.select_destinations(
                base.USER, builders.request(instance_uuid=instance, **fields),
                [instance], 0)
        except exception.NoValidHost:
            return None
        return first.service_host

    def check(self, call, undo, other='b1', **fields):
        """Check the next selections after a call, and after another one.

        :param other: the host that is selected after the first call
        """
        count = len(self.drivers)
        self.assertEqual(['a1'] * count, self.chosen(**fields))
        call()
        self.assertEqual([other] * count, self.chosen(**fields))
        undo()
        self.assertEqual(['a1'] * count, self.chosen(**fields))


class TestServices(ChangeCase):

    def set(self, **changes):
        return lambda: self.api.services.set(
            base.ADMIN, 'a1', COMPUTE, **changes)

    def update_cell(self, disabled):
        parts = self.api.parts
        cell = self.cells()['cell1']
        return lambda: maintenance.CellMaintenance(
            parts.database, parts.cells, parts.targets, parts.clock).update(
                cell.uuid, {'disabled': disabled})

    def test_changes_of_services_and_cells_hold(self):
        changes = [
            (self.set(disabled=True), self.set(disabled=False)),
            (self.set(forced_down=True), self.set(forced_down=False)),
            (self.update_cell(True), self.update_cell(False))]
        for call, undo in changes:
            self.check(call, undo)
        # This driver selects at random.
        self.make_drivers('chance_scheduler')
        for call, undo in changes:
            self.check(call, undo, None, ignore_hosts=['b1'])

    def test_unmapped_or_deleted_host_gets_no_server(self):
        for host in 'a1', 'b1':
            # Its next report would map it again.
            self.world.agents[host].stop()
        parts = self.api.parts
        cells = maintenance.CellMaintenance(
            parts.database, parts.cells, parts.targets, parts.clock)
        self.api.services.set(base.ADMIN, 'b1', COMPUTE, forced_down=True)
        [service] = self.api.services.list(base.ADMIN, host='b1').services

        self.api.services.delete(base.ADMIN, service.uuid)

        self.assertEqual({None}, {*self.chosen(ignore_hosts=['a1'])})
        # A scheduler that finds no host maps a host that is not mapped.
        hosts = self.drivers[0].loader
        hosts.follow(base.ADMIN)
        self.assertEqual(['a1'], list(hosts.table['host']))
        cells.delete_host(self.cells()['cell1'].uuid, 'a1')
        hosts.follow(base.ADMIN)
        self.assertEqual([], list(hosts.table['host']))


class TestAggregates(ChangeCase):

    def setUp(self):
        super().setUp()
        self.api.aggregates.add_hosts(base.ADMIN, 'fast', ['a1'])

    def set(self, **metadata):
        return lambda: self.api.aggregates.set_metadata(
            base.ADMIN, 'fast', metadata)

    def test_changes_of_aggregates_and_their_providers_apply(self):
        aggregates = self.api.aggregates
        # The members, and the metadata.
        self.check(
            lambda: aggregates.remove_hosts(base.ADMIN, 'fast', ['a1']),
            lambda: aggregates.add_hosts(base.ADMIN, 'fast', ['a1']),
            None, extra_specs=SSD)
        self.check(self.set(ssd='false'), self.set(ssd='true'), None,
                   extra_specs=SSD)
        self.check(self.set(filter_tenant_id='other'),
                   self.set(filter_tenant_id=None))
        # The zone.
        self.set(availability_zone='east')()
        self.check(self.set(availability_zone='west'),
                   self.set(availability_zone='east'), None,
                   availability_zone='east')
        # An aggregate that is deleted.
        self.check(
            lambda: aggregates.delete(base.ADMIN, 'fast'),
            lambda: (aggregates.create(base.ADMIN, 'fast', {'ssd': 'true'}),
                     aggregates.add_hosts(base.ADMIN, 'fast', ['a1'])),
            None, extra_specs=SSD)
        # A provider that its hosts share.
        providers = self.api.providers
        providers.create(
            base.ADMIN, 'pool', 'fast', {'CUSTOM_GB': {'total': 1000}},
            ['CUSTOM_RAID'])
        raid = {'resources:CUSTOM_GB': '1', 'trait:CUSTOM_RAID': 'required'}
        self.check(
            lambda: providers.update(
                base.ADMIN, 'pool', remove_traits=['CUSTOM_RAID']),
            lambda: providers.update(
                base.ADMIN, 'pool', add_traits=['CUSTOM_RAID']),
            None, extra_specs=raid)
        self.check(
            lambda: providers.update(
                base.ADMIN, 'pool', inventories={'CUSTOM_GB': None}),
            lambda: providers.update(
                base.ADMIN, 'pool', inventories={'CUSTOM_GB': {'total': 500}}),
            None, extra_specs=raid)
