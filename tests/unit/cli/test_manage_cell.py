# SPDX-License-Identifier: Apache-2.0

from sqlalchemy import engine

from cellsched.cli import app
from cellsched.db.api import build_requests
from cellsched.db.api import cell_mappings
from cellsched.db.api import host_mappings
from cellsched.db.api import instance_mappings
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import instances
from cellsched.db.cell import services
from cellsched import objects
from cellsched.testing import databases
from tests.unit.cli import base
from tests.unit.db import samples

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

    def create(self, *argv, name='c1', database=None, broker=None):
        """Run create_cell with URLs, by default those of a name."""
        return self.cell_v2(
            'create_cell', *argv,
            '--database_connection', database or self.sqlite(name),
            '--transport-url', broker or self.local(name))

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

    def test_default_database_of_cell0_is_named_after_the_cell_database(self):
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

    def test_mapped_cell0_is_not_changed(self):
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

    def test_default_database_of_cell0_is_named_after_the_api_database(self):
        url = self.useFixture(databases.APIDatabase()).url
        self.write_api_conf(url)

        self.cell_v2('map_cell0')

        self.assertEqual(
            [url.replace('.sqlite', '_cell0.sqlite')],
            [cell.database_connection for cell in self.cells()])

    def test_database_without_a_name_has_no_default_for_cell0(self):
        for url in ('sqlite://', 'sqlite:///:memory:',
                    'postgresql+psycopg2://host'):
            self.write_api_conf(database={'connection': url})

            self.assertEnds(
                1, self.cell_v2('map_cell0'), 'names a database')

    def test_bad_url_is_refused_and_no_cell_is_mapped(self):
        for url in (f'nix://u:{base.PASSWORD}@host/x', 'nonsense',
                    f'u:{base.PASSWORD}@host'):
            ran = self.cell_v2('map_cell0', '--database_connection', url)

            self.assertEnds(1, ran, 'SQLAlchemy URL')
            self.assertKeepsSecrets(ran)
        self.assertEqual([], self.cells())


