# SPDX-License-Identifier: Apache-2.0
"""The host table against a model."""

import copy

import hypothesis
from hypothesis import stateful
from hypothesis import strategies

from cellsched.hosts import columns
from cellsched.hosts import table
from cellsched.testing import builders
from tests import profile
from tests.unit import base
from tests.unit.hosts import allocation


class TestReading(base.TestCase):

    def setUp(self):
        super().setUp()
        self.table = table.HostTable()
        self.table.put(['x', 'y'], {'vcpus_used': [1, 2], 'cell': 'c'})

    def test_column_cannot_be_written(self):
        allocation.take(self.table, 0, {'CUSTOM_X': 1})

        for name in self.table.names:
            error = self.assertRaises(
                ValueError, self.table[name].__setitem__, 0, 0)
            self.assertIn('read-only', str(error))

    def test_snapshot_is_not_changed_by_later_writes(self):
        column, before = self.table['vcpus_used'], self.table.snapshot

        self.table.put(['x'], {'vcpus_used': 7})

        self.assertEqual([7, 2], self.table['vcpus_used'].tolist())
        self.assertEqual([1, 2], column.tolist())
        self.assertEqual(before.version + 1, self.table.snapshot.version)
        self.assertIs(before.columns['cell'],
                      self.table.snapshot.columns['cell'])

    def test_unknown_column_is_a_key_error(self):
        self.assertRaises(KeyError, lambda: self.table['nonsense'])
        self.assertNotIn('nonsense', self.table)

    def test_column_without_codes_is_an_error(self):
        error = self.assertRaises(KeyError, self.table.encoding, 'vcpus_used')

        self.assertEqual("The host table has no column 'vcpus_used' of "
                         'codes.', str(error))
        error = self.assertRaises(KeyError, self.table.encoding, 'trait')
        self.assertIn('did you mean traits?', str(error))

    def test_row_is_the_position_of_the_node(self):
        self.assertEqual([1, 0, None],
                         [self.table.row(uuid) for uuid in 'yxz'])

    def test_views_share_columns_and_have_a_time_each(self):
        first = self.table.view(5.0)
        second = self.table.view(9.0, {'i': 'y'})

        self.assertEqual((5.0, 9.0), (first.now, second.now))
        self.assertEqual([], first.rows_of(['i']).tolist())
        self.assertEqual([1], second.rows_of(['i']).tolist())
        self.assertTrue(first.is_whole)
        self.assertIs(first['vcpus_used'], second['vcpus_used'])

    def test_reused_views_count_each_reservation_once(self):
        views = [self.table.view(0.0) for _ in range(3)]
        for hosts in views:
            hosts.take(0, {'VCPU': 1})
            self.table.reserve(hosts)
        for hosts in views:
            self.table.reuse(hosts)

        for hosts in [self.table.view(0.0) for _ in views]:
            self.assertEqual([4, 2], hosts['vcpus_used'].tolist())


class TestKept(base.TestCase):
    """What is kept of a table, until something lasting changes."""

    def setUp(self):
        super().setUp()
        self.table = table.HostTable()
        self.one, self.other = builders.aggregate(1), builders.aggregate(2)
        self.same = {'host': ['a', 'b'], 'nodename': 'n', 'cell': ['c', 'd'],
                     'aggregates': [(self.one,), ()]}
        self.table.put(['x', 'y'], self.same)
        self.table.snapshot.kept['key'] = 'made'

    def test_cache_is_kept_by_usage_and_unchanged_values(self):
        self.table.put(['x', 'y'], self.same | {
            'num_io_ops': 3, 'availability_zone': 'z', 'stats': ['s', 't']})
        self.table.set_usage('x', {'VCPU': 4}, {}, 1)
        allocation.take(self.table, 0, {'VCPU': 1})
        self.table.expire(9e9)
        self.table.drop(['nobody'])

        self.assertEqual({'key': 'made'}, self.table.snapshot.kept)

    def test_cache_is_cleared_by_a_lasting_change(self):
        for changed in ({'host': ['a', 'c']}, {'nodename': 'm'},
                        {'cell': 'c'}, {'aggregates': [(self.other,), ()]},
                        {'supported_instances': [(('x86_64',),)] * 2}):
            self.table.snapshot.kept['key'] = 'made'
            self.table.put(['x', 'y'], changed)
            self.assertEqual({}, self.table.snapshot.kept, changed)

    def test_cache_is_cleared_by_added_and_removed_hosts(self):
        self.table.put(['z'], {})
        self.assertEqual({}, self.table.snapshot.kept)

        self.table.snapshot.kept['key'] = 'made'
        self.table.drop(['x'])
        self.assertEqual({}, self.table.snapshot.kept)


