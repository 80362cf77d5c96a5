# SPDX-License-Identifier: Apache-2.0

from importlib import metadata
import logging

from cliff import command
import fixtures
from oslo_log import log

from cellsched.cli import app
from cellsched.cli import base as cli_base
from cellsched.cli import server
from cellsched import exception
from cellsched.testing import databases
from tests.unit.cli import base

#: Commands that send messages, for something that is not there.
UUID = '7a1c2b3d-0000-4000-8000-000000000001'
SENDING = (
    ('host', 'drain', 'host1'), ('host', 'evacuate', 'host1'),
    ('server', 'create', 'web', '--flavor', 'small'),
    ('server', 'delete', UUID), ('server', 'evacuate', UUID),
    ('server', 'migrate', UUID), ('server', 'rebuild', UUID),
    ('server', 'retry', UUID), ('server', 'shelve', UUID),
    ('server', 'unshelve', UUID))


class Failing(command.Command):
    """Fail in the way that a test says."""

    error: Exception

    def take_action(self, parsed_args):
        logging.getLogger('library').warning(
            'at amqp://u:%s@host', base.PASSWORD)
        raise self.error


class Naming(command.Command):
    """Log a line about a server."""

    def take_action(self, parsed_args):
        log.getLogger('service').warning('It is there', instance_uuid=UUID)


class Telling(cli_base.Command):
    """Say what it was told."""

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        parser.add_argument('--verbose', action='store_true')
        parser.add_argument('words', nargs='*')
        return parser

    def take_action(self, parsed_args):
        self.app.say(f'{parsed_args.verbose} {parsed_args.words}')


class TestOptions(base.CommandTestCase):

    def test_configuration_file_may_stand_before_and_after_the_command(self):
        self.write_api_conf()

        for words in (('--config-file', self.api_conf, 'flavor', 'list'),
                      ('flavor', 'list', '--config-file', self.api_conf),
                      ('flavor', 'list', '-f', 'json',
                       f'--config-file={self.api_conf}', '-c', 'ID')):
            ran = self.run_app(app.Shell, *words)

            self.assertEqual((0, ''), (ran.code, ran.err), words)

    def test_unknown_option_before_a_command_is_named(self):
        ran = self.run_app(app.Shell, '--project', 'p', 'flavor', 'list')

        self.assertEnds(1, ran, "'--project': unknown option")

    def test_later_configuration_file_overrides_the_earlier(self):
        self.write_api_conf()
        self.write('first.conf', api={'max_limit': '1'})
        self.write('later.conf', api={'max_limit': '2'})

        ran = self.shell('server', 'list', '--limit', '9',
                         '--config-file', self.directory / 'first.conf',
                         '--config-file', self.directory / 'later.conf')

        self.assertEnds(1, ran, 'limit', 'from 0 to 2')

    def test_configuration_directory_is_read(self):
        self.write_api_conf()
        directory = self.directory / 'etc'
        directory.mkdir()
        self.write('etc/more.conf', api={'max_limit': '2'})

        ran = self.shell('server', 'list', '--limit', '9',
                         '--config-dir', directory)

        self.assertEnds(1, ran, 'limit', 'from 0 to 2')

    def test_application_options_do_not_change_command_options(self):
        ran = self.run_app(
            app.Manage, '-v', 'tell', '--verbose', 'x', tell=Telling)

        self.assertEqual(base.Ran(0, "True ['x']\n", ''), ran)


