# SPDX-License-Identifier: Apache-2.0
"""The host table."""

import hypothesis
from hypothesis import stateful
from hypothesis import strategies
import testtools

from cellsched.hosts import columns
from cellsched.hosts import table
from cellsched.testing import builders
from tests.unit import base


class TestReading(base.TestCase):

    def test_column_cannot_be_written(self):
        hosts = builders.hosts(2)

        for name in hosts.names:
            with testtools.ExpectedException(ValueError):
                hosts[name][0] = 0

    def test_reading_does_not_stop_the_writer(self):
        hosts = builders.hosts(vcpus_used=[1, 2])
        hosts['vcpus_used']

        hosts.put([hosts['uuid'][0]], {'vcpus_used': 7})

        self.assertEqual([7, 2], hosts['vcpus_used'].tolist())

    def test_unknown_column_is_a_key_error(self):
        hosts = builders.hosts()

        self.assertRaises(KeyError, lambda: hosts['nonsense'])
        self.assertNotIn('nonsense', hosts)

    def test_unknown_resource_has_no_room(self):
        self.assertEqual([0, 0], builders.hosts(2).room('CUSTOM_X').tolist())

    def test_code_and_text_are_each_others_reverse(self):
        hosts = builders.hosts(availability_zone=['b', 'a', 'b'])

        codes = hosts['availability_zone'].tolist()
        self.assertEqual(codes[0], codes[2])
        self.assertEqual(
            ['b', 'a', 'b'],
            [hosts.text('availability_zone', code) for code in codes])
        self.assertEqual(codes[1], hosts.code('availability_zone', 'a'))

    def test_text_that_no_host_has_matches_no_host(self):
        hosts = table.HostTable()
        hosts.put(['x'], {'host': 'x'})

        self.assertNotIn(hosts.code('cell', 'y'), hosts['cell'])
        self.assertEqual('', hosts.text('cell', int(hosts['cell'][0])))
        self.assertEqual('', hosts.text('cell', 99))

    def test_cells_are_uuids_by_code(self):
        hosts = builders.hosts(cell=['b', 'a', 'b'])

        self.assertEqual(['b', 'a', 'b'],
                         [hosts.cells[code] for code in hosts['cell']])

    def test_located_instances_lead_to_rows(self):
        hosts = builders.hosts(3, located={'i': 2, 'j': 0, 'k': 2})

        self.assertEqual([0, 2],
                         hosts.rows_of(['k', 'i', 'j', 'other']).tolist())
        self.assertEqual([], hosts.rows_of([]).tolist())

    def test_view_has_its_own_time_and_instances(self):
        hosts = builders.hosts(2, now=5.0)
        view = hosts.view(9.0, {'i': hosts['uuid'][1]})

        self.assertEqual((5.0, 9.0), (hosts.now, view.now))
        self.assertEqual([], hosts.rows_of(['i']).tolist())
        self.assertEqual([1], view.rows_of(['i']).tolist())

    def test_view_follows_what_is_taken(self):
        hosts = builders.hosts(2)
        view = hosts.view(9.0)

        hosts.take(1, {'VCPU': 3, 'CUSTOM_X': 1})

        self.assertEqual([0, 3], view['vcpus_used'].tolist())
        self.assertEqual([0, -1], view.room('CUSTOM_X').tolist())