class TestDroppedHost(base.TestCase):

    def setUp(self):
        super().setUp()
        self.hosts = table.HostTable()
        self.hosts.put(['x', 'y'], {})
        view = self.hosts.view(0.0)
        view.take(0, {})
        self.allocations = self.hosts.reserve(view)

    def instances_of_returned_host(self):
        self.hosts.put(['x'], {})
        view = self.hosts.view(0.0)
        return view['num_instances'][view.row('x')]

    def test_confirmed_allocation_is_removed_with_its_host(self):
        # The usage may include the allocation, so it stays in the overlay.
        self.hosts.set_usage('x', {}, {}, 0)
        self.hosts.confirm(self.allocations)

        self.hosts.drop(['x'])

        self.assertEqual(0, self.instances_of_returned_host())

    def test_allocation_confirmed_later_is_not_counted_on_return(self):
        self.hosts.drop(['x'])

        self.assertEqual(['x'], self.hosts.confirm(self.allocations))
        self.assertEqual(0, self.instances_of_returned_host())


_UUIDS = strategies.sampled_from('abcdefgh')
_AMOUNTS = strategies.dictionaries(
    strategies.sampled_from(['VCPU', 'MEMORY_MB', 'DISK_GB', 'CUSTOM_X']),
    strategies.integers(0, 50))
_READ = ('availability_zone', 'vcpus_used', 'unreserved_ram_mb',
         'free_ram_mb', 'num_instances', 'num_io_ops')


