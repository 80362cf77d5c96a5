# SPDX-License-Identifier: Apache-2.0

import pathlib
import signal
import tempfile

from cellsched.cli import app
from cellsched import clock
from cellsched import context
from cellsched.db.cell import services
from cellsched.standalone import deployment
from tests.unit.cli import base

ADMIN = context.admin()

UNKNOWN = '4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e'


class Interrupting(clock.Clock):
    """A clock at which somebody presses a key while it sleeps."""

    def sleep(self, seconds):
        signal.raise_signal(signal.SIGINT)


class ServerTestCase(base.CommandTestCase):
    """A test of commands in a deployment that all tests of a class share."""

    hosts = [deployment.DeployedHost(f'host{number}', vcpus=100,
                                     availability_zone=f'zone{number}')
             for number in (1, 2)]
    options = {'filter_scheduler': {
        'enabled_filters': 'AvailabilityZoneFilter,ComputeFilter,'
                           'DifferentHostFilter'}}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.cloud = deployment.Deployment(
            pathlib.Path(directory.name),
            [deployment.DeployedCell('cell1', cls.hosts)], options=cls.options)
        cls.cloud.start()
        cls.addClassCleanup(cls.cloud.stop)
        cls.cloud.api.flavors.create(ADMIN, 'small', 1, 256)
        cls.cloud.api.flavors.create(ADMIN, 'huge', 1000, 256)

    def setUp(self):
        super().setUp()
        self.api_conf = self.cloud.directory / 'etc' / 'api.conf'

    def server(self, *argv, **options):
        return self.shell('server', *argv, **options)

    def create(self, *argv, **options):
        return self.server('create', *argv, '-f', 'json', **options)