class TestWriting(base.TestCase):

    def test_new_host_has_defaults(self):
        hosts = table.HostTable()
        hosts.put(['x'], {})

        for column in columns.STANDARD:
            if column.name != 'uuid':
                self.assertEqual([column.default],
                                 hosts[column.name].tolist(), column.name)

    def test_column_that_is_left_out_stays(self):
        hosts = table.HostTable()
        hosts.put(['x', 'y'], {'vcpus_total': [1, 2], 'host': 'h'})

        hosts.put(['y'], {'vcpus_used': [9]})

        self.assertEqual([1, 2], hosts['vcpus_total'].tolist())
        self.assertEqual([0, 9], hosts['vcpus_used'].tolist())
        self.assertEqual(['h', 'h'], hosts['host'].tolist())

    def test_host_put_twice_at_once_has_one_row(self):
        hosts = table.HostTable()

        hosts.put(['x', 'y', 'x'], {'vcpus_total': [1, 2, 3]})

        self.assertEqual(['x', 'y'], hosts['uuid'].tolist())
        self.assertEqual([3, 2], hosts['vcpus_total'].tolist())

    def test_room_can_be_put(self):
        hosts = table.HostTable()

        hosts.put(['x', 'y'], {'room:CUSTOM_X': [1, 2]})

        self.assertEqual([1, 2], hosts.room('CUSTOM_X').tolist())

    def test_column_of_a_plugin_is_kept(self):
        rack = columns.Column('rack', 'int32', -1, 'number of the rack')
        hosts = table.HostTable((*columns.STANDARD, rack))

        hosts.put(['x', 'y'], {})
        hosts.put(['y'], {'rack': 4})

        self.assertEqual([-1, 4], hosts['rack'].tolist())

    def test_unknown_host_is_no_matter(self):
        hosts = builders.hosts(2)

        hosts.drop(['nobody'])
        hosts.set_usage('nobody', {'VCPU': 1}, {}, 0)

        self.assertEqual(2, len(hosts))
        self.assertIsNone(hosts.row('nobody'))

    def test_usage_sets_what_is_free(self):
        hosts = builders.hosts(2)
        uuid = hosts['uuid'][1]

        hosts.set_usage(
            uuid, {'VCPU': 32, 'MEMORY_MB': 16384, 'DISK_GB': 100},
            {'VCPU': 2, 'MEMORY_MB': 1024, 'DISK_GB': 10, 'CUSTOM_X': 1}, 3)

        self.assertEqual(2, hosts['vcpus_used'][1])
        self.assertEqual(15360, hosts['free_ram_mb'][1])
        self.assertEqual(90 * 1024, hosts['free_disk_mb'][1])
        self.assertEqual(10 * 1024, hosts['disk_mb_used'][1])
        self.assertEqual(3, hosts['num_instances'][1])
        self.assertEqual(
            [30, 15360, 90, -1],
            [hosts.room(resource)[1] for resource
             in ('VCPU', 'MEMORY_MB', 'DISK_GB', 'CUSTOM_X')])

    def test_resource_that_is_gone_leaves_no_room(self):
        hosts = builders.hosts()

        hosts.set_usage(hosts['uuid'][0], {'VCPU': 4}, {}, 0)

        self.assertEqual([4], hosts.room('VCPU').tolist())
        self.assertEqual([0], hosts.room('MEMORY_MB').tolist())

    def test_taking_counts_like_a_server(self):
        hosts = builders.hosts(2)

        hosts.take(0, {'VCPU': 2, 'MEMORY_MB': 512, 'DISK_GB': 3})

        self.assertEqual([2, 0], hosts['vcpus_used'].tolist())
        self.assertEqual([16384 - 512, 16384], hosts['free_ram_mb'].tolist())
        self.assertEqual([97 * 1024, 100 * 1024],
                         hosts['free_disk_mb'].tolist())
        self.assertEqual([3 * 1024, 0], hosts['disk_mb_used'].tolist())
        self.assertEqual([1, 0], hosts['num_instances'].tolist())
        self.assertEqual([1, 0], hosts['num_io_ops'].tolist())
        self.assertEqual([30, 32], hosts.room('VCPU').tolist())

    def test_what_is_taken_back_leaves_nothing(self):
        hosts = builders.hosts(2)
        before = {name: hosts[name].tolist() for name in hosts.names}
        resources = {'VCPU': 2, 'MEMORY_MB': 512, 'DISK_GB': 3}

        hosts.take(1, resources)
        hosts.take(1, resources, -1)

        self.assertEqual(
            before, {name: hosts[name].tolist() for name in hosts.names})


_UUIDS = strategies.sampled_from('abcdefgh')
_AMOUNTS = strategies.dictionaries(
    strategies.sampled_from(['VCPU', 'MEMORY_MB', 'DISK_GB', 'CUSTOM_X']),
    strategies.integers(0, 50))
_READ = ('availability_zone', 'vcpus_used', 'unreserved_ram_mb',
         'free_ram_mb', 'num_instances')


class TableMachine(stateful.RuleBasedStateMachine):
    """A table and a dict of dicts, done the same to."""

    def __init__(self):
        super().__init__()
        self.table = table.HostTable()
        self.model = {}

    @stateful.rule(hosts=strategies.dictionaries(
        _UUIDS, strategies.tuples(
            strategies.sampled_from(['', 'east', 'west']),
            strategies.integers(0, 9000))))
    def put(self, hosts):
        self.table.put(list(hosts), {
            'availability_zone': [zone for zone, _ in hosts.values()],
            'unreserved_ram_mb': [ram for _, ram in hosts.values()]})
        for uuid, (zone, ram) in hosts.items():
            new = dict.fromkeys(_READ, 0) | {'room': {}}
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
            host['room'] = {
                resource: capacity.get(resource, 0) - used.get(resource, 0)
                for resource in {*capacity, *used}}
            host['vcpus_used'] = used.get('VCPU', 0)
            host['free_ram_mb'] = (
                host['unreserved_ram_mb'] - used.get('MEMORY_MB', 0))
            host['num_instances'] = consumers

    @stateful.rule(uuid=_UUIDS, resources=_AMOUNTS)
    def take(self, uuid, resources):
        row = self.table.row(uuid)
        if row is not None:
            self.table.take(row, resources)
            host = self.model[uuid]
            for resource, amount in resources.items():
                host['room'][resource] = (
                    host['room'].get(resource, 0) - amount)
            host['vcpus_used'] += resources.get('VCPU', 0)
            host['free_ram_mb'] -= resources.get('MEMORY_MB', 0)
            host['num_instances'] += 1

    @stateful.invariant()
    def same(self):
        assert len(self.table) == len(self.model)
        assert set(self.table['uuid']) == set(self.model)
        for uuid, host in self.model.items():
            row = self.table.row(uuid)
            assert self.table['uuid'][row] == uuid
            for name in _READ:
                value = self.table[name][row]
                if name == 'availability_zone':
                    value = self.table.text(name, int(value))
                assert value == host[name], (name, value, host[name])
            for resource in ('VCPU', 'MEMORY_MB', 'DISK_GB', 'CUSTOM_X'):
                assert (self.table.room(resource)[row]
                        == host['room'].get(resource, 0)), resource


class TestTableAgainstModel(base.TestCase):

    def test_table_holds_what_a_dict_would(self):
        stateful.run_state_machine_as_test(
            TableMachine, settings=hypothesis.settings(
                deadline=None, max_examples=50, stateful_step_count=20))
