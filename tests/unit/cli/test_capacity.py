# SPDX-License-Identifier: Apache-2.0
"""Room on a snapshot: no database and no broker, only options."""

from unittest import mock

from cellsched.cli import host_snapshot
from cellsched.hosts import document
from cellsched.testing import builders
from tests.unit.cli import base
from tests.unit.scheduler.decision import test_provider_groups

SIZE = ('--vcpus', 1, '--ram', 1000)


class TestCapacity(base.CommandTestCase):

    def setUp(self):
        super().setUp()
        self.write('api.conf')
        self.path = self.directory / 'hosts.json'
        hosts = builders.table(
            host=['a', 'b', 'c'], nodename=['a', 'b', 'c'],
            free_ram_mb=[4096, 8192, 512], cell=['south', 'north', 'south'],
            availability_zone=['east', 'west', 'east'])
        with self.path.open('w') as file:
            host_snapshot.write(document.dump(document.HostDocument(
                hosts, builders.NOW, {'north': 'North', 'south': 'South'})),
                file)

    def capacity(self, *argv, size=SIZE):
        return self.shell('capacity', '--snapshot', self.path, *size, *argv)

    def rows(self, *argv, **options):
        ran = self.capacity(*argv, '-f', 'json', **options)
        self.assertEqual('', ran.err)
        return ran.code, [tuple(row.values()) for row in ran.data]

    def test_servers_are_counted_in_each_cell_and_in_all(self):
        self.assertEqual((0, [
            ('North', 1, 1, 8), ('South', 2, 1, 4), ('all cells', 3, 2, 12),
        ]), self.rows())

    def test_what_is_scarcest_counts(self):
        # Each has 32 virtual CPUs, and the last one memory for fewer.
        _, rows = self.rows(size=('--vcpus', 4, '--ram', 100))

        self.assertEqual([8, 13, 21], [row[-1] for row in rows])

    def test_filters_say_which_hosts_take_one(self):
        self.assertEqual((0, [
            ('North', 1, 0, 0), ('South', 2, 1, 4), ('all cells', 3, 1, 4),
        ]), self.rows('--availability-zone', 'east'))
        self.assertEqual(4, self.rows('--ignore-host', 'b')[1][-1][-1])

    def share(self, hosts, pool):
        """Have a pool of CUSTOM_A shared by hosts in the south and north."""
        groups = test_provider_groups
        table = groups.make(
            hosts, [{0}] * len(hosts), [groups.Provider((pool, 0))],
            cell=['south', *['north'] * (len(hosts) - 1)])
        with self.path.open('w') as file:
            host_snapshot.write(document.dump(document.HostDocument(
                table, builders.NOW, {'north': 'North'})), file)

    def test_what_cells_share_counts_once_in_all(self):
        self.share([[test_provider_groups.Provider()] for _ in range(3)], 11)

        # Each host has room for 8, but for what they share.
        self.assertEqual((0, [
            ('North', 2, 2, 5), ('south', 1, 1, 5), ('all cells', 3, 3, 5),
        ]), self.rows('--extra-spec', 'resources:CUSTOM_A=2'))

    def test_all_cells_have_room_for_no_fewer_than_one_of_them(self):
        groups = test_provider_groups
        # A server in the south takes twice as much of what is shared.
        self.share([[groups.Provider()], [
            groups.Provider(), groups.Provider((8, 0), ['CUSTOM_T'])]], 8)

        self.assertEqual([8, 4, 8], [row[-1] for row in self.rows(
            '--extra-spec', 'resources1:CUSTOM_A=1',
            '--extra-spec', 'resources2:CUSTOM_A=1',
            '--extra-spec', 'trait2:CUSTOM_T=forbidden',
            '--extra-spec', 'group_policy=none')[1]])

    def test_none_ends_with_2_and_says_why(self):
        ran = self.capacity('-f', 'json', size=(
            '--vcpus', 1, '--ram', 10 ** 6))

        self.assertEqual((2, 0), (ran.code, ran.data[-1]['Servers']))
        self.assertIn('3 hosts: is too small in memory', ran.err)

    def test_chart_is_drawn_where_it_is_asked_for(self):
        drawn, plain = self.capacity('--chart'), self.capacity()

        self.assertIn('67%  8 of 12', drawn.out)
        self.assertNotIn('%', plain.out)

    def test_charts_are_drawn_into_files(self):
        for suffix, begin in (('png', b'\x89PNG'), ('svg', b'<?xml')):
            path = self.directory / f'room.{suffix}'

            self.assertEqual(0, self.capacity('--plot', path).code)

            self.assertTrue(path.read_bytes().startswith(begin))

    def test_bad_input_is_refused(self):
        for argv, text in (
                (('--plot', self.directory / 'room.pdf'), '.png or .svg'),
                (('--plot', self.directory / 'no' / 'room.png'),
                 'cannot be written'),
                (('--group', 'x'), '--group'),
                (('--ram', '0'), '--ram')):
            self.assertEnds(1, self.capacity(*argv), text)
        self.assertEnds(1, self.capacity(size=()), '--vcpus')

    def test_missing_library_is_named_with_what_installs_it(self):
        with mock.patch.dict('sys.modules', {'matplotlib': None}):
            self.assertEnds(1, self.capacity('--plot', 'x.png'),
                            'cellsched[plot]')