class TestServer(ServerTestCase):

    def test_awaited_server_is_active_in_its_cell(self):
        ran = self.create('web', '--flavor', 'small', '--wait')

        self.assertEqual((0, ''), (ran.code, ran.err))
        [row] = ran.data
        self.assertEqual(
            ['ID', 'Name', 'Status', 'Cell', 'Host', 'Attempts', 'Reason'],
            list(row))
        self.assertEqual(('web', 'ACTIVE', 'cell1', 1, ''),
                         (row['Name'], row['Status'], row['Cell'],
                          row['Attempts'], row['Reason']))
        self.assertIn(row['Host'], ('host1', 'host2'))

    def test_server_is_addressed_by_name_or_the_begin_of_its_id(self):
        [row] = self.create(
            'named', '--flavor', 'small', '--count', '1', '--wait').data

        for name in 'named', row['ID'][:13]:
            self.assertEqual(
                row['ID'], self.server('show', name, '-f', 'json').data['id'])
        self.assertIn('There is no server nam.',
                      self.server('show', 'nam').err)
        self.assertEqual(0, self.server('delete', 'named', '--wait').code)
        ran = self.server('delete', 'named', 'many-1')
        self.assertEqual(1, ran.code)
        self.assertIn('There is no server named.', ran.err)

    def test_count_with_a_minimum_is_refused(self):
        ran = self.create(
            'web', '--flavor', 'small', '--count', '2', '--max', '3')

        self.assertEqual(1, ran.code)
        self.assertIn('--count: given with --min or --max; expected --count '
                      'alone', ran.err)

    def test_count_is_above_0(self):
        ran = self.create('web', '--flavor', 'small', '--count', '0')

        self.assertEqual(1, ran.code)
        self.assertIn('--count: 0 is out of range; expected a whole number '
                      'above 0', ran.err)

    def test_several_servers_are_named_by_their_number(self):
        ran = self.create('many', '--flavor', 'small', '--min', '2', '--max',
                          '3', '--wait')

        self.assertEqual(
            ['many-1', 'many-2', 'many-3'], [row['Name'] for row in ran.data])

    def test_accepted_servers_are_shown_without_waiting(self):
        ran = self.create('now', '--flavor', 'small')

        self.assertEqual(0, ran.code)
        [row] = ran.data
        self.assertIn(row['Status'], ('BUILD', 'ACTIVE'))
        self.assertEqual('now', row['Name'])

    def test_server_in_error_ends_with_2_and_its_reason(self):
        ran = self.create('big', '--flavor', 'huge', '--wait')

        self.assertEqual((2, ''), (ran.code, ran.err))
        [row] = ran.data
        self.assertEqual(('ERROR', 'cell0'), (row['Status'], row['Cell']))
        self.assertIn('No valid host', row['Reason'])

    def test_bar_shows_how_many_are_ready(self):
        stderr = base.Terminal()

        self.create('bar', '--flavor', 'small', '--max', '2', '--wait',
                    stderr=stderr)

        self.assertIn('2/2', stderr.getvalue())

    def create_in(self, zone, *argv):
        [row] = self.create('in', '--flavor', 'small', '--availability-zone',
                            zone, *argv, '--wait').data
        return row

    def test_zone_is_passed_on(self):
        # Without zones these would be spread over both hosts.
        for zone, host in (('zone1', 'host1'), ('zone2', 'host2')):
            self.assertEqual(
                {host}, {self.create_in(zone)['Host'] for _ in range(3)})

    def test_filters_check_a_requested_host_and_no_forced_host(self):
        first = self.create_in('zone1')
        for argv, expected in (
                (['--availability-zone', ':host1'], ('ACTIVE', 'host1')),
                (['--availability-zone', 'zone1:host1:host1'],
                 ('ACTIVE', 'host1')),
                (['--availability-zone', '::host1'], ('ACTIVE', 'host1')),
                (['--host', 'host1'], ('ERROR', '')),
                (['--host', 'host2'], ('ACTIVE', 'host2')),
                (['--hypervisor-hostname', 'host2'], ('ACTIVE', 'host2')),
                (['--availability-zone', 'zone2:host1'], ('ERROR', ''))):
            ran = self.create(
                'in', '--flavor', 'small', '--wait', '--hint',
                f'different_host={first["ID"]}', *argv)
            [row] = ran.data
            self.assertEqual(expected, (row['Status'], row['Host']), argv)

    def test_unknown_host_is_refused(self):
        for argv in (['--host', 'host9'], ['--availability-zone', ':host9']):
            ran = self.create('in', '--flavor', 'small', *argv)
            self.assertEqual((1, ''), (ran.code, ran.out))
            self.assertIn('host9', ran.err)
            self.assertIn('; did you mean host', ran.err)

    def test_every_value_of_a_hint_is_passed_on(self):
        first = self.create_in('zone1')
        second = self.create_in('zone2')

        ran = self.create(
            'nowhere', '--flavor', 'small', '--wait',
            '--hint', f'different_host={first["ID"]}',
            '--hint', f'different_host={second["ID"]}')

        self.assertEqual((2, 'ERROR'), (ran.code, ran.data[0]['Status']))

    def test_server_belongs_to_the_named_project(self):
        [row] = self.create('mine', '--flavor', 'small', '--os-project-id',
                            'p7', '--os-user-id', 'u7').data

        shown = self.server('show', row['ID'], '-f', 'json').data

        self.assertEqual('p7', shown['project_id'])

    def test_show_has_the_reason(self):
        [row] = self.create('big', '--flavor', 'huge', '--wait').data

        shown = self.server('show', row['ID'], '-f', 'json').data

        self.assertEqual(
            (row['ID'], 'big', 'ERROR', row['Reason']),
            (shown['id'], shown['name'], shown['status'], shown['reason']))

    def test_show_has_the_details_of_a_server(self):
        [row] = self.create(
            'big', '--flavor', 'huge', '--image', 'cirros', '--wait').data

        shown = self.server('show', row['ID'], '-f', 'json').data
        read = self.server('show', row['ID']).out

        self.assertEqual(
            ('huge', {'id': 'cirros'}, {}, []),
            (shown['flavor']['name'], shown['image'], shown['server_group'],
             shown['migrations']))
        [fault] = shown['faults']
        self.assertEqual(row['Reason'], fault['message'])
        self.assertIn('huge: ', read)
        self.assertIn('cirros', read)

    def test_servers_are_listed_up_to_the_limit(self):
        self.create('listed', '--flavor', 'small', '--max', '2', '--wait')

        every = self.server('list', '-f', 'json').data
        some = self.server('list', '--limit', '1', '-f', 'json').data

        self.assertLessEqual(
            {'listed-1', 'listed-2'}, {row['Name'] for row in every})
        self.assertEqual(every[:1], some)

    def test_servers_are_sorted_and_filtered(self):
        self.create('sorted', '--flavor', 'small', '--max', '3', '--wait')

        def listed(*argv):
            return [row['Name'] for row in self.server(
                'list', '--name', 'Sorted', *argv, '-f', 'json').data]

        three = ['sorted-1', 'sorted-2', 'sorted-3']
        self.assertEqual(three, listed('--sort', 'display_name:asc'))
        self.assertEqual(
            three[::-1], listed('--sort', 'vm_state,display_name'))
        self.assertEqual(three, listed(
            '--sort', 'display_name:asc', '--all', '--status', 'active'))
        self.assertEqual([], listed('--flavor', 'huge'))
        first = self.server('list', '--name', 'sorted-1', '-f', 'json').data
        self.assertEqual(three[1:], listed(
            '--sort', 'display_name:asc', '--marker', first[0]['ID']))

    def test_deleted_server_is_not_found(self):
        [row] = self.create('gone', '--flavor', 'small', '--wait').data

        ran = self.server('delete', row['ID'], '--wait')

        self.assertEqual(
            base.Ran(0, f'Deleting server {row["ID"]}\n', ''), ran)
        self.assertEnds(1, self.server('show', row['ID']), row['ID'])

    def test_several_are_deleted_and_the_unknown_is_named(self):
        rows = self.create(
            'gone', '--flavor', 'small', '--max', '2', '--wait').data

        ran = self.server('delete', rows[0]['ID'], UNKNOWN, rows[1]['ID'],
                          '--wait')

        self.assertEnds(1, ran, UNKNOWN)
        names = [row['ID'] for row in self.server('list', '-f', 'json').data]
        self.assertNotIn(rows[0]['ID'], names)
        self.assertNotIn(rows[1]['ID'], names)
        gone = self.server('list', '--deleted', '-f', 'json').data
        self.assertIn((rows[0]['ID'], 'DELETED'), [
            (row['ID'], row['Status']) for row in gone])


