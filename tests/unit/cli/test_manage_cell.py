# SPDX-License-Identifier: Apache-2.0

from sqlalchemy import engine

from cellsched.cli import app
from cellsched.db.api import cell_mappings
from cellsched.db.api import host_mappings
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import services
from cellsched import objects
from cellsched.testing import databases
from tests.unit.cli import base

COLUMNS = ['Name', 'UUID', 'Transport URL', 'Database Connection', 'Disabled']


class CellTestCase(base.CommandTestCase):

    def setUp(self):
        super().setUp()
        self.write_api_conf()

    def cell_v2(self, *argv, **options):
        return self.manage('cell_v2', *argv, **options)

    def write_cell_conf(self, name='cell'):
        """Write the configuration of a cell whose database is ready."""
        url = self.useFixture(databases.CellDatabase()).url
        self.write(f'{name}.conf',
                   DEFAULT={'transport_url': self.local(name)},
                   database={'connection': url})
        return url

    def cells(self):
        with self.parts('api.conf').database.reader() as connection:
            return cell_mappings.list_all(connection)

    def create_cell(self, name):
        """Create a cell and return its uuid."""
        self.write_cell_conf(name)
        ran = self.cell_v2('create_cell', '--name', name, '--verbose',
                           conf=('api.conf', f'{name}.conf'))
        self.assertEqual((0, ''), (ran.code, ran.err))
        return ran.out.split()[-1]


class TestMapCell0(CellTestCase):

    def test_database_is_beside_the_one_of_the_configuration(self):
        for url, expected in (
                ('sqlite:////srv/main.v2.sqlite',
                 'sqlite:////srv/main.v2_cell0.sqlite'),
                ('sqlite:///main', 'sqlite:///main_cell0'),
                (f'postgresql+psycopg2://u:{base.QUOTED}@h:5/m?sslmode=allow',
                 f'postgresql+psycopg2://u:{base.QUOTED}@h:5/m_cell0'
                 '?sslmode=allow')):
            self.write_api_conf(database={'connection': url})

            ran = self.cell_v2('map_cell0')

            self.assertEqual(base.Ran(0, 'Mapped cell0\n', ''), ran)
            [cell0] = self.cells()
            self.assertEqual(
                (objects.CELL0_UUID, 'cell0', 'none:///'),
                (cell0.uuid, cell0.name, cell0.transport_url))
            # A URL may quote more than it has to.
            self.assertEqual(
                engine.make_url(expected),
                engine.make_url(cell0.database_connection))

    def test_database_may_be_given(self):
        ran = self.cell_v2(
            'map_cell0', '--database_connection', self.sqlite('other'))

        self.assertEqual(base.Ran(0, 'Mapped cell0\n', ''), ran)
        self.assertEqual(
            [self.sqlite('other')],
            [cell.database_connection for cell in self.cells()])

    def test_mapped_cell0_stays_where_it_is(self):
        given = ('map_cell0', '--database_connection', self.sqlite('one'))
        self.cell_v2(*given)

        again = self.cell_v2(*given)
        moved = self.cell_v2(
            'map_cell0', '--database_connection', self.sqlite('two'))

        self.assertEqual(base.Ran(0, 'Cell0 is already setup\n', ''), again)
        self.assertEnds(0, moved, 'warning', 'one.sqlite')
        self.assertEqual(
            [self.sqlite('one')],
            [cell.database_connection for cell in self.cells()])

    def test_above_the_cells_it_is_beside_the_api_database(self):
        url = self.useFixture(databases.APIDatabase()).url
        self.write_api_conf(url)

        self.cell_v2('map_cell0')

        self.assertEqual(
            [url.replace('.sqlite', '_cell0.sqlite')],
            [cell.database_connection for cell in self.cells()])

    def test_database_without_a_name_has_none_beside_it(self):
        for url in ('sqlite://', 'sqlite:///:memory:',
                    'postgresql+psycopg2://host'):
            self.write_api_conf(database={'connection': url})

            self.assertEnds(
                1, self.cell_v2('map_cell0'), 'names a database')

    def test_bad_url_is_refused_and_nothing_is_mapped(self):
        for url in (f'nix://u:{base.PASSWORD}@host/x', 'nonsense',
                    f'u:{base.PASSWORD}@host'):
            ran = self.cell_v2('map_cell0', '--database_connection', url)

            self.assertEnds(1, ran, 'SQLAlchemy URL')
            self.assertKeepsSecrets(ran)
        self.assertEqual([], self.cells())