class TestCreateCell(CellTestCase):

    def test_cell_has_the_given_urls(self):
        ran = self.create('--name', 'c1')

        [cell] = self.cells()
        self.assertEqual(
            base.Ran(0, f'Mapped cell {cell.uuid}(c1)\n', ''), ran)
        self.assertEqual(
            ('c1', self.sqlite('c1'), self.local('c1'), False),
            (cell.name, cell.database_connection, cell.transport_url,
             cell.disabled))

    def test_urls_of_the_configuration_are_used_and_named(self):
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
        self.create('--disabled')

        self.assertEqual([True], [cell.disabled for cell in self.cells()])

    def test_url_of_another_cell_exits_with_2(self):
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
            self.assertEnds(2, self.create(
                database=own_database, broker=own_transport), what)
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
        for urls in ({'broker': f'nix://u:{base.PASSWORD}@host/x'},
                     {'broker': f'rabbit://u:{base.PASSWORD}@host/x'},
                     {'broker': 'none:///'},
                     {'database': f'nix://u:{base.PASSWORD}@host/x'},
                     {'database': f'{base.PASSWORD}'}):
            ran = self.create(**urls)
            self.assertEnds(1, ran)
            self.assertKeepsSecrets(ran)
        self.assertEqual([], self.cells())

    def test_uuid_may_be_given_once(self):
        uuid = '4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e'

        def create(name, uuid):
            return self.create('--uuid', uuid, '--name', name, '--verbose',
                               name=name)

        self.assertEqual(base.Ran(0, f'{uuid}\n', ''), create('c1', uuid))
        self.assertEnds(2, create('c2', uuid), uuid)
        for wrong in 'x', uuid.upper(), uuid.replace('-', ''), '':
            self.assertEnds(1, create('c2', wrong), '--uuid')
        self.assertEqual([uuid], [cell.uuid for cell in self.cells()])

    def test_name_of_another_cell_is_refused(self):
        self.create_cell('c1')
        uuid = self.create_cell('c2')

        self.assertEnds(2, self.create('--name', 'c1', name='c3'),
                        'the same name')
        self.assertEnds(3, self.cell_v2(
            'update_cell', '--cell_uuid', uuid, '--name', 'c1'),
            'the same name')
        self.assertEqual(['c1', 'c2'], [cell.name for cell in self.cells()])
        self.assertEqual(0, self.cell_v2(
            'update_cell', '--cell_uuid', uuid, '--name', 'c2').code)

    def test_database_and_broker_must_answer(self):
        # Nothing listens on port 9, which is for discarded data.
        nowhere = '127.0.0.1:9'
        for database, broker, place in (
                (self.sqlite('no/directory'), self.local('c1'), 'no/dir'),
                (f'mysql+pymysql://u:{base.QUOTED}@{nowhere}/c1',
                 self.local('c1'), nowhere),
                (self.sqlite('c1'), f'rabbit://u:{base.QUOTED}@{nowhere}/c1',
                 nowhere)):
            urls = {'database': database, 'broker': broker}
            ran = self.create(**urls)
            self.assertEnds(1, ran, place)
            self.assertKeepsSecrets(ran)
            self.assertEqual([], self.cells())
        self.assertEqual(0, self.create('--no-check', **urls).code)
        self.assertEqual(1, len(self.cells()))

    def test_unprintable_name_is_refused(self):
        self.assertEnds(1, self.create('--name', 'a\nb'), '--name')
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

    def test_passwords_are_always_masked(self):
        database = f'postgresql+psycopg2://u:{base.QUOTED}@h/db'
        transport = f'rabbit://u:{base.QUOTED}@h1:1,v:{base.QUOTED}@h2:1/x'
        self.write('cell.conf', DEFAULT={'transport_url': transport},
                   database={'connection': database})
        self.cell_v2('create_cell', '--no-check',
                     conf=('api.conf', 'cell.conf'))

        masked = self.cell_v2('list_cells', '-f', 'json')
        shown = self.cell_v2('list_cells', '-f', 'json', '--verbose')

        for ran in masked, shown:
            self.assertKeepsSecrets(ran)
            [row] = ran.data
            self.assertEqual('postgresql+psycopg2://u:****@h/db',
                             row['Database Connection'])
            self.assertIn('****@h2:1/x', row['Transport URL'])

    def test_old_schema_is_named_with_the_command(self):
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

    def test_new_hosts_are_mapped_to_their_cells_once(self):
        self.create_cell('c1')
        self.create_cell('c2')
        self.add_host('c1', 'h1')
        self.add_host('c2', 'h2')

        ran = self.cell_v2('discover_hosts')

        self.assertEqual(base.Ran(0, 'Mapped 2 hosts\n', ''), ran)
        self.assertEqual({'h1': 'c1', 'h2': 'c2'}, self.mapped('h1', 'h2'))

    def test_findings_are_shown_on_demand(self):
        self.create_cell('c1')
        self.add_host('c1', 'h1')

        ran = self.cell_v2('discover_hosts', '--verbose')

        self.assertIn('Found 1 cell mappings.', ran.out)
        self.assertIn('Mapped host h1.', ran.out)

    def test_hosts_of_a_single_cell_can_be_discovered(self):
        self.create_cell('c1')
        uuid = self.create_cell('c2')
        self.add_host('c1', 'h1')
        self.add_host('c2', 'h2')

        self.cell_v2('discover_hosts', '--cell_uuid', uuid)

        self.assertEqual({'h2': 'c2'}, self.mapped('h1', 'h2'))

    def test_unknown_cell_is_named(self):
        ran = self.cell_v2('discover_hosts', '--cell_uuid', 'nix')

        self.assertEnds(1, ran, 'nix')

    def test_strict_discovery_without_new_hosts_exits_with_1(self):
        self.create_cell('c1')
        self.add_host('c1', 'h1')

        self.assertEqual(0, self.cell_v2('discover_hosts', '--strict').code)
        self.assertEqual(
            base.Ran(1, '', ''), self.cell_v2('discover_hosts', '--strict'))
        self.assertEqual(0, self.cell_v2('discover_hosts').code)

    def test_host_of_two_cells_ends_with_2_and_names_both_cells(self):
        self.create_cell('c1')
        self.create_cell('c2')
        for cell in ('c1', 'c2'):
            self.add_host(cell, 'twin')
        self.add_host('c2', 'h2')

        ran = self.cell_v2('discover_hosts')

        self.assertEnds(2, ran, 'twin', 'c1', 'c2')
        self.assertEqual({'twin': 'c1', 'h2': 'c2'},
                         self.mapped('twin', 'h2'))

    def test_hosts_without_nodes_are_discovered_by_their_services(self):
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

    def test_unreachable_cell_does_not_block_discovery_in_another(self):
        self.write('lost.conf', DEFAULT={'transport_url': self.local('lost')},
                   database={'connection': self.sqlite('no/directory')})
        self.cell_v2('create_cell', '--no-check',
                     conf=('api.conf', 'lost.conf'))
        self.create_cell('c1')
        self.add_host('c1', 'h1')

        ran = self.cell_v2('discover_hosts')

        self.assertEnds(1, ran, 'cannot be reached')
        self.assertEqual({'h1': 'c1'}, self.mapped('h1'))