class TestBadRequests(ServerTestCase):

    def assertRefused(self, argv, *texts):
        ran = self.create(*argv)

        self.assertEnds(1, ran, *texts)
        self.assertEqual('', ran.out)
        self.assertEqual([], self.server('list', '-f', 'json').data)

    def test_bad_value_of_a_request_is_named(self):
        small = ['x', '--flavor', 'small']
        for argv, *texts in (
                (['x', '--flavor', 'nix'], 'flavor nix'),
                *(([*small, option, value], value) for option, value in (
                    ('--min', '0'), ('--max', '-1'), ('--max', '1001'),
                    ('--min', str(2 ** 70)))),
                ([*small, '--min', '3', '--max', '2'], '_count', '3', '2'),
                *(([*small, '--hint', hint], 'hints', 'different_host')
                  for hint in ('_nova_check_type=rebuild', '__class__=x',
                               'nix=x')),
                ([*small, '--hint', 'nix'], '--hint', 'KEY=VALUE'),
                *(([name, '--flavor', 'small'], 'name')
                  for name in ('', ' ', 'a\nb', 'x' * 256)),
                ([*small, '--wait', '--timeout', '-1'], '--timeout', '-1')):
            with self.subTest(argv=argv):
                self.assertRefused(argv, *texts)

    def test_bad_value_of_another_command_is_named(self):
        for argv, *texts in (
                (('list', '--sort', 'id'), "'id'"),
                (('list', '--sort', 'uuid:up'), "'up'"),
                (('list', '--sort', 'uuid,uuid'), 'each key once'),
                (('list', '--marker', UNKNOWN), UNKNOWN),
                (('list', '--flavor', 'nix'), 'nix'),
                (('list', '--changes-since', 'now'), 'changes-since'),
                (('list', '--name', ''), 'filters.name'),
                (('list', '--limit', '-1'), 'limit', '-1'),
                (('list', '--limit', '1001'), 'limit', '1001'),
                (('show', UNKNOWN), UNKNOWN), (('delete', UNKNOWN), UNKNOWN)):
            with self.subTest(argv=argv):
                self.assertEnds(1, self.server(*argv), *texts)


class TestWithoutServices(base.CommandTestCase):

    def setUp(self):
        super().setUp()
        self.write_api_conf()
        self.shell('flavor', 'create', 'small', '--ram', '1', '--vcpus', '1')

    def create(self, *argv, **options):
        return self.shell('server', 'create', 'late', '--flavor', 'small',
                          '-f', 'json', *argv, **options)

    def test_unbuilt_server_at_the_timeout_exits_with_1(self):
        ran = self.create('--max', '2', '--wait', '--timeout', '0')

        self.assertEnds(1, ran, '2 of 2', '0 seconds')
        self.assertEqual(
            {'BUILD'}, {row['Status'] for row in ran.data})

    def test_ids_are_shown_when_waiting_is_interrupted(self):
        ran = self.create('--wait', clock=Interrupting())

        self.assertEqual(130, ran.code)
        self.assertEqual(['late'], [row['Name'] for row in ran.data])

    def test_build_without_a_cell_is_deleted(self):
        self.manage('claims_db', 'sync')
        [row] = self.create().data

        ran = self.shell('server', 'delete', row['ID'], '--wait')

        self.assertEqual(
            base.Ran(0, f'Deleting server {row["ID"]}\n', ''), ran)
        self.assertEqual([], self.shell('server', 'list', '-f', 'json').data)