class TestCreateCell(CellTestCase):

    def test_cell_has_the_urls_that_were_given(self):
        ran = self.cell_v2(
            'create_cell', '--name', 'c1', '--database_connection',
            self.sqlite('c1'), '--transport-url', self.local('c1'))

        [cell] = self.cells()
        self.assertEqual(
            base.Ran(0, f'Mapped cell {cell.uuid}(c1)\n', ''), ran)
        self.assertEqual(
            ('c1', self.sqlite('c1'), self.local('c1'), False),
            (cell.name, cell.database_connection, cell.transport_url,
             cell.disabled))

    def test_urls_of_the_configuration_are_used_and_it_says_so(self):
        url = self.write_cell_conf()

        ran = self.cell_v2(
            'create_cell', '--verbose', conf=('api.conf', 'cell.conf'))

        [cell] = self.cells()
        self.assertEqual(
            (url, self.local('cell'), None),
            (cell.database_connection, cell.transport_url, cell.name))
        self.assertIn('[DEFAULT] transport_url', ran.out)
        self.assertIn('[database] connection', ran.out)
        self.assertEqual(cell.uuid, ran.out.splitlines()[-1])

    def test_cell_may_be_disabled_from_the_start(self):
        self.cell_v2('create_cell', '--disabled', '--database_connection',
                     self.sqlite('c1'), '--transport-url', self.local('c1'))

        self.assertEqual([True], [cell.disabled for cell in self.cells()])

    def test_url_that_another_cell_has_ends_with_2(self):
        self.cell_v2('map_cell0', '--database_connection',
                     self.sqlite('cell0'))
        self.create_cell('c1')
        database = [cell.database_connection for cell in self.cells()
                    if cell.name == 'c1'][0]
        before = len(self.cells())

        for own_database, own_transport, what in (
                (database, self.local('c2'), 'database connection'),
                (self.sqlite('cell0'), self.local('c2'),
                 'database connection'),
                (self.sqlite('c2'), self.local('c1'), 'transport URL')):
            ran = self.cell_v2(
                'create_cell', '--database_connection', own_database,
                '--transport-url', own_transport)

            self.assertEnds(2, ran, what)
        self.assertEqual(before, len(self.cells()))

    def test_missing_url_ends_with_1(self):
        self.write('api.conf', api_database={
            'connection': self.useFixture(databases.APIDatabase()).url})

        for option, url, missing in (
                ('--transport-url', self.local('c1'),
                 '[database] connection'),
                ('--database_connection', self.sqlite('c1'),
                 '[DEFAULT] transport_url')):
            ran = self.cell_v2('create_cell', option, url)

            self.assertEnds(1, ran, missing)
        self.assertEqual([], self.cells())

    def test_bad_url_ends_with_1_and_shows_no_password(self):
        good = {'--database_connection': self.sqlite('c1'),
                '--transport-url': self.local('c1')}
        for option, url in (
                ('--transport-url', f'nix://u:{base.PASSWORD}@host/x'),
                ('--transport-url', f'rabbit://u:{base.PASSWORD}@host/x'),
                ('--transport-url', 'none:///'),
                ('--database_connection', f'nix://u:{base.PASSWORD}@host/x'),
                ('--database_connection', f'{base.PASSWORD}')):
            urls = {**good, option: url}

            ran = self.cell_v2('create_cell', *(
                word for pair in urls.items() for word in pair))

            self.assertEnds(1, ran)
            self.assertKeepsSecrets(ran)
        self.assertEqual([], self.cells())

    def test_uuid_may_be_given_once(self):
        uuid = '4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e'

        def create(name, uuid):
            return self.cell_v2(
                'create_cell', '--uuid', uuid, '--name', name,
                '--database_connection', self.sqlite(name),
                '--transport-url', self.local(name), '--verbose')

        self.assertEqual(base.Ran(0, f'{uuid}\n', ''), create('c1', uuid))
        self.assertEnds(2, create('c2', uuid), uuid)
        for wrong in 'x', uuid.upper(), uuid.replace('-', ''), '':
            self.assertEnds(1, create('c2', wrong), '--uuid')
        self.assertEqual([uuid], [cell.uuid for cell in self.cells()])

    def test_name_that_cannot_be_shown_is_refused(self):
        ran = self.cell_v2(
            'create_cell', '--name', 'a\nb', '--database_connection',
            self.sqlite('c1'), '--transport-url', self.local('c1'))

        self.assertEnds(1, ran, '--name')
        self.assertEqual([], self.cells())

    def test_unwanted_argument_shows_no_password(self):
        ran = self.cell_v2(
            'create_cell', f'rabbit://u:{base.PASSWORD}@host/x')

        self.assertEnds(1, ran, 'unrecognized')
        self.assertKeepsSecrets(ran)