class TableMachine(stateful.RuleBasedStateMachine):
    """A table and a dict of dicts, done the same to."""

    def __init__(self):
        super().__init__()
        self.table = table.HostTable()
        self.model = {}
        #: What is noted, and neither confirmed nor undone.
        self.open = []

    @stateful.rule(hosts=strategies.dictionaries(
        _UUIDS, strategies.tuples(
            strategies.sampled_from(['', 'east', 'west']),
            strategies.integers(0, 9000))))
    def put(self, hosts):
        self.table.put(list(hosts), {
            'availability_zone': [zone for zone, _ in hosts.values()],
            'unreserved_ram_mb': [ram for _, ram in hosts.values()]})
        for uuid, (zone, ram) in hosts.items():
            new = dict.fromkeys(_READ, 0) | {'available': {}}
            self.model.setdefault(uuid, new).update(
                availability_zone=zone, unreserved_ram_mb=ram)

    @stateful.rule(uuids=strategies.lists(_UUIDS))
    def drop(self, uuids):
        self.table.drop(uuids)
        for uuid in uuids:
            self.model.pop(uuid, None)

    @stateful.rule(uuid=_UUIDS, capacity=_AMOUNTS, used=_AMOUNTS,
                   consumers=strategies.integers(0, 9))
    def set_usage(self, uuid, capacity, used, consumers):
        self.table.set_usage(uuid, capacity, used, consumers)
        if uuid in self.model:
            host = self.model[uuid]
            host['available'] = {
                resource: capacity.get(resource, 0) - used.get(resource, 0)
                for resource in {*capacity, *used}}
            host['vcpus_used'] = used.get('VCPU', 0)
            host['free_ram_mb'] = (
                host['unreserved_ram_mb'] - used.get('MEMORY_MB', 0))
            host['num_instances'] = consumers

    @stateful.rule(uuid=_UUIDS, resources=_AMOUNTS)
    def note(self, uuid, resources):
        row = self.table.row(uuid)
        if row is not None:
            hosts = self.table.view(0.0)
            hosts.take(row, resources)
            self.open.append((uuid, resources, self.table.reserve(hosts)))
            self.table.reuse(hosts)

    @stateful.precondition(lambda self: self.open)
    @stateful.rule(place=strategies.integers(0, 9))
    def undo(self, place):
        self.table.rollback(self.open.pop(place % len(self.open))[2])

    @stateful.precondition(lambda self: self.open)
    @stateful.rule(place=strategies.integers(0, 9))
    def confirm(self, place):
        uuid, resources, allocations = self.open.pop(place % len(self.open))
        self.table.confirm(allocations)
        # It goes into what the host has when that is next written.
        if uuid in self.model:
            add(self.model[uuid], resources)

    @stateful.invariant()
    def same(self):
        assert len(self.table) == len(self.model)
        assert set(self.table['uuid']) == set(self.model)
        hosts = self.table.view(0.0)
        model = copy.deepcopy(self.model)
        for uuid, resources, _ in self.open:
            if uuid in model:
                add(model[uuid], resources)
        for uuid, host in model.items():
            row = hosts.row(uuid)
            assert hosts['uuid'][row] == uuid
            for name in _READ:
                value = hosts[name][row]
                if hosts.kind(name) == columns.CODED:
                    value = hosts.value(name, int(value))
                assert value == host[name], (name, value, host[name])
            for resource in ('VCPU', 'MEMORY_MB', 'DISK_GB', 'CUSTOM_X'):
                assert (hosts.available(resource)[row]
                        == host['available'].get(resource, 0)), resource
        self.table.reuse(hosts)


def add(host, resources):
    """Count one more instance in the model of a host."""
    for resource, amount in resources.items():
        host['available'][resource] = (
            host['available'].get(resource, 0) - amount)
    host['vcpus_used'] += resources.get('VCPU', 0)
    host['free_ram_mb'] -= resources.get('MEMORY_MB', 0)
    host['num_instances'] += 1
    host['num_io_ops'] += 1


class TestTableAgainstModel(base.TestCase):

    def test_table_has_the_content_of_a_dict(self):
        stateful.run_state_machine_as_test(
            TableMachine, settings=hypothesis.settings(
                profile.few_examples, stateful_step_count=20))


class TestPending(base.TestCase):

    def setUp(self):
        super().setUp()
        self.pending = table.InflightBuilds()

    def begin(self, **times):
        for uuid, begun in times.items():
            for time in begun:
                self.pending.add(uuid, time)

    def expired(self, before):
        return list(self.pending.expire(before))

    def test_build_expires_once(self):
        self.begin(a=[1.0], b=[2.0])

        self.assertEqual(['a'], self.expired(2.0))
        self.assertEqual(['b'], self.expired(9.0))
        self.assertEqual([], self.expired(99.0))
        self.assertEqual({}, self.pending._times)

    def test_each_build_of_a_host_has_its_time(self):
        self.begin(a=[1.0, 1.0, 5.0])

        self.assertEqual(['a', 'a'], self.expired(5.0))
        self.assertEqual(['a'], self.expired(5.1))

    def test_reported_host_has_no_pending_builds(self):
        self.begin(a=[1.0], b=[1.0])

        self.pending.forget(['a', 'nobody'])

        self.assertEqual(['b'], self.expired(9.0))

    def test_build_after_a_report_has_its_own_time(self):
        self.begin(a=[1.0])
        self.pending.forget(['a'])
        self.begin(a=[5.0])

        self.assertEqual([], self.expired(5.0))
        self.assertEqual(['a'], self.expired(9.0))