class TestDownCells(base.CommandTestCase):

    def test_unreachable_cell_is_named_and_the_rest_is_listed(self):
        self.write_api_conf()
        self.write('cell.conf', DEFAULT={'transport_url': self.local('c')},
                   database={'connection': self.sqlite('no/directory')})
        created = self.manage('cell_v2', 'create_cell', '--name', 'lost',
                              '--no-check', conf=('api.conf', 'cell.conf'))
        self.assertEqual(0, created.code, created.err)

        ran = self.run_app(app.Shell, 'server', 'list', '-f', 'json',
                           '--config-file', self.api_conf)

        self.assertEqual([], ran.data)
        self.assertEnds(0, ran, 'warning', '(lost)')


class TestSet(ServerTestCase):

    def made(self, *argv):
        [found] = self.create('web', '--flavor', 'small', '--wait', *argv).data
        return found['ID']

    def shown(self, uuid):
        return self.server('show', uuid, '-f', 'json').data

    def test_server_is_created_with_its_tags(self):
        self.assertEqual(['a', 'b'], self.shown(
            self.made('--tag', 'b', '--tag', 'a', '--tag', 'b'))['tags'])

    def test_server_is_renamed_and_keeps_its_tags(self):
        uuid = self.made('--tag', 'a')

        ran = self.server('set', uuid, '--name', 'other', '-f', 'json')

        self.assertEqual((0, ''), (ran.code, ran.err))
        found = self.shown(uuid)
        self.assertEqual(found, ran.data)
        self.assertEqual(('other', ['a']), (found['name'], found['tags']))

    def test_tags_are_added_replaced_and_removed(self):
        uuid = self.made('--tag', 'a')
        for argv, tags in (
                (['--tag', 'b'], ['a', 'b']),
                (['--no-tag', '--tag', 'c'], ['c']), (['--no-tag'], [])):
            self.assertEqual(0, self.server('set', uuid, *argv).code)
            self.assertEqual(tags, self.shown(uuid)['tags'])

    def test_invalid_changes_are_refused(self):
        uuid = self.made()
        self.assertEnds(1, self.server('set', uuid), '--no-tag')
        self.assertEnds(
            1, self.server('set', uuid, '--tag', 'a,b'), 'tags', 'comma')
        self.assertEnds(
            1, self.server('set', uuid, '--name', 'x' * 256), 'name', '255')
        self.assertEnds(
            1, self.server('set', UNKNOWN, '--name', 'x'), UNKNOWN)


class TestRetry(ServerTestCase):

    def test_server_in_cell0_is_built_after_all(self):
        ran = self.create('big', '--flavor', 'huge', '--wait')
        self.assertEqual(2, ran.code)
        [found] = ran.data
        ran = self.server('retry', found['ID'], '--wait')
        self.assertEqual(2, ran.code)

        self.cloud.start_host(
            'cell1', deployment.DeployedHost('host3', vcpus=2000))
        ran = self.server('retry', found['ID'], '--wait')

        self.assertEqual(
            (0, f'Retrying server {found["ID"]}\n'), (ran.code, ran.out))
        ran = self.server('show', found['ID'], '-f', 'json')
        self.assertEqual(('ACTIVE', 'host3'),
                         (ran.data['status'], ran.data['host']))

    def test_retry_outside_of_cell0_is_refused_with_the_state(self):
        [found] = self.create('web', '--flavor', 'small', '--wait').data

        self.assertEnds(
            1, self.server('retry', found['ID']), 'ACTIVE in cell1')
        self.assertEnds(
            1, self.server('retry', UNKNOWN), f'no server {UNKNOWN}')