class TestListCells(CellTestCase):

    def test_cells_are_listed_by_name(self):
        for name in ('zeta', 'alpha'):
            self.create_cell(name)

        ran = self.cell_v2('list_cells', '-f', 'json')

        self.assertEqual(['alpha', 'zeta'], [row['Name'] for row in ran.data])
        self.assertEqual(COLUMNS, list(ran.data[0]))

    def test_passwords_are_masked_whatever_is_asked_for(self):
        database = f'postgresql+psycopg2://u:{base.QUOTED}@h/db'
        transport = f'rabbit://u:{base.QUOTED}@h1:1,v:{base.QUOTED}@h2:1/x'
        self.write('cell.conf', DEFAULT={'transport_url': transport},
                   database={'connection': database})
        self.cell_v2('create_cell', conf=('api.conf', 'cell.conf'))

        masked = self.cell_v2('list_cells', '-f', 'json')
        shown = self.cell_v2('list_cells', '-f', 'json', '--verbose')

        for ran in masked, shown:
            self.assertKeepsSecrets(ran)
            [row] = ran.data
            self.assertEqual('postgresql+psycopg2://u:****@h/db',
                             row['Database Connection'])
            self.assertIn('****@h2:1/x', row['Transport URL'])

    def test_old_schema_is_named_with_what_mends_it(self):
        self.write_api_conf(self.sqlite('empty'))

        for command in ('list_cells', 'discover_hosts'):
            self.assertEnds(1, self.cell_v2(command),
                            'cellsched-manage api_db sync')