class TestHelp(CellTestCase):

    def test_help_warns_of_urls_on_the_command_line(self):
        for command in ('map_cell0', 'create_cell'):
            ran = self.run_app(app.Manage, 'cell_v2', command, '--help')

            self.assertIn('visible to every user', ' '.join(ran.out.split()))


def _uuid(host):
    return f'{sum(map(ord, host)):08x}-0000-4000-8000-000000000000'


UNKNOWN = samples.uuids(1)[0]


class ChangeCase(CellTestCase):

    def setUp(self):
        super().setUp()
        self.cell_v2('map_cell0')
        self.uuid = self.create_cell('c1')

    @property
    def cell(self):
        return next(cell for cell in self.cells() if cell.uuid == self.uuid)

    def changed(self, *argv, uuid=None):
        return self.cell_v2(
            'update_cell', '--cell_uuid', uuid or self.uuid, *argv)

    def write_api(self, query, *args):
        with self.parts('api.conf').database.writer() as connection:
            return query(connection, *args)

    def add_host(self, host):
        self.write_api(host_mappings.create_missing, [host], self.cell.id,
                       samples.NOW)

    def add_server(self, host=None):
        """Have a server in the cell; return its uuid."""
        uuids = samples.uuids(1)
        parts = self.parts('api.conf')
        samples.accept(parts.database, uuids)
        self.write_api(instance_mappings.decide, uuids, self.cell.id,
                       samples.NOW)
        self.write_api(build_requests.delete, uuids)
        with parts.targets.database(self.cell).writer() as connection:
            instances.create(connection, [
                samples.instance(uuids[0], host=host)], samples.NOW)
        return uuids[0]


class TestUpdateCell(ChangeCase):

    def test_only_given_fields_change_in_any_configuration(self):
        before = self.cell
        self.write_cell_conf('other')

        ran = self.cell_v2(
            'update_cell', '--cell_uuid', self.uuid, '--name', 'east',
            conf=('api.conf', 'other.conf'))

        self.assertEqual(0, ran.code)
        self.assertIn('Changed name of cell', ran.out)
        self.assertEqual(
            ('east', before.transport_url, before.database_connection),
            (self.cell.name, self.cell.transport_url,
             self.cell.database_connection))

    def test_urls_can_be_changed_unless_used_by_another_cell(self):
        ran = self.changed('--transport-url', self.local('new'),
                           '--database_connection', self.sqlite('new'))

        self.assertEqual(0, ran.code, ran.err)
        self.assertEqual(
            (self.local('new'), self.sqlite('new')),
            (self.cell.transport_url, self.cell.database_connection))
        self.create_cell('c2')
        self.assertEnds(3, self.changed(
            '--transport-url', self.local('c2')), 'transport URL')
        self.assertEnds(1, self.changed(
            '--transport-url', f'nix://u:{base.PASSWORD}@h/x'))

    def test_urls_are_read_from_the_configuration_on_request(self):
        urls = self.local('other'), self.write_cell_conf('other')

        ran = self.cell_v2(
            'update_cell', '--cell_uuid', self.uuid, '--from-configuration',
            conf=('api.conf', 'other.conf'))

        self.assertEqual(0, ran.code, ran.err)
        self.assertEqual(urls, (self.cell.transport_url,
                                self.cell.database_connection))
        ran = self.cell_v2(
            'update_cell', '--cell_uuid', self.uuid, '--from-configuration',
            '--transport-url', self.local('third'),
            conf=('api.conf', 'other.conf'))
        self.assertEqual((self.local('third'), urls[1]), (
            self.cell.transport_url, self.cell.database_connection))

    def test_cell_is_disabled_and_enabled(self):
        for option, disabled in (('--disable', True), ('--disable', True),
                                 ('--enable', False)):
            self.assertEqual(0, self.changed(option).code)
            self.assertEqual(disabled, self.cell.disabled)

    def test_each_failure_has_its_exit_code(self):
        cell0 = '0' * 8 + '-0000-0000-0000-' + '0' * 12
        for code, argv, uuid, text in (
                (1, ['--name', 'x'], UNKNOWN, UNKNOWN),
                (1, [], None, 'nothing to change'),
                (1, ['--name', 'a\nb'], None, '--name'),
                (4, ['--enable', '--disable'], None, 'exclude'),
                (5, ['--disable'], cell0, 'cannot be disabled')):
            self.assertEnds(code, self.changed(*argv, uuid=uuid), text)
        self.assertEqual(('c1', False), (self.cell.name, self.cell.disabled))