class TestHelp(base.CommandTestCase):

    def test_help_lists_the_commands(self):
        for application, name in ((app.Shell, 'server create'),
                                  (app.Manage, 'cell_v2 map_cell0')):
            ran = self.run_app(application, '--help')

            self.assertEqual(0, ran.code)
            self.assertIn(f'  {name}', ran.out)
            self.assertIn('--config-file', ran.out)

    def test_help_of_a_group_lists_its_commands(self):
        ran = self.run_app(app.Shell, 'flavor', '--help')

        self.assertEqual(0, ran.code)
        self.assertIn('flavor create', ran.out)
        self.assertNotIn('server', ran.out)

    def test_every_command_has_a_help_with_an_example(self):
        for application in (app.Shell, app.Manage):
            manager = application().command_manager
            for name, point in manager:
                if point.load().__module__.startswith('cellsched.'):
                    found = point.load()(None, None)

                    text = found.get_parser(name).format_help()

                    self.assertIn('Example', text, name)
                    self.assertIn(name, text.partition('Example')[2], name)

    def test_no_command_shows_the_help_and_fails(self):
        ran = self.run_app(app.Shell)

        self.assertEqual(1, ran.code)
        self.assertIn('server create', ran.out)

    def test_error_for_an_unknown_command_names_similar_commands(self):
        ran = self.run_app(app.Shell, 'flavor', 'crate', '--ram', '3')

        self.assertEnds(1, ran, "'flavor crate'", 'flavor create')

    def test_unknown_command_has_no_help(self):
        ran = self.run_app(app.Shell, 'flavr', '--help')

        self.assertEnds(1, ran, "'flavr'", 'flavor create')

    def test_wrong_arguments_are_refused_in_a_single_line(self):
        for words, text in (
                (('flavor', 'create', 'm1', '--vcpus', '1'), '--ram'),
                (('flavor', 'create', 'm1', '--ram', 'much', '--vcpus', '1'),
                 "'much'"),
                (('flavor', 'list', '--nonsense'), '--nonsense'),
                (('--config-file',), '--config-file')):
            ran = self.run_app(app.Shell, *words)

            self.assertEnds(1, ran, text, '--help')

    def test_wrong_arguments_never_end_with_the_code_of_a_command(self):
        ran = self.run_app(app.Shell, 'help', '--nonsense')

        self.assertEqual(1, ran.code)
        self.assertIn('--nonsense', ran.err)


