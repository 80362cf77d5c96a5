# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import os

import fixtures
from oslo_config import cfg
import oslo_messaging

from cellsched.conf import loader
from cellsched import exception
from tests.unit import base


class LoadingTestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.directory = self.temporary_directory()

    def write(self, text, name='a.conf'):
        path = self.directory / name
        path.write_text(text)
        return str(path)

    def load(self, text):
        return loader.load([], files=[self.write(text)], dirs=[])

    def refused(self, text):
        """Return the one line that a configuration is refused with."""
        return self.refuse([], files=[self.write(text)], dirs=[])

    def assertRefused(self, text, *expected):
        refusal = self.refused(text)
        for each in expected:
            self.assertIn(each, refusal)

    def refuse(self, *args, **kwargs):
        error = self.assertRaises(
            exception.ConfigurationInvalid, loader.load, *args, **kwargs)
        self.assertEqual(1, len(str(error).splitlines()))
        return str(error)


class Endpoint:

    def note(self, context):
        return 'noted'


class TestDefaults(LoadingTestCase):

    def test_option_for_shell_completion_does_not_exist(self):
        """The package of oslo.config lacks the files that it reads."""
        printed = io.StringIO()
        with contextlib.redirect_stderr(printed):
            self.assertRaises(SystemExit, loader.load, [
                '--shell_completion', 'bash'], files=[], dirs=[])

        self.assertIn('unrecognized arguments: --shell_completion bash',
                      printed.getvalue())

    def test_configuration_without_a_file_has_the_defaults(self):
        conf = loader.load([], files=[], dirs=[])

        self.assertEqual(3, conf.scheduler.max_attempts)
        self.assertEqual('filter_scheduler', conf.scheduler.driver)
        self.assertEqual(1, conf.filter_scheduler.host_subset_size)
        self.assertEqual(60, conf.rpc_response_timeout)
        self.assertEqual(60, conf.graceful_shutdown_timeout)
        self.assertFalse(conf.debug)

    def test_configurations_are_separate(self):
        one = self.load('[scheduler]\nmax_attempts = 7\n')
        other = self.load('')

        self.assertEqual(7, one.scheduler.max_attempts)
        self.assertEqual(3, other.scheduler.max_attempts)

    def test_oslo_messaging_accepts_the_configuration(self):
        conf = self.load('[DEFAULT]\ntransport_url = local://world/cell\n')
        transport = oslo_messaging.get_rpc_transport(conf)
        self.addCleanup(transport.cleanup)
        target = oslo_messaging.Target(topic='topic', server='host')
        server = oslo_messaging.get_rpc_server(
            transport, target, [Endpoint()], executor='threading')
        server.start()
        self.addCleanup(server.wait)
        self.addCleanup(server.stop)

        self.assertEqual('noted', oslo_messaging.get_rpc_client(
            transport, target).call({}, 'note'))

    def test_later_registrations_of_oslo_messaging_are_the_same(self):
        conf = self.load('')

        for url in ('rabbit://host/', 'kombu+memory:///', 'local://w/c'):
            transport = oslo_messaging.get_notification_transport(conf, url)
            self.addCleanup(transport.cleanup)
            oslo_messaging.Notifier(transport, 'me', topics=['topic'])

        self.assertEqual([], conf.oslo_messaging_notifications.driver)