class TestDeleteCell(ChangeCase):

    def deleted(self, *argv, uuid=None):
        return self.cell_v2(
            'delete_cell', '--cell_uuid', uuid or self.uuid, *argv)

    def test_cell_is_deleted_only_without_hosts(self):
        self.assertEnds(1, self.deleted(uuid=UNKNOWN), UNKNOWN)
        self.add_host('h1')
        self.assertEnds(2, self.deleted(), '1 hosts', '--force')

        ran = self.deleted('--force')

        self.assertEqual(base.Ran(
            0, f'Unmapped cell {self.uuid} and 1 hosts\n', ''), ran)
        self.assertEqual(['cell0'], [cell.name for cell in self.cells()])

    def test_cell_with_servers_is_not_deleted(self):
        uuid = self.add_server()
        for argv in (), ('--force',):
            self.assertEnds(3, self.deleted(*argv), '1 servers')
        self.write_api(instance_mappings.mark_deleted, [uuid], samples.NOW)
        self.assertEnds(4, self.deleted(), 'archive_deleted_rows')

        self.assertEqual(0, self.deleted('--force').code)


class TestHosts(ChangeCase):

    def deleted(self, host, uuid=None):
        return self.cell_v2('delete_host', '--cell_uuid', uuid or self.uuid,
                            '--host', host)

    def test_hosts_are_listed_by_name(self):
        for host in 'b', 'a':
            self.add_host(host)

        for argv in (), ('--cell_uuid', self.uuid):
            self.assertEqual(
                [{'Cell Name': 'c1', 'Cell UUID': self.uuid, 'Hostname': host}
                 for host in ('a', 'b')],
                self.cell_v2('list_hosts', *argv, '-f', 'json').data)
        self.assertEnds(
            1, self.cell_v2('list_hosts', '--cell_uuid', UNKNOWN), UNKNOWN)

    def test_host_is_deleted_only_without_servers(self):
        self.add_host('a')
        self.add_host('b')
        self.add_server(host='b')
        other = self.create_cell('c2')

        self.assertEqual(base.Ran(0, 'Unmapped host a\n', ''),
                         self.deleted('a'))
        for code, host, uuid in ((1, 'b', UNKNOWN), (2, 'a', None),
                                 (3, 'b', other), (4, 'b', None)):
            self.assertEnds(code, self.deleted(host, uuid),
                            UNKNOWN if uuid == UNKNOWN else f"'{host}'")
        self.assertEqual(['b'], [
            row['Hostname'] for row in
            self.cell_v2('list_hosts', '-f', 'json').data])


class TestMapInstances(ChangeCase):

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

    def test_exit_code_reports_remaining_instances(self):
        self.assertEqual(
            base.Ran(1, 'Mapped 2 instances; there are more\n', ''),
            self.mapped('--max-count', '2'))
        self.assertEqual(base.Ran(0, 'Mapped 1 instances\n', ''),
                         self.mapped('--max-count', '2'))
        self.assertEqual(base.Ran(0, 'Mapped 0 instances\n', ''),
                         self.mapped('--reset'))

    def test_each_failure_has_its_exit_code(self):
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


class TestSetup(CellTestCase):

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

    def test_new_hosts_are_mapped_to_the_existing_cell(self):
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

    def test_setup_without_hosts_maps_no_cell(self):
        ran = self.run_with_cell('map_cell_and_hosts')

        self.assertEqual((0, []), (ran.code, self.cells()))
        self.assertIn('No hosts found', ran.out)
        self.assertEnds(1, self.run_with_cell(
            'map_cell_and_hosts', '--transport-url', 'nonsense'))

    def test_simple_setup_maps_cells_hosts_and_instances(self):
        self.assertEqual(1, self.run_with_cell('simple_cell_setup').code)
        self.add_hosts('a')

        for times in range(2):
            ran = self.run_with_cell('simple_cell_setup')
            self.assertEqual(0, ran.code, ran.err)

        self.assertEqual(2, len(self.cells()))
        self.assertEqual({'a'}, self.hosts())
        self.assertIn('Mapped 0 instances', ran.out)
