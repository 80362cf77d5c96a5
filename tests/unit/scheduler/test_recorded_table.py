# SPDX-License-Identifier: Apache-2.0
"""States of a table that are written as changes, and read again."""

import json
import random
import uuid

import numpy as np

from cellsched.hardware import devices
from cellsched.hosts.aggregate import HostAggregate
from cellsched.hosts import columns
from cellsched.hosts.providers import SharingProvider
from cellsched.hosts.table import HostTable
from cellsched.scheduler import recorded_table
from tests import profile
from tests.unit import base
from tests.unit.filters import cells

EXTRA = (columns.Column('racks', columns.CODED, ('none',), 'a plug-in'),
         columns.Column('watts', 'float64', 1.5, 'a plug-in'))


def uuid_of(number):
    return str(uuid.UUID(int=number))


class TestStates(base.TestCase):

    def setUp(self):
        super().setUp()
        self.begin()

    def begin(self):
        """Make a table of eight hosts, of which nothing is written yet."""
        self.table = HostTable((*columns.STANDARD, *EXTRA))
        self.encoder = recorded_table.StateEncoder()
        self.decoder = recorded_table.StateDecoder()
        self.table.put([uuid_of(row) for row in range(8)], {
            'host': [f'h{row}' for row in range(8)],
            'cell': uuid_of(99), 'available:VCPU': 16})

    def sync(self, closed=()):
        """Write the state of the table, and compare what is read."""
        snapshot = self.table.snapshot
        size = 0
        for document in self.encoder.encode(
                snapshot, len(snapshot.overlay), closed):
            packed = json.dumps(document)
            size += len(packed)
            self.decoder.apply(json.loads(packed))
        self.compare(closed)
        return size

    def compare(self, closed=()):
        before, after = self.table.view(1.0), self.decoder.table.view(1.0)
        old, new = before.columns.snapshot, after.columns.snapshot
        self.assertEqual(old.overlay, new.overlay)
        self.assertEqual(set(old.columns), set(new.columns))
        # The arrays of a reused view may have amounts that were rolled back.
        for name in after.names:
            if name == 'cell_disabled' and closed:
                continue
            self.assertEqual(self.values(before, name),
                             self.values(after, name), name)
        self.assertEqual(dict(old.rows), dict(new.rows))
        self.assertEqual(dict(old.children), dict(new.children))
        self.assertEqual(dict(old.places), dict(new.places))
        self.assertEqual(dict(old.sharing), dict(new.sharing))
        self.assertEqual(old.cells.known, new.cells.known)
        self.assertEqual({*old.cells.disabled, *closed},
                         {*new.cells.disabled})
        for provider in old.sharing:
            self.assertEqual(before.shared_available(provider, 'DISK_GB'),
                             after.shared_available(provider, 'DISK_GB'))

    @staticmethod
    def values(hosts, name):
        encoding = hosts.columns.snapshot.encodings.get(name)
        if encoding is None:
            return hosts[name].tolist()
        return [[each.name, each.metadata]
                if isinstance(each, HostAggregate) else each
                for value in (encoding.values[code] for code in hosts[name])
                for each in (value if name == 'aggregates' else [value])]

    def test_random_changes(self):
        changes = [getattr(self, name) for name in sorted(dir(self))
                   if name.startswith('change_')]
        for seed in range(profile.RECORDED_SEEDS):
            self.begin()
            chance = random.Random(seed)
            with self.subTest(seed=seed):
                for _ in range(40):
                    for _ in range(chance.choice([0, 1, 1, 3])):
                        known = [*self.table.snapshot.rows]
                        chance.choice(changes)(chance, chance.choice(known))
                    self.sync()

    def change_number(self, chance, node):
        self.table.put([node], {'num_instances': chance.randrange(9),
                                'last_seen_up': chance.random()})

    def change_text(self, chance, node):
        self.table.put([node], {
            'host_ip': chance.choice([None, '10.0.0.1']),
            'nodename': f'n{chance.random()}'})

    def change_coded(self, chance, node):
        self.table.put([node], {
            'stats': str(chance.random()), 'racks': [(f'{chance.random()}',)],
            'traits': [frozenset(chance.sample('ABC', 2))],
            'watts': chance.random(), 'aggregates': [(HostAggregate(
                1, uuid_of(1), 'a', {'key': str(chance.random())}),)]})

    def change_values_beyond_the_spare_ones(self, chance, node):
        if chance.random() < 0.2:
            for _ in range(1100):
                self.table.put([node], {'metrics': str(chance.random())})

    def change_hosts(self, chance, node):
        if len(self.table) > 4:
            self.table.drop([node])
        new = [uuid_of(100 + chance.randrange(1000)) for _ in range(2)]
        self.table.put([*dict.fromkeys(new)], {'vcpus_total': 4})

    def change_children(self, chance, node):
        number = chance.randrange(1000, 9000) * 4
        uuids = tuple(uuid_of(number + place)
                      for place in range(chance.randrange(3)))
        self.table.put([node], {
            'child_uuids': [uuids],
            'children': [((0, frozenset()),) * len(uuids)]})
        for each in uuids:
            self.table.set_usage(
                each, {'VGPU': 4, f'CUSTOM_{chance.randrange(3)}': 2},
                {'VGPU': 1}, 1, {'VGPU': (1, 2, 1)})

    def change_usage(self, chance, node):
        self.table.set_usage(
            node, {'VCPU': 16, f'CUSTOM_{chance.randrange(5)}': 1},
            {'VCPU': chance.randrange(16)}, 3, {'VCPU': (1, 8, 1)})

    def change_sharing(self, chance, node):
        self.table.set_sharing({
            uuid_of(7): SharingProvider('pool', uuid_of(8), frozenset('X')),
            uuid_of(50 + chance.randrange(2)): SharingProvider(
                'other', uuid_of(9))})
        self.table.set_usage(uuid_of(7), {'DISK_GB': 100},
                             {'DISK_GB': chance.randrange(99)}, 1)

    def change_cells(self, chance, node):
        cell = uuid_of(90 + chance.randrange(3))
        cells = self.table.cells
        chance.choice([
            lambda: cells.heard(cell, chance.random()),
            lambda: cells.failed(cell, 1, chance.random()),
            lambda: cells.drop(cell),
            lambda: cells.disable({cell: 'name'})])()

    def change_reservations(self, chance, node):
        hosts = self.table.view(1.0)
        hosts.take(hosts.row(node), chance.choice([
            {'VCPU': 1}, {'VCPU': 2, 'MEMORY_MB': 512},
            {f'DISK_GB@{uuid_of(7)}': 3}]))
        allocations = self.table.reserve(hosts)
        what = chance.randrange(3)
        if what == 0:
            self.table.rollback(allocations)
        elif what == 1:
            self.table.confirm(allocations)
        self.table.reuse(hosts)

    def test_cells_and_devices_are_read_as_written(self):
        for topology in cells.topology(3, 4, threads=2), None:
            for node in None, 0:
                self.table.put([uuid_of(1)], {
                    'numa_topology': topology, 'device_pools': [
                        devices.pools([cells.pool(
                            1, node, dev_type='type-VF')])]})
                self.sync()
        self.table.put([uuid_of(1)], {'device_pools': [()]})
        self.sync()

    def test_unchanged_state_adds_no_bytes(self):
        first = self.sync()

        self.assertEqual(0, self.sync())

        self.table.put([uuid_of(3)], {'num_instances': 4})
        self.assertLess(self.sync(), first / 4)

    def test_earlier_state_is_written_again(self):
        """Decisions end in another order than they began."""
        old = self.table.snapshot
        self.change_reservations(random.Random(1), uuid_of(1))
        self.table.put([uuid_of(3)], {'num_instances': 4})
        self.sync()
        for position in (len(old.overlay), 0):
            for document in self.encoder.encode(old, position):
                self.decoder.apply(document)

            found = self.decoder.table.view(1.0)
            self.assertEqual(0, found['num_instances'][3])
            self.assertEqual(16 * 8 - min(position, 1),
                             found['available:VCPU'].sum())

    def test_closed_cells(self):
        self.sync()
        self.sync([uuid_of(99)])

        self.assertTrue(np.all(self.decoder.table.view(1.0)['cell_disabled']))

        self.change_reservations(random.Random(1), uuid_of(1))
        self.sync([uuid_of(99)])
        self.sync()

    def test_dropped_hosts_of_an_earlier_release(self):
        """This release writes all hosts again."""
        for document in (
                {'specs': []}, {'drop': [], 'add': [*'abc']},
                {'rows': [0, 1, 2], 'columns': {'num_instances': [1, 2, 3]}},
                {'drop': ['b'], 'add': ['d']}):
            self.decoder.apply(document)

        table = self.decoder.table
        self.assertEqual([*'acd'], table['uuid'].tolist())
        self.assertEqual([1, 3, 0], table['num_instances'].tolist())

    def test_columns_missing_from_the_recording_have_defaults(self):
        self.decoder = recorded_table.StateDecoder(
            [columns.Column('rooms', columns.CODED, 'r', 'a plug-in')])
        for document in self.encoder.encode(self.table.snapshot, 0):
            self.decoder.apply(document)

        table = self.decoder.table
        self.assertEqual('r', table.encoding('rooms').values[0])
        self.assertEqual(1.5, table['watts'][0])
