# SPDX-License-Identifier: Apache-2.0

import fixtures
import yaml

from cellsched.db.api import cell_mappings
from tests.unit.cli import base
from tests.unit.db import samples

URL = f'mysql+pymysql://u:{base.QUOTED}@host/db'


class TestValidateConfig(base.CommandTestCase):

    def validate(self, *argv):
        ran = self.shell('config', 'validate', *argv)
        self.assertKeepsSecrets(ran)
        self.assertEqual('', ran.err)
        return ran

    def problems(self, *argv, **groups):
        """Return the problems of a file with these groups, in one line each.

        All that is said of where they are is the file's name.
        """
        self.write('api.conf', **groups)
        return self.validated(*argv)

    def validated(self, *argv):
        ran = self.validate(*argv)
        lines = ran.out.replace(f'{self.api_conf}: ', '').splitlines()
        if lines == ['Nothing is wrong.']:
            lines = []
        self.assertEqual(1 if lines else 0, ran.code)
        return lines

    def test_valid_configuration_exits_with_0(self):
        self.write_api_conf(
            scheduler={'max_attempts': 5},
            filter_scheduler={'enabled_filters': 'NumInstancesFilter',
                              'max_instances_per_host': 7},
            database={'connection': URL},
            oslo_concurrency={'lock_path': '/tmp'})

        self.assertEqual(base.Ran(0, 'Nothing is wrong.\n', ''),
                         self.validate())
        self.assertEqual([], self.validate('-f', 'json').data)
        self.assertEqual([], self.problems())

    def test_all_errors_are_shown_at_once(self):
        found = self.problems(
            DEFAULT={'transport_url': 'rabbit://host/'},
            scheduler={'max_attemps': 3, 'max_attempts': 0, 'driver': 'nix'},
            cells={'timeout': 'soon', 'refresh_interval': -1},
            filter_scheduler={'enabled_filters': 'ComputeFilter,NixFilter',
                              'weight_classes': 'no.such.Weigher'},
            filter_schedular={'a': 1, 'b': 2}, claims={'store': 'nix'},
            quota={'driver': 'nix'})

        self.assertEqual(
            ['[scheduler] max_attemps', '[filter_schedular]',
             '[cells] refresh_interval', '[cells] timeout',
             '[scheduler] max_attempts'],
            [*[line.partition(': ')[0] for line in found[:2]],
             *sorted(line.partition(': ')[0] for line in found[2:5])])
        for bound in ('greater than or equal to 1', "'soon'",
                      'did you mean max_attempts?'):
            self.assertIn(bound, ' '.join(found))
        for line, name in zip(found[5:], (
                'NixFilter', 'no.such.Weigher', 'nix', 'nix', 'nix')):
            self.assertIn(name, line)
        self.assertEqual(10, len(found))

    def test_values_without_effect_or_meaning_are_shown(self):
        self.useFixture(fixtures.EnvironmentVariable(
            'OS_SCHEDULER__MAX_ATEMPTS', '3'))
        found = self.problems(
            DEFAULT={'log_config_append': '/missing'},
            database={'use_db_reconnect': 'true'},
            scheduler={'max_instances_per_request': ''})

        self.assertEqual(
            ['[database] use_db_reconnect',
             'environment variable OS_SCHEDULER__MAX_ATEMPTS',
             '[scheduler] max_instances_per_request',
             '[DEFAULT] log_config_append'],
            [line.partition(': ')[0] for line in found])
        [line] = self.problems(DEFAULT={'report_interval': 40})[1:]
        self.assertIn('[DEFAULT] service_down_time: 60 is too low', line)

    def test_unsupported_versions_of_messages_are_shown(self):
        found = self.problems(upgrade_levels={
            'scheduler': '99.9', 'compute': 'banana', 'conductor': '2'})

        self.assertEqual(
            ['[upgrade_levels] compute', '[upgrade_levels] conductor',
             '[upgrade_levels] scheduler'],
            [line.partition(': ')[0] for line in found])

    def test_foreign_group_is_named_unless_excluded(self):
        groups = {'keystone_authtoken': {'a': 1, 'b': 2}}

        self.assertEqual(['[keystone_authtoken]: unknown option group'],
                         self.problems(**groups))
        self.assertEqual([], self.problems(
            '--exclude-group', 'keystone_authtoken', **groups))

    def test_options_of_disabled_plugins_are_known(self):
        self.assertEqual([], self.problems(
            filter_scheduler={'max_instances_per_host': 7}))

    def test_bad_urls_are_named_by_their_options(self):
        found = self.problems(
            DEFAULT={'transport_url': f'nix://u:{base.PASSWORD}@host/'},
            api_database={'connection': 'mysql+pymysql://u:a@b@host/db'},
            database={'connection': URL.replace('mysql', 'nixsql')},
            claims={'connection': 'secret'})

        self.assertEqual(
            ['[api_database] connection', '[database] connection',
             '[claims] connection', '[DEFAULT] transport_url'],
            [line.partition(': ')[0] for line in found])
        self.assertIn('%40', found[0])
        self.assertNotIn('secret', ' '.join(found))

    def test_certificates_of_several_brokers_are_a_warning(self):
        for hosts, warns in (('u:p@h1,u:p@h2', True), ('u:p@h1', False)):
            self.write('api.conf', DEFAULT={
                'transport_url': f'rabbit://{hosts}/v'},
                oslo_messaging_rabbit={'ssl': True, 'ssl_ca_file': '/none'})
            ran = self.shell('config', 'validate')

            self.assertIn('ssl_ca_file', ran.out)
            self.assertEqual(warns, 'the names of all 2 hosts' in ran.err)

    def test_contradicting_queue_options_are_named(self):
        [found] = self.problems(
            DEFAULT={'transport_url': 'rabbit://u:p@h/v'},
            oslo_messaging_rabbit={'rabbit_ha_queues': True})

        self.assertIn('[oslo_messaging_rabbit] rabbit_ha_queues', found)

    def test_claim_store_must_have_the_required_capabilities(self):
        [found] = self.problems(
            api_database={'connection': self.sqlite('api')},
            claims={'store': 'memory', 'require': 'durable'})

        self.assertIn('[claims] store: memory lacks durable; expected', found)

    def test_unreadable_file_is_the_single_problem(self):
        for text in ('[scheduler]\nmax_attempts\n', 'x = 1\n[a\n'):
            self.api_conf.write_text(text)
            [found] = self.validated()
            self.assertIn('line 2', found)
        self.api_conf.unlink()
        [found] = self.validated()
        self.assertIn('No such file', found)
        [found] = self.problems(filter_scheduler={'enabled_filters': '$x'})
        self.assertIn('enabled_filters', found)

    def test_problems_are_shown_as_json_and_yaml(self):
        self.write('api.conf', cells={'timeout': 0})

        [found] = self.validate('-f', 'json').data

        self.assertEqual(f'{self.api_conf}: [cells] timeout', found['field'])
        self.assertIn('0.1', found['problem'])
        self.assertEqual(
            [found], yaml.safe_load(self.validate('-f', 'yaml').out))