class TestDiscoverHosts(CellTestCase):

    def add_host(self, cell, host, node=True):
        """Put what an agent reports into a cell's database."""
        parts = self.parts(f'{cell}.conf')
        now = parts.clock.now()
        with parts.cell_database.writer() as connection:
            services.report(connection, _uuid(host), host, services.COMPUTE,
                            'compute', now)
            if node:
                compute_nodes.save(connection, _uuid(host), host, host, {
                    'vcpus': 1, 'memory_mb': 1, 'local_gb': 1,
                    'vcpus_used': 0, 'memory_mb_used': 0, 'local_gb_used': 0,
                    'hypervisor_type': 'fake', 'hypervisor_version': 1,
                    'cpu_info': ''}, now)

    def mapped(self, *hosts):
        with self.parts('api.conf').database.reader() as connection:
            found = host_mappings.get_many(connection, hosts)
        return {host: cell.name for host, cell in found.items()}

    def test_new_hosts_are_mapped_to_their_cells(self):
        self.create_cell('c1')
        self.create_cell('c2')
        self.add_host('c1', 'h1')
        self.add_host('c2', 'h2')

        ran = self.cell_v2('discover_hosts')

        self.assertEqual(base.Ran(0, 'Mapped 2 hosts\n', ''), ran)
        self.assertEqual({'h1': 'c1', 'h2': 'c2'}, self.mapped('h1', 'h2'))

    def test_it_says_what_it_finds_on_demand(self):
        self.create_cell('c1')
        self.add_host('c1', 'h1')

        ran = self.cell_v2('discover_hosts', '--verbose')

        self.assertIn('Found 1 cell mappings.', ran.out)
        self.assertIn('Mapped host h1.', ran.out)

    def test_one_cell_may_be_named(self):
        self.create_cell('c1')
        uuid = self.create_cell('c2')
        self.add_host('c1', 'h1')
        self.add_host('c2', 'h2')

        self.cell_v2('discover_hosts', '--cell_uuid', uuid)

        self.assertEqual({'h2': 'c2'}, self.mapped('h1', 'h2'))

    def test_unknown_cell_is_named(self):
        ran = self.cell_v2('discover_hosts', '--cell_uuid', 'nix')

        self.assertEnds(1, ran, 'nix')

    def test_nothing_new_ends_with_1_if_that_is_asked_for(self):
        self.create_cell('c1')
        self.add_host('c1', 'h1')

        self.assertEqual(0, self.cell_v2('discover_hosts', '--strict').code)
        self.assertEqual(
            base.Ran(1, '', ''), self.cell_v2('discover_hosts', '--strict'))
        self.assertEqual(0, self.cell_v2('discover_hosts').code)

    def test_host_of_two_cells_ends_with_2_and_names_both(self):
        self.create_cell('c1')
        self.create_cell('c2')
        for cell in ('c1', 'c2'):
            self.add_host(cell, 'twin')
        self.add_host('c2', 'h2')

        ran = self.cell_v2('discover_hosts')

        self.assertEnds(2, ran, 'twin', 'c1', 'c2')
        self.assertEqual({'twin': 'c1', 'h2': 'c2'},
                         self.mapped('twin', 'h2'))

    def test_hosts_without_nodes_are_found_by_their_services(self):
        self.create_cell('c1')
        self.add_host('c1', 'h1', node=False)

        by_node = self.cell_v2('discover_hosts', '--strict')
        by_service = self.cell_v2(
            'discover_hosts', '--strict', '--by-service', '--verbose')
        again = self.cell_v2('discover_hosts', '--strict', '--by-service')

        self.assertEqual([1, 0, 1], [
            ran.code for ran in (by_node, by_service, again)])
        self.assertEqual({'h1': 'c1'}, self.mapped('h1'))
        self.assertIn('Mapped host h1.', by_service.out)

    def test_cell_that_cannot_be_reached_does_not_keep_others_from_it(self):
        self.write('lost.conf', DEFAULT={'transport_url': self.local('lost')},
                   database={'connection': self.sqlite('no/directory')})
        self.cell_v2('create_cell', conf=('api.conf', 'lost.conf'))
        self.create_cell('c1')
        self.add_host('c1', 'h1')

        ran = self.cell_v2('discover_hosts')

        self.assertEnds(1, ran, 'cannot be reached')
        self.assertEqual({'h1': 'c1'}, self.mapped('h1'))


class TestHelp(CellTestCase):

    def test_help_warns_of_urls_on_the_command_line(self):
        for command in ('map_cell0', 'create_cell'):
            ran = self.run_app(app.Manage, 'cell_v2', command, '--help')

            self.assertIn('seen by every user', ' '.join(ran.out.split()))


def _uuid(host):
    return f'{sum(map(ord, host)):08x}-0000-4000-8000-000000000000'