class TestFiles(LoadingTestCase):

    def test_later_file_overrides_the_earlier(self):
        files = [self.write('[scheduler]\nmax_attempts = 4\n', 'a.conf'),
                 self.write('[scheduler]\nmax_attempts = 5\n', 'b.conf')]

        conf = loader.load([], files=files, dirs=[])

        self.assertEqual(5, conf.scheduler.max_attempts)

    def test_environment_names_the_files_of_a_process_without_any(self):
        first = self.write('[scheduler]\nmax_attempts = 7\n')
        second = self.write('[scheduler]\nclaim_attempts = 6\n', 'b.conf')
        self.useFixture(fixtures.EnvironmentVariable(
            'CELLSCHED_CONFIG', os.pathsep.join([first, second])))

        conf = loader.load([])

        self.assertEqual((7, 6), (
            conf.scheduler.max_attempts, conf.scheduler.claim_attempts))
        self.useFixture(fixtures.EnvironmentVariable(
            'CELLSCHED_CONFIG', first + 'x'))
        self.assertIn(f'{first}x', self.refuse([]))

    def test_arguments_name_a_file_and_a_directory(self):
        path = self.write('[scheduler]\nmax_attempts = 4\nworkers = 2\n')
        (self.directory / 'conf.d').mkdir()
        self.write('[scheduler]\nmax_attempts = 5\n', 'conf.d/b.conf')

        conf = loader.load(['--config-file', path, '--debug',
                            f'--config-dir={self.directory / "conf.d"}'])

        self.assertEqual(5, conf.scheduler.max_attempts)
        self.assertEqual(2, conf.scheduler.workers)
        self.assertTrue(conf.debug)

    def test_missing_file_is_named(self):
        path = str(self.directory / 'missing.conf')

        for refusal in (self.refuse(['--config-file', path]),
                        self.refuse([], files=[path])):
            self.assertIn(path, refusal)
            self.assertIn('No such file', refusal)

    def test_unreadable_file_is_named(self):
        if os.geteuid() == 0:
            self.skipTest('root may read everything')
        path = self.write('')
        os.chmod(path, 0)

        self.assertIn(path, self.refuse(['--config-file', path]))

    def test_file_and_directory_in_place_of_each_other_are_named(self):
        for option, path in (('--config-file', str(self.directory)),
                             ('--config-dir', self.write(''))):
            self.assertIn(path, self.refuse([option, path]))

    def test_binary_file_is_named(self):
        path = self.directory / 'a.conf'
        path.write_bytes(b'[DEFAULT]\nhost = \xff\xfe\n')

        self.assertIn(f'{path}: the file is not text in UTF-8',
                      self.refuse([], files=[str(path)]))

    def test_pipe_is_refused_and_not_opened(self):
        path = str(self.directory / 'a.conf')
        os.mkfifo(path)

        self.assertIn(f'{path}: it is a pipe', self.refuse([], files=[path]))

    def test_line_without_an_assignment_is_named_but_not_quoted(self):
        refusal = self.refused('[database]\n\nconnection s3cret\n')

        self.assertIn('a.conf: line 3:', refusal)
        self.assertNotIn('s3cret', refusal)

    def test_assignment_outside_of_a_group_is_refused(self):
        self.assertIn('a.conf: line 1:', self.refused('host = me\n'))


class TestNames(LoadingTestCase):

    def test_unknown_name_is_answered_with_file_group_and_a_like_name(self):
        for text, *expected in (
                ('[scheduler]\nmax_attemps = 3\n',
                 f'{self.directory}/a.conf: [scheduler] max_attemps:',
                 'did you mean max_attempts?'),
                ('[DEFAULT]\ntransport_ulr = local://a/b\n',
                 'did you mean transport_url?'),
                # oslo.config would ignore the line.
                ('[scheduler]\nmax-attempts = 5\n',
                 'did you mean max_attempts?'),
                ('[oslo_messaging_rabbit]\nrabbit_quorum_queues = true\n',
                 'did you mean rabbit_quorum_queue?'),
                ('[schedular]\nmax_attempts = 5\n', 'a.conf: [schedular]:',
                 'did you mean [scheduler]?')):
            with self.subTest(text):
                self.assertRefused(text, *expected)

    def test_unknown_name_in_a_file_of_a_directory_is_refused(self):
        self.write('[scheduler]\nmax_attemps = 3\n')

        self.assertIn('a.conf: [scheduler] max_attemps', self.refuse(
            [], files=[], dirs=[str(self.directory)]))

    def test_unknown_name_without_a_similar_name_gets_no_suggestion(self):
        refusal = self.refused('[scheduler]\nzzz = 3\n')

        self.assertIn('[scheduler] zzz', refusal)
        self.assertNotIn('did you mean', refusal)

    def test_foreign_group_is_accepted(self):
        conf = self.load('[neutron]\nurl = http://network\n'
                         '[oslo_reports]\nlog_dir = /tmp\n')

        self.assertNotIn('neutron', conf)

    def test_name_of_a_group_is_case_insensitive(self):
        self.assertEqual(5, self.load(
            '[Scheduler]\nmax_attempts = 5\n').scheduler.max_attempts)
        self.assertIn('max_attemps', self.refused(
            '[Scheduler]\nmax_attemps = 5\n'))

    def test_names_of_the_libraries_are_known(self):
        conf = self.load(
            '[DEFAULT]\nrpc_response_timeout = 7\nlog_file = x\n'
            '[oslo_messaging_rabbit]\nrabbit_quorum_queue = true\n'
            '[oslo_messaging_tracing]\ntracing_enabled = false\n'
            '[oslo_messaging_notifications]\ndriver = noop\n'
            '[database]\nmax_pool_size = 3\n')

        self.assertTrue(conf.oslo_messaging_rabbit.rabbit_quorum_queue)
        self.assertEqual(3, conf.database.max_pool_size)

    def test_older_names_of_the_libraries_are_known(self):
        conf = self.load('[DEFAULT]\nlogfile = x\nrpc_thread_pool_size = 9\n')

        self.assertEqual('x', conf.log_file)
        self.assertEqual(9, conf.executor_thread_pool_size)


