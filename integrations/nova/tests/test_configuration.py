# SPDX-License-Identifier: Apache-2.0
"""Nova's options are copied, and problems are named."""

import tempfile
import types
import unittest

import nova.conf

from cellsched import exception
from cellsched_nova import configuration
from cellsched_nova import options

CONF = nova.conf.CONF


class TestCase(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        options.register_opts(CONF)
        cls.read()

    @staticmethod
    def read():
        CONF([], project='nova', default_config_files=[],
             default_config_dirs=[])

    def flags(self, group=None, **values):
        for name, value in values.items():
            CONF.set_override(name, value, group)
            self.addCleanup(CONF.clear_override, name, group)


class TestProductOptions(TestCase):

    def test_values_are_copied_from_nova(self):
        self.flags('filter_scheduler', ram_weight_multiplier=3.0)
        self.flags(service_down_time=7)

        conf = configuration.ProductOptions(CONF).conf

        self.assertEqual(3.0, conf.filter_scheduler.ram_weight_multiplier)
        self.assertEqual(7, conf.service_down_time)

    def test_changed_value_is_copied(self):
        followed = configuration.ProductOptions(CONF)
        self.flags('filter_scheduler', host_subset_size=5)

        self.assertTrue(followed.follow())
        self.assertFalse(followed.follow())
        self.assertEqual(5, followed.conf.filter_scheduler.host_subset_size)

    def test_options_of_filters_and_weighers_change_without_a_restart(self):
        text = ('[filter_scheduler]\nram_weight_multiplier = {}\n'
                'max_io_ops_per_host = {}\nhost_subset_size = {}\n'
                '[metrics]\nrequired = {}\n'
                '[scheduler]\nmax_attempts = {}\n')
        path = tempfile.NamedTemporaryFile('w+', suffix='.conf')
        self.addCleanup(path.close)
        self.addCleanup(self.read)
        self.write(path, text.format(1.0, 8, 1, True, 3))
        CONF([], project='nova', default_config_files=[path.name],
             default_config_dirs=[])
        configuration.make_mutable(CONF)
        followed = configuration.ProductOptions(CONF)

        def values():
            CONF.mutate_config_files()
            followed.follow()
            own = followed.conf
            return (own.filter_scheduler.ram_weight_multiplier,
                    own.filter_scheduler.max_io_ops_per_host,
                    own.filter_scheduler.host_subset_size,
                    own.metrics.required, own.scheduler.max_attempts)

        self.write(path, text.format(-2.5, 5, 4, False, 7))
        self.assertEqual((-2.5, 5, 4, False, 3), values())

        self.write(path, text.format('many', 6, 0, False, 3))
        with self.assertLogs(configuration.LOG.logger, 'ERROR') as logged:
            self.assertEqual((-2.5, 6, 4, False, 3), values())
        for name in 'host_subset_size', 'ram_weight_multiplier':
            self.assertIn(f'[filter_scheduler] {name}: ',
                          '\n'.join(logged.output))
        self.assertEqual(2, len(logged.output))

        self.write(path, text.format(1.5, 6, 2, False, 3))
        self.assertEqual((1.5, 6, 2, False, 3), values())

    @staticmethod
    def write(stream, text):
        stream.seek(0)
        stream.truncate()
        stream.write(text)
        stream.flush()

    def test_option_with_another_meaning_is_not_copied(self):
        # Nova accepts host names that are invalid for the product.
        self.flags(host='my_host')

        self.assertNotEqual(
            'my_host', configuration.ProductOptions(CONF).conf.host)

    def test_invalid_value_is_reported_once(self):
        followed = configuration.ProductOptions(CONF)
        kept = followed.conf.metrics.weight_multiplier
        self.flags('metrics', weight_multiplier=2.0)
        followed.conf.set_override = self.refuse

        self.assertRaisesRegex(
            exception.ConfigurationInvalid, 'weight_multiplier',
            followed.follow)
        self.assertFalse(followed.follow())
        self.assertEqual(kept, followed.conf.metrics.weight_multiplier)

    @staticmethod
    def refuse(name, value, group):
        raise ValueError('no such number')


class TestRead(TestCase):

    def refused(self, path):
        # As in a new process: Nova registers options of the command.
        CONF.reset()
        self.addCleanup(self.read)
        with self.assertRaises(exception.ConfigurationInvalid) as caught:
            configuration.read(['nova-scheduler', '--config-file', str(path)])
        self.assertEqual(1, len(str(caught.exception).splitlines()))
        return str(caught.exception)

    def test_file_in_another_encoding_is_refused(self):
        with tempfile.NamedTemporaryFile(suffix='.conf') as stream:
            stream.write(b'[DEFAULT]\n# caf\xe9\n')
            stream.flush()

            self.assertIn('not text in UTF-8', self.refused(stream.name))

    def test_missing_file_is_named(self):
        self.assertIn('/none.conf: the file cannot be read',
                      self.refused('/none.conf'))

    def test_secret_in_an_invalid_file_is_not_quoted(self):
        for text, problem in (
                ('[database]\nsecret\n', 'line 2'),
                ('[database]\nconnection = mysql://u:$secret@h/x\n',
                 '[database] connection: no option has the name after $')):
            with tempfile.NamedTemporaryFile('w', suffix='.conf') as stream:
                stream.write(text)
                stream.flush()

                found = self.refused(stream.name)

            self.assertIn(problem, found)
            self.assertNotIn('secret', found)

    def test_directory_in_place_of_a_file_is_refused(self):
        with tempfile.TemporaryDirectory() as directory:
            self.assertIn(directory, self.refused(directory))


class TestProblems(TestCase):

    def test_default_configuration_of_nova_has_no_problem(self):
        self.assertEqual([], configuration.problems(CONF))

    def test_each_invalid_value_has_a_line(self):
        with tempfile.NamedTemporaryFile('w', suffix='.conf') as stream:
            stream.write('[DEFAULT]\nservice_down_time = long\n'
                         '[scheduler]\nmax_attempts = 0\n'
                         '[cellsched]\nclaim_timeout = -1\n')
            stream.flush()
            self.addCleanup(self.read)
            CONF([], project='nova', default_config_files=[stream.name],
                 default_config_dirs=[])

            found = configuration.problems(CONF)

        self.assertEqual(
            ['[DEFAULT] service_down_time', '[scheduler] max_attempts',
             '[cellsched] claim_timeout'],
            [line.partition(':')[0] for line in found])
        self.assertEqual('[DEFAULT] service_down_time: \'long\' is not a '
                         'number; expected a whole number', found[0])

    def test_missing_database_option_has_a_line(self):
        self.assertEqual(
            ['[api_database] connection', '[database] connection'],
            [line.partition(':')[0] for line in configuration.problems(
                CONF, 'api_database', 'database')])

        self.flags('api_database', connection='sqlite://')

        [line] = configuration.problems(CONF, 'api_database', 'database')
        self.assertIn('[database] connection', line)

    def test_missing_authentication_to_placement_has_a_line(self):
        [line] = configuration.problems(CONF, 'placement')
        self.assertEqual('[placement] auth_type', line.partition(':')[0])

        for name in 'auth_type', 'auth_section':
            with self.subTest(name):
                self.flags('placement', **{name: 'password'})
                self.assertEqual([], configuration.problems(CONF, 'placement'))
                CONF.clear_override(name, 'placement')

    def test_cell_with_a_template_of_an_unset_url_is_named(self):
        cell = types.SimpleNamespace(
            identity='uuid(cell1)', database_connection='{scheme}://db/nova')
        with self.assertRaisesRegex(
                exception.ConfigurationInvalid, 'cell1') as caught:
            configuration.check_cells(CONF, [cell])
        self.assertEqual(
            '[database] connection', caught.exception.field)

        self.flags('database', connection='sqlite://')
        configuration.check_cells(CONF, [cell])

    def test_each_problem_has_a_line(self):
        self.flags(servicegroup_driver='mc')
        self.flags('filter_scheduler',
                   enabled_filters=['ComputeFilter', 'Missing'],
                   weight_classes=['no.such.Weigher'])

        driver, missing, weigher = configuration.problems(CONF)

        self.assertIn('[DEFAULT] servicegroup_driver = mc: ', driver)
        self.assertIn('enabled_filters: Missing', missing)
        self.assertIn('weight_classes: no.such.Weigher: ', weigher)
