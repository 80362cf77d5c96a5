# SPDX-License-Identifier: Apache-2.0
"""Mapping servers that a cell has and that nobody has mapped."""

from cellsched.cells import instance_mapper
from cellsched.db.api import instance_mappings
from cellsched.db.cell import instances
from cellsched import exception
from tests.unit.cells import base
from tests.unit.db import samples


class TestInstanceMapper(base.TestCase):

    def setUp(self):
        super().setUp()
        self.cell, self.other = self.add_cell('east'), self.add_cell('west')
        self.mapper = instance_mapper.InstanceMapper(
            self.database, self.cells, self.targets, self.clock)

    def add(self, count, cell=None, **fields):
        uuids = samples.uuids(count)
        self.there(cell or self.cell, instances.create, [
            samples.instance(uuid, **fields) for uuid in uuids], samples.NOW)
        return uuids

    def there(self, cell, query, *args):
        return self.write(self.targets.database(cell), query, *args)

    def mapped(self, uuids):
        return self.read(self.database, instance_mappings.get_many, uuids)

    def test_all_are_mapped_with_what_their_rows_say(self):
        mine, theirs = self.add(2), self.add(1, project_id='other')
        [gone] = self.add(1)
        self.there(self.cell, samples.put, gone, {'deleted': 4})

        self.assertEqual((4, False), self.mapper.map(self.cell.uuid))

        found = self.mapped([*mine, *theirs, gone])
        self.assertEqual(
            {uuid: ('project', 'user', self.cell.uuid, False)
             for uuid in mine} | {
                theirs[0]: ('other', 'user', self.cell.uuid, False),
                gone: ('project', 'user', self.cell.uuid, True)},
            {uuid: (each.project_id, each.user_id, each.cell_mapping.uuid,
                    each.queued_for_delete) for uuid, each in found.items()})
        usage = self.read(self.database, instance_mappings.usage, 'project')
        self.assertEqual((2, 2, 1024, 0), usage)

    def test_what_is_mapped_stays_as_it_is(self):
        [moved] = samples.uuids(1)
        samples.accept(self.database, [moved])
        self.write(self.database, instance_mappings.decide, [moved],
                   self.other.id, samples.NOW)
        self.there(self.cell, instances.create, [samples.instance(moved)],
                   samples.NOW)

        self.assertEqual((0, False), self.mapper.map(self.cell.uuid))

        self.assertEqual(
            'west', self.mapped([moved])[moved].cell_mapping.name)

    def test_runs_of_a_few_go_on_where_the_last_one_ended(self):
        uuids = self.add(5)

        runs = [self.mapper.map(self.cell.uuid, 2) for _ in range(4)]

        self.assertEqual(
            [(2, True), (2, True), (1, False), (0, False)], runs)
        self.assertEqual({*uuids}, {*self.mapped(uuids)})

    def test_batches_follow_each_other(self):
        uuids = self.add(2 * instance_mapper.BATCH + 1)
        told = []

        self.assertEqual(
            (len(uuids), False),
            self.mapper.map(self.cell.uuid, progress=told.append))

        self.assertEqual(len(uuids), self.mapper.count(self.cell.uuid))
        self.assertEqual(
            [instance_mapper.BATCH, 2 * instance_mapper.BATCH, len(uuids)],
            told)

    def test_cell_that_is_not_there_is_named(self):
        unknown = samples.uuids(1)[0]
        self.assertIn(unknown, str(self.assertRaises(
            exception.CellMappingNotFound, self.mapper.map, unknown)))

    def test_mapping_is_verified(self):
        verdict = instance_mapper.MappingVerdict
        [alive], [gone], [lost] = self.add(1), self.add(1), self.add(1)
        self.mapper.map(self.cell.uuid)
        self.there(self.cell, samples.put, gone, {'deleted': 7})
        self.there(self.cell, instances.purge, [lost])
        [waiting] = samples.uuids(1)
        samples.accept(self.database, [waiting])

        for uuid, expected in (
                (alive, verdict.ALIVE), (gone, verdict.DELETED),
                (lost, verdict.ARCHIVED), (waiting, verdict.WITHOUT_CELL),
                (samples.uuids(1)[0], verdict.NOT_MAPPED)):
            self.assertEqual(expected, self.mapper.verify(uuid))