class TestValues(LoadingTestCase):

    def test_bad_value_is_answered_with_file_and_group(self):
        for text, *expected in (
                ('[scheduler]\nmax_attempts = many\n',
                 f'{self.directory}/a.conf: [scheduler] max_attempts:',
                 "'many'"),
                ('[scheduler]\nmax_attempts = 0\n',
                 '[scheduler] max_attempts:', 'greater than or equal to 1'),
                ('[DEFAULT]\nreport_interval = often\n',
                 'a.conf: [DEFAULT] report_interval:'),
                ('[DEFAULT]\ndefault_availability_zone = a:b\n',
                 'a.conf: [DEFAULT] default_availability_zone:'),
                # Options of libraries, and an older name of one.
                ('[DEFAULT]\nrpc_response_timeout = soon\n',
                 'a.conf: [DEFAULT] rpc_response_timeout:'),
                ('[oslo_messaging_rabbit]\nrabbit_quorum_queue = perhaps\n',
                 'a.conf: [oslo_messaging_rabbit] rabbit_quorum_queue'),
                ('[DEFAULT]\nrpc_thread_pool_size = many\n',
                 'executor_thread_pool_size')):
            with self.subTest(text):
                self.assertRefused(text, *expected)

    def test_bad_value_of_an_option_with_an_argument_is_named(self):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            refusal = self.refused('[DEFAULT]\ndebug = perhaps\n')

        self.assertIn('a.conf: [DEFAULT] debug: Invalid Boolean value',
                      refusal)
        self.assertEqual('', said.getvalue())

    def test_unknown_argument_exits_like_argparse(self):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            error = self.assertRaises(
                SystemExit, loader.load, ['--nonsense'], [], [])

        self.assertEqual(2, error.code)
        self.assertIn('--nonsense', said.getvalue())

    def test_password_with_a_single_dollar_is_refused_and_not_quoted(self):
        refusal = self.refused(
            '[database]\nconnection = mysql://u:pa$s3cret@host/db\n')

        self.assertIn('a.conf: [database] connection:', refusal)
        self.assertNotIn('s3cret', refusal)

    def test_password_with_a_doubled_dollar_is_read(self):
        conf = self.load(
            '[database]\nconnection = mysql://u:pa$$s3cret@host/db\n')

        self.assertEqual('mysql://u:pa$s3cret@host/db',
                         conf.database.connection)

    def test_missing_group_of_another_program_is_named(self):
        error = self.assertRaises(
            exception.ConfigurationInvalid, loader.check_values,
            loader.new_conf(), [('api_database', 'connection')])

        self.assertIn('[api_database] connection: it is not registered',
                      str(error))


class TestFiniteValues(LoadingTestCase):

    def test_not_finite_number_is_refused(self):
        for group, name in (
                ('cells', 'timeout'), ('conductor', 'recovery_interval'),
                ('filter_scheduler', 'ram_weight_multiplier'),
                ('DEFAULT', 'cpu_allocation_ratio')):
            for value in 'nan', 'inf', '-inf':
                self.assertRefused(
                    f'[{group}]\n{name} = {value}\n', f'[{group}] {name}:')


class TestEmptyValues(LoadingTestCase):

    def test_number_or_name_without_a_value_is_refused(self):
        for group, name in (
                ('scheduler', 'discover_hosts_in_cells_interval'),
                ('scheduler', 'max_instances_per_request'),
                ('scheduler', 'workers'), ('cells', 'timeout'),
                ('oslo_messaging_rabbit', 'rabbit_qos_prefetch_count'),
                ('DEFAULT', 'state_path'), ('scheduler', 'driver'),
                ('DEFAULT', 'default_availability_zone')):
            self.assertRefused(f'[{group}]\n{name} =\n',
                               f'a.conf: [{group}] {name}: it has no value')

    def test_empty_text_and_list_are_values(self):
        conf = self.load(
            '[coordination]\nconnection =\n[database]\nmysql_sql_mode =\n'
            '[filter_scheduler]\nweight_classes =\n')

        self.assertEqual(('', '', []), (
            conf.coordination.connection, conf.database.mysql_sql_mode,
            conf.filter_scheduler.weight_classes))