class TestServerHistory(ServerTestCase):

    def setUp(self):
        super().setUp()
        [made] = self.create('web', '--flavor', 'small', '--wait',
                             '--availability-zone', 'zone2').data
        self.uuid = made['ID']
        self.addCleanup(self.server, 'delete', self.uuid, '--wait')
        self.server('migrate', self.uuid, '--wait')

    def test_moves_are_listed_with_their_results(self):
        for argv in ((), ('--server', self.uuid), ('--host', 'host2'),
                     ('--status', 'error', '--type', 'migration')):
            row, *_ = self.server('migration', 'list', *argv,
                                  '-f', 'json').data
            self.assertEqual(
                (self.uuid, 'cell1', 'migration', 'error', 'host2', ''),
                tuple(row[name] for name in (
                    'Server UUID', 'Cell', 'Type', 'Status',
                    'Source Compute', 'Dest Compute')))
            self.assertIn('No valid host', row['Reason'])
            self.assertRegex(row['Updated At'], '^20.*Z$')

    def test_events_are_listed_with_their_results(self):
        move, create = self.server(
            'event', 'list', self.uuid, '-f', 'json').data

        self.assertEqual(('migrate', 'Error'),
                         (move['Action'], move['Result']))
        self.assertIn('No valid host', move['Reason'])
        self.assertEqual(('create', ''), (create['Action'], create['Reason']))

    def test_bad_input_is_refused(self):
        for argv, text in (
                (('migration', 'list', '--server', UNKNOWN), UNKNOWN),
                (('migration', 'list', '--limit', '0'), 'limit'),
                (('event', 'list', UNKNOWN), UNKNOWN)):
            self.assertEnds(1, self.server(*argv), text)


class TestServerMove(ServerTestCase):

    def setUp(self):
        super().setUp()
        ran = self.create('web', '--flavor', 'small', '--wait')
        [made] = ran.data
        self.uuid, self.host = made['ID'], made['Host']
        self.addCleanup(self.server, 'delete', self.uuid, '--wait')

    @property
    def shown(self):
        return self.server('show', self.uuid, '-f', 'json').data

    def test_migrated_server_is_on_another_host(self):
        ran = self.server('migrate', self.uuid, '--wait')

        self.assertEqual(0, ran.code)
        self.assertEqual('ACTIVE', self.shown['status'])
        self.assertNotEqual(self.host, self.shown['host'])

    def test_migration_with_rebuild_moves_the_server(self):
        ran = self.server('migrate', self.uuid, '--wait', '--rebuild')

        self.assertEqual(0, ran.code)
        self.assertNotEqual(self.host, self.shown['host'])

    def test_migration_without_a_host_is_reported(self):
        ran = self.create('web', '--flavor', 'small', '--wait',
                          '--availability-zone', 'zone2')
        [made] = ran.data

        ran = self.server('migrate', made['ID'], '--wait')

        self.assertEnds(2, ran, f'{made["ID"]} failed; the server is ACTIVE '
                                'on host2')

    def test_rebuilt_server_stays(self):
        ran = self.server(
            'rebuild', self.uuid, '--image', UNKNOWN, '--wait')

        self.assertEqual(0, ran.code)
        self.assertEqual(('ACTIVE', self.host), (
            self.shown['status'], self.shown['host']))

    def test_shelved_server_is_unshelved(self):
        ran = self.server('shelve', self.uuid, '--wait', '-f', 'json')
        self.assertEqual((0, [{
            'action': 'shelving', 'kind': 'server', 'name': self.uuid,
        }]), (ran.code, ran.data))
        self.assertEqual(('SHELVED_OFFLOADED', None), (
            self.shown['status'], self.shown['host']))

        self.assertEqual(0, self.server('unshelve', self.uuid, '--wait').code)
        self.assertEqual('ACTIVE', self.shown['status'])

    def test_server_is_evacuated_off_a_dead_host_only(self):
        ran = self.server('evacuate', self.uuid, '--wait')
        self.assertEqual(1, ran.code)
        self.assertIn('forced down', ran.err)
        parts = self.cloud.agents[self.host].parts
        for down in (True, False):
            with parts.cell_database.writer() as connection:
                services.set_forced_down(
                    connection, self.host, down, parts.clock.now())
            if down:
                ran = self.server('evacuate', self.uuid, '--wait')

        self.assertEqual(0, ran.code)
        self.assertNotEqual(self.host, self.shown['host'])

    def test_wrong_state_is_refused_in_a_single_line(self):
        ran = self.server('unshelve', self.uuid, UNKNOWN)

        self.assertEqual(1, ran.code)
        self.assertIn(f'Server {self.uuid} cannot unshelve while it is '
                      'active.', ran.err)
        self.assertIn(f'There is no server {UNKNOWN}', ran.err)