class TestErrors(base.CommandTestCase):

    def fail(self, error, *options):
        Failing.error = error
        return self.run_app(app.Shell, *options, 'fail', fail=Failing)

    def test_error_of_the_project_is_shown_in_a_single_line(self):
        # Control characters do not reach the terminal.
        for flavor, shown in (('x', 'x'), ('\x1b[2J\ud800', '?[2J?')):
            ran = self.fail(exception.FlavorNotFound(flavor=flavor))

            self.assertEqual((1, f'cellsched: There is no flavor {shown}.\n'),
                             (ran.code, ran.err))

    def test_internal_error_is_shown_with_its_type(self):
        ran = self.fail(KeyError('first\nsecond'))

        self.assertEnds(1, ran, 'internal error (KeyError)', '--debug')
        self.assertNotIn('first', ran.err)

    def test_traceback_is_shown_for_debugging(self):
        ran = self.fail(KeyError('x'), '--debug')

        self.assertEqual(1, ran.code)
        self.assertIn('take_action', ran.err)

    def test_warnings_of_libraries_are_shown_on_demand(self):
        quiet = self.fail(exception.NotFound())
        verbose = self.fail(exception.NotFound(), '-v')

        self.assertNotIn('WARNING', quiet.err)
        self.assertIn('WARNING library', verbose.err)

    def test_server_of_a_log_line_is_shown(self):
        ran = self.run_app(app.Shell, '-v', 'name', name=Naming)

        self.assertIn(
            f'WARNING service [instance: {UUID}] It is there\n', ran.err)

    def test_passwords_in_errors_and_logs_are_masked(self):
        error = exception.Invalid(
            f'amqp://user:{base.PASSWORD}@host is no good')
        for options in ((), ('-v',), ('--debug',)):
            ran = self.fail(error, *options)

            self.assertKeepsSecrets(ran)
            self.assertIn('amqp://user:****@host is no good', ran.err)

    def test_logging_is_restored(self):
        root = logging.getLogger()
        before = root.level, list(root.handlers)

        self.fail(exception.NotFound(), '--debug')

        self.assertEqual(before, (root.level, list(root.handlers)))

    def test_unknown_option_in_a_file_is_named(self):
        self.write('api.conf', api={'max_limits': '3'})

        ran = self.shell('server', 'list')

        self.assertEnds(1, ran, 'api.conf', '[api] max_limits', 'max_limit?')

    def test_missing_file_is_named(self):
        ran = self.run_app(
            app.Shell, 'flavor', 'list', '--config-file',
            self.directory / 'missing.conf')

        self.assertEnds(1, ran, 'missing.conf')

    def test_missing_option_is_named(self):
        self.write('api.conf')

        ran = self.shell('flavor', 'list')

        self.assertEnds(1, ran, '[api_database] connection')

    def test_database_of_an_unknown_kind_is_refused(self):
        self.write_api_conf(f'oracle+magic://u:{base.QUOTED}@host/x')

        ran = self.shell('flavor', 'list')

        self.assertEnds(1, ran, 'API database', 'oracle+magic://u:****@host/x')
        self.assertKeepsSecrets(ran)

    def test_unreachable_database_is_named(self):
        # Nothing may listen on this port.
        self.write_api_conf(
            f'postgresql+psycopg2://u:{base.QUOTED}@127.0.0.1:1/x')

        for options in ((), ('-v',), ('--debug',)):
            ran = self.shell('flavor', 'list', *options)

            self.assertEqual(1, ran.code)
            self.assertIn(
                'cellsched: The API database at '
                'postgresql+psycopg2://u:****@127.0.0.1:1/x cannot be reached',
                ran.err)
            self.assertKeepsSecrets(ran)

    def test_databases_are_tried_once_unless_configured_otherwise(self):
        application = app.Shell()
        self.write('api.conf', database={'max_retries': '7'})
        application.options = application.parser.parse_args(
            ['--config-file', str(self.api_conf)])

        conf = application.conf

        self.assertEqual(
            (0, 7), (conf.api_database.max_retries, conf.database.max_retries))

    def test_database_without_schema_is_named_with_the_command(self):
        self.write_api_conf(self.sqlite('empty'))

        ran = self.shell('flavor', 'list')

        self.assertEnds(1, ran, 'empty.sqlite', 'version none',
                        'cellsched-manage api_db sync')

    def test_messaging_options_are_checked_before_sending(self):
        for groups, field in (
                ({'oslo_messaging_rabbit': {'rabbit_retry_interval': 'soon'}},
                 '[oslo_messaging_rabbit] rabbit_retry_interval'),
                ({'upgrade_levels': {'compute': 'some'}},
                 '[upgrade_levels] compute'),
                ({'upgrade_levels': {'conductor': 'some'}},
                 '[upgrade_levels] conductor')):
            self.write_api_conf(**groups)
            for words in SENDING:
                with self.subTest(field=field, command=words):
                    self.assertEnds(1, self.shell(*words), field)

    def test_commands_without_messages_need_no_transport(self):
        connection = self.useFixture(databases.APIDatabase()).url
        self.write('api.conf', api_database={'connection': connection})

        self.assertEqual((0, ''), (
            self.shell('server', 'list').code,
            self.shell('server', 'list').err))
        for words in SENDING:
            with self.subTest(command=words):
                self.assertEnds(
                    1, self.shell(*words), '[DEFAULT] transport_url')

    def test_error_for_an_unknown_plugin_lists_plugins(self):
        self.write_api_conf(
            filter_scheduler={'enabled_filters': 'ComputeFilter,NixFilter'})
        self.manage('claims_db', 'sync')

        ran = self.shell('host', 'list')

        self.assertEnds(1, ran, 'NixFilter', 'NumInstancesFilter')

    def test_project_id_above_255_characters_is_refused(self):
        self.write_api_conf()

        ran = self.shell('server', 'list', '--os-project-id', 'x' * 256)

        self.assertEnds(1, ran, '--os-project-id', '255')

    def test_project_and_user_are_taken_from_the_environment(self):
        self.useFixture(fixtures.EnvironmentVariable('OS_PROJECT_ID', 'p1'))
        self.useFixture(fixtures.EnvironmentVariable('OS_USER_ID', 'u1'))
        application = app.Shell()
        application.options = application.parser.parse_args([])

        context = application.context()

        self.assertEqual(('p1', 'u1'), (context.project_id, context.user_id))


class TestCommands(base.CommandTestCase):

    def test_installed_command_does_not_replace_a_shipped_command(self):
        self.useFixture(fixtures.MonkeyPatch(
            'stevedore.ExtensionManager.ENTRY_POINT_CACHE', {
                'cellsched.cli': [metadata.EntryPoint(
                    'server.list', 'tests.none:List', 'cellsched.cli')]}))

        found, _, _ = app.Commands('cellsched.cli').find_command(
            ['server', 'list'])

        self.assertIs(server.list_servers, found)

    def test_commands_have_names_with_spaces(self):
        manager = app.Commands('cellsched.manage')
        names = {name for name, _ in manager}

        self.assertIn('cell_v2 map_cell0', names)
        self.assertIn('api_db sync', names)