class TestEnvironment(LoadingTestCase):

    def refused_variable(self, name, value):
        with fixtures.EnvironmentVariable(name, value):
            return self.refused('[DEFAULT]\nreport_interval = 7\n')

    def test_error_names_the_variable(self):
        for name, value, expected in (
                ('OS_SCHEDULER__MAX_ATTEMPTS', 'many',
                 '[scheduler] max_attempts'),
                ('OS_DEFAULT__REPORT_INTERVAL', 'x', 'not a number'),
                ('OS_DEFAULT__DEBUG', 'maybe', 'boolean'),
                ('OS_SCHEDULER__MAX_ATTEMPTS', '', 'it has no value'),
                ('OS_SCHEDULER__MAX_ATEMPTS', '3', 'mean max_attempts?'),
                ('OS_SHEDULER__MAX_ATTEMPTS', '3', 'mean [scheduler]?'),
                ('OS_DATABASE__USE_DB_RECONNECT', '1', 'has no effect')):
            refusal = self.refused_variable(name, value)
            self.assertIn(f'environment variable {name}: [', refusal)
            self.assertIn(expected, refusal)

    def test_password_is_not_quoted(self):
        self.assertNotIn('s3cret', self.refused_variable(
            'OS_DATABASE__CONNECTION', 'mysql://u:pa$s3cret@host/db'))

    def test_variables_of_other_programs_are_accepted(self):
        for name in 'OS_AUTH_URL', 'OS_KEYSTONE__URL', 'OTHER__NAME':
            self.useFixture(fixtures.EnvironmentVariable(name, 'x'))

        self.assertNotIn('keystone', self.load(''))


class TestMessaging(base.TestCase):

    def test_second_configuration_gets_the_messaging_options(self):
        conf = cfg.ConfigOpts()

        loader.register_messaging(conf)
        loader.register_messaging(conf)

        conf([], default_config_files=[])
        self.assertFalse(conf.oslo_messaging_tracing.tracing_enabled)
        self.assertFalse(conf.oslo_messaging_metrics.metrics_enabled)
        self.assertEqual(60, conf.rpc_response_timeout)
        # A service that is stopped keeps few messages from the others.
        self.assertEqual(
            10, conf.oslo_messaging_rabbit.rabbit_qos_prefetch_count)
        # Callers that died keep no thread for long.
        self.assertEqual(3, conf.oslo_messaging_rabbit
                         .kombu_missing_consumer_retry_timeout)


class TestWithoutMessages(LoadingTestCase):
    """What is read for who sends and receives nothing."""

    def load(self, text):
        return loader.load([], files=[self.write(text)], dirs=[],
                           messages=False)

    def refused(self, text):
        return self.refuse([], files=[self.write(text)], dirs=[],
                           messages=False)

    def test_messaging_options_are_checked_by_senders(self):
        conf = self.load(
            '[DEFAULT]\ntransport_url = local://w/c\n'
            'rpc_response_timeout = soon\n'
            '[oslo_messaging_rabbit]\nrabit_retry_interval = 2\n')

        self.assertNotIn('transport_url', conf)
        self.assertNotIn('oslo_messaging_rabbit', conf)

    def test_rarely_set_messaging_options_are_known(self):
        conf = self.load('[DEFAULT]\nrpc_ping_enabled = true\n')

        self.assertNotIn('rpc_ping_enabled', conf)

    def test_mistyped_names_are_refused(self):
        self.assertIn('did you mean transport_url?',
                      self.refused('[DEFAULT]\ntransport_ulr = local://w\n'))
        self.assertIn(
            'did you mean [oslo_messaging_rabbit]?',
            self.refused('[oslo_mesaging_rabbit]\nssl = true\n'))
        self.assertIn('did you mean max_attempts?',
                      self.refused('[scheduler]\nmax_atempts = 2\n'))

    def test_unread_messaging_options_are_of_oslo_messaging(self):
        [default] = [options for group, options in loader.list_messaging()
                     if group is None]
        groups = {group for group, _ in (
            *loader.list_messaging(), *loader.UNLISTED) if group}

        self.assertLessEqual(
            loader.MESSAGING_NAMES, {option.dest for option in default})
        self.assertEqual(set(), {
            group for group in groups
            if not group.startswith(loader.MESSAGING_PREFIX)})
