# SPDX-License-Identifier: Apache-2.0

from cellsched.cells import instance_mapper
from cellsched.db.api import host_mappings
from cellsched.db.cell import instances
from cellsched.db.cell import services
from tests.unit.cli import base
from tests.unit.cli import test_manage_cell_change
from tests.unit.db import samples

UNKNOWN = samples.uuids(1)[0]
VERDICTS = instance_mapper.MappingVerdict


class TestMapInstances(test_manage_cell_change.ChangeCase):

    def setUp(self):
        super().setUp()
        self.uuids = samples.uuids(3)
        with self.parts('api.conf').targets.database(
                self.cell).writer() as connection:
            instances.create(connection, [
                samples.instance(uuid) for uuid in self.uuids], samples.NOW)

    def mapped(self, *argv, uuid=None):
        return self.cell_v2(
            'map_instances', '--cell_uuid', uuid or self.uuid, *argv)

    def test_runs_of_a_few_say_whether_there_are_more(self):
        self.assertEqual(
            base.Ran(1, 'Mapped 2 instances; there are more\n', ''),
            self.mapped('--max-count', '2'))
        self.assertEqual(base.Ran(0, 'Mapped 1 instances\n', ''),
                         self.mapped('--max-count', '2'))
        self.assertEqual(base.Ran(0, 'Mapped 0 instances\n', ''),
                         self.mapped('--reset'))

    def test_what_cannot_be_done_has_its_exit_code(self):
        for count in '0', '-1', 'x', '1.5', '9' * 99, '':
            self.assertEnds(
                127, self.mapped(f'--max-count={count}'), '--max-count')
        self.assertEnds(255, self.mapped(uuid=UNKNOWN), UNKNOWN)

    def test_mapping_is_verified(self):
        self.mapped()
        for uuid, code, text in ((self.uuids[0], 0, 'is in the cell'),
                                 (UNKNOWN, 1, 'is not mapped')):
            ran = self.cell_v2('verify_instance', '--uuid', uuid)
            self.assertEqual(code, ran.code)
            self.assertIn(text, ran.out)
            self.assertEqual(base.Ran(code, '', ''), self.cell_v2(
                'verify_instance', '--uuid', uuid, '--quiet'))


class TestSetup(test_manage_cell_change.test_manage_cell.CellTestCase):

    def setUp(self):
        super().setUp()
        self.write_cell_conf('c1')

    def add_hosts(self, *hosts):
        with self.parts('c1.conf').cell_database.writer() as connection:
            for host in hosts:
                services.report(
                    connection, samples.uuids(1)[0], host, services.COMPUTE,
                    'compute', samples.NOW)

    def run_with_cell(self, *argv):
        return self.cell_v2(*argv, conf=('api.conf', 'c1.conf'))

    def hosts(self):
        return {row['Hostname'] for row in
                self.cell_v2('list_hosts', '-f', 'json').data}

    def test_cell_is_mapped_with_its_hosts(self):
        self.add_hosts('a', 'b')

        ran = self.run_with_cell(
            'map_cell_and_hosts', '--name', 'c1', '--verbose')

        [cell] = self.cells()
        self.assertEqual(base.Ran(0, f'{cell.uuid}\n', ''), ran)
        self.assertEqual({'a', 'b'}, self.hosts())
        again = self.run_with_cell('map_cell_and_hosts', '--verbose')
        self.assertEqual(0, again.code)
        self.assertIn('already mapped', again.out)
        self.assertIn(cell.uuid, again.out)

    def test_new_hosts_go_to_the_cell_of_the_others(self):
        self.add_hosts('a')
        self.run_with_cell('map_cell_and_hosts')
        self.add_hosts('b')

        self.assertEqual(0, self.run_with_cell('map_cell_and_hosts').code)

        self.assertEqual({'a', 'b'}, self.hosts())
        self.assertEqual(1, len(self.cells()))

    def test_hosts_of_two_cells_are_an_error(self):
        self.add_hosts('a', 'b')
        self.run_with_cell('map_cell_and_hosts')
        self.create_cell('c2')
        other = next(cell for cell in self.cells() if cell.name == 'c2')
        with self.parts('api.conf').database.writer() as connection:
            host_mappings.delete(
                connection, self.cells()[0].id, ['b'])
            host_mappings.create_missing(
                connection, ['b'], other.id, samples.NOW)

        self.assertEnds(
            1, self.run_with_cell('map_cell_and_hosts'), 'one cell')

    def test_without_hosts_nothing_is_mapped(self):
        ran = self.run_with_cell('map_cell_and_hosts')

        self.assertEqual((0, []), (ran.code, self.cells()))
        self.assertIn('No hosts found', ran.out)
        self.assertEnds(1, self.run_with_cell(
            'map_cell_and_hosts', '--transport-url', 'nonsense'))

    def test_simple_setup_maps_all_there_is(self):
        self.assertEqual(1, self.run_with_cell('simple_cell_setup').code)
        self.add_hosts('a')

        for times in range(2):
            ran = self.run_with_cell('simple_cell_setup')
            self.assertEqual(0, ran.code, ran.err)

        self.assertEqual(2, len(self.cells()))
        self.assertEqual({'a'}, self.hosts())
        self.assertIn('Mapped 0 instances', ran.out)