class TestConnect(base.CommandTestCase):

    def found(self, *argv):
        ran = self.shell('config', 'validate', *argv)
        self.assertKeepsSecrets(ran)
        return ran.code, ran.out

    def test_unreachable_database_is_shown_on_request(self):
        self.write_api_conf('sqlite:////nowhere/api.sqlite')

        self.assertEqual((0, 'Nothing is wrong.\n'), self.found())
        code, said = self.found('--connect')
        self.assertEqual(1, code)
        self.assertEqual(1, len(said.splitlines()), said)
        self.assertIn('The API database', said)

    def test_schemas_are_looked_at(self):
        self.write_api_conf(self.sqlite('empty'))

        code, said = self.found('--connect')

        self.assertEqual(1, code)
        self.assertIn('api_db sync', said)

    def test_unreachable_cells_are_named(self):
        self.write_api_conf()
        self.assertEqual(0, self.manage('claims_db', 'sync').code)
        self.assertEqual((0, 'Nothing is wrong.\n'), self.found('--connect'))
        with self.parts('api.conf').database.writer() as connection:
            cell_mappings.create(connection, samples.cell('cell1'),
                                 samples.NOW)

        code, said = self.found('--connect')

        self.assertEqual(1, code)
        self.assertIn('Cell cell1 did not answer', said)
