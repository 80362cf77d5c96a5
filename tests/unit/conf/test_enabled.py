# SPDX-License-Identifier: Apache-2.0
"""Options are registered for the plug-ins that are enabled."""

import fixtures
from oslo_config import cfg

from cellsched.claims.placement import PlacementClaims
from cellsched.conf import enabled
from cellsched.conf import loader
from cellsched.conf import opts
from cellsched import exception
from cellsched.filters import base as filters
from cellsched import plugins
from cellsched.quota.unified import UnifiedLimitsDriver
from cellsched.virt import base as virt
from tests import broken_packages
from tests.unit import base
from tests.unit import installing


class TestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.path = self.temporary_directory() / 'a.conf'

    def install(self, write):
        self.useFixture(installing.Installed(write))

    def load(self, text=''):
        self.path.write_text(text)
        return loader.load([], files=[str(self.path)], dirs=[])

    def refused(self, text):
        return str(self.assertRaises(
            exception.ConfigurationInvalid, self.load, text))


class TestRegistered(TestCase):

    def test_options_of_enabled_plugins_are_registered(self):
        conf = self.load('[filter_scheduler]\n'
                         'enabled_filters = NumInstancesFilter\n'
                         'max_instances_per_host = 7\n')

        self.assertEqual(7, conf.filter_scheduler.max_instances_per_host)

    def test_options_of_disabled_plugins_are_not_registered(self):
        conf = self.load('[filter_scheduler]\nmax_instances_per_host = 7\n')

        self.assertNotIn('max_instances_per_host', conf.filter_scheduler)

    def test_class_named_by_its_path_has_its_options(self):
        path = 'tests.unit.scheduler.decision.test_registry.ColumnFilter'
        conf = self.load('[filter_scheduler]\n'
                         f'available_filters = {path}\n'
                         'enabled_filters = ColumnFilter\n'
                         '[strange]\nstrange_limit = 3\n')

        self.assertEqual(3, conf.strange.strange_limit)

    def test_bad_value_of_an_enabled_plugin_is_refused(self):
        self.assertIn('max_instances_per_host', self.refused(
            '[filter_scheduler]\nenabled_filters = NumInstancesFilter\n'
            'max_instances_per_host = many\n'))

    def test_mistyped_option_of_an_enabled_plugin_is_refused(self):
        self.assertIn('did you mean max_instances_per_host?', self.refused(
            '[filter_scheduler]\nenabled_filters = NumInstancesFilter\n'
            'max_instance_per_host = 7\n'))


class TestInstalled(TestCase):
    """What is installed beside, and is not enabled."""

    def test_options_in_a_file_are_known(self):
        self.install(broken_packages.write_working)

        conf = self.load('[third_party]\nleast_gpus = 3\n')

        self.assertNotIn('third_party', conf)

    def test_mistyped_option_of_its_group_is_refused(self):
        self.install(broken_packages.write_working)

        self.assertIn('did you mean least_gpus?', self.refused(
            '[filter_scheduler]\nenabled_filters = GpuFilter\n'
            '[third_party]\nleast_gpu = 3\n'))
        self.assertIn('[filter_scheduler] no_such_option', self.refused(
            '[filter_scheduler]\nno_such_option = 3\n'))

    def test_broken_plugins_stop_no_service(self):
        self.install(broken_packages.write_broken)

        self.assertEqual(3, self.load().scheduler.max_attempts)

    def test_possible_option_of_a_broken_plugin_is_ignored_and_logged(self):
        self.install(broken_packages.write_broken)

        self.load('[filter_scheduler]\nabsent_weight_multiplier = 3\n')

        self.assertIn('absent_weight_multiplier', self.logs.output)
        self.assertIn('LeavingFilter', self.logs.output)

    def test_options_outside_of_broken_plugins_are_refused(self):
        self.install(broken_packages.write_broken)

        for text, hint in (
                ('[api_database]\nconnections = x\n', 'connection'),
                ('[conductor]\nworker = 3\n', 'workers'),
                ('[fake_virt]\nvcpu = 3\n', 'vcpus')):
            self.assertIn(f'did you mean {hint}?', self.refused(text))

    def test_missing_extras_leave_no_mistyped_name_unnoticed(self):
        for plugin in PlacementClaims, UnifiedLimitsDriver:
            self.useFixture(fixtures.MockPatchObject(
                plugin, 'opts', side_effect=ImportError('it is missing')))

        for text, hint in (
                ('[filter_scheduler]\nenabled_filtrs = RamFilter\n',
                 'enabled_filters'),
                ('[scheduler]\nmax_attempt = 3\n', 'max_attempts'),
                ('[claims]\nstores = sql\n', 'store'),
                ('[quota]\ndrivers = DbQuotaDriver\n', 'driver')):
            self.assertIn(f'did you mean {hint}?', self.refused(text))

    def test_listing_has_only_the_shipped_plugins(self):
        before = opts.list_opts()
        for write in (broken_packages.write_working,
                      broken_packages.write_broken):
            self.install(write)

            listed = opts.list_opts()

            self.assertEqual(
                [(group, [opt.name for opt in each])
                 for group, each in before],
                [(group, [opt.name for opt in each])
                 for group, each in listed])
        self.assertIn('max_instances_per_host', [
            opt.name for opt in dict(before)['filter_scheduler']])


class TestOtherKinds(TestCase):
    """What another service uses, in a file that several services read."""

    def load_agents(self, text):
        self.path.write_text(text)
        return loader.load([], files=[str(self.path)], dirs=[],
                           kinds=[plugins.CLAIMS, plugins.VIRT])

    def refused_agents(self, text):
        return str(self.assertRaises(
            exception.ConfigurationInvalid, self.load_agents, text))

    def test_groups_of_another_service_are_checked_by_their_readers(self):
        conf = self.load_agents(
            '[filter_scheduler]\nenabled_filters = NumInstancesFilter\n'
            'max_instances_per_host = many\nno_such_option = 3\n'
            '[fake_virt]\nvcpus = 7\n')

        self.assertNotIn('max_instances_per_host', conf.filter_scheduler)
        self.assertEqual(7, conf.fake_virt.vcpus)

    def test_options_of_another_service_in_shared_groups_are_known(self):
        self.install(broken_packages.write_working)

        conf = self.load_agents('[DEFAULT]\nservice_down_time = 70\n'
                                '[third_party]\nleast_gpus = 3\n')

        self.assertNotIn('third_party', conf)

    def test_mistyped_options_of_other_groups_are_refused(self):
        for text, hint in (
                ('[DEFAULT]\nreport_intervall = 3\n', 'report_interval'),
                ('[fake_virt]\nvcpu = 3\n', 'vcpus'),
                ('[conductor]\nworker = 3\n', 'workers')):
            self.assertIn(f'did you mean {hint}?', self.refused_agents(text))

    def test_mistyped_group_is_refused_beside_a_mistyped_name(self):
        self.assertIn('did you mean [conductor]?', self.refused_agents(
            '[filter_scheduler]\nenabled_filters = NoSuchFilter\n'
            '[conducter]\nworkers = 3\n'))

    def test_its_broken_plugins_stop_no_service(self):
        self.install(broken_packages.write_broken)

        conf = self.load_agents(
            '[filter_scheduler]\nenabled_filters = LeavingFilter\n')

        self.assertEqual(['LeavingFilter'],
                         conf.filter_scheduler.enabled_filters)


class TestMake(TestCase):

    def test_plugin_is_made_and_contained(self):
        conf = self.load()

        made = enabled.make(conf, plugins.VIRT, virt.ComputeDriver, conf, None)

        self.assertIsInstance(made, virt.ComputeDriver)
        self.assertIsInstance(made, plugins.PluginProxy)

    def test_broken_plugin_is_named_with_its_option(self):
        self.install(broken_packages.write_broken)
        for name, problem in (('leaving', 'SystemExit: 7'),
                              ('partial', 'destroy, list_instances'),
                              ('no_class',
                               'cellsched.virt.base.ComputeDriver')):
            conf = self.load(f'[DEFAULT]\ncompute_driver = {name}\n')

            error = self.assertRaises(
                exception.ConfigurationInvalid, enabled.make, conf,
                plugins.VIRT, virt.ComputeDriver, conf, None)

            self.assertIn(f'[DEFAULT] compute_driver: {name}: ', str(error))
            self.assertIn(problem, str(error))

    def test_error_for_a_failing_plugin_names_the_plugin(self):
        conf = self.load()
        for error in TypeError('x'), SystemExit('x'):
            def fail(error=error):
                raise error

            refusal = self.assertRaises(
                exception.ConfigurationInvalid, enabled.contained, conf,
                plugins.VIRT, fail)

            self.assertIn('[DEFAULT] compute_driver: fake: ', str(refusal))
            self.assertIn(f'{type(error).__name__}: x', str(refusal))

    def test_own_errors_are_raised_unchanged(self):
        conf = self.load()
        ours = exception.CellMappingNotFound(uuid='x')

        def fail():
            raise ours

        self.assertIs(ours, self.assertRaises(
            exception.CellMappingNotFound, enabled.contained, conf,
            plugins.VIRT, fail))


class _Clashing(filters.Filter):
    group = 'scheduler'

    @classmethod
    def opts(cls):
        return [cfg.StrOpt('max_attempts'), cfg.StrOpt('another')]


class TestOptions(TestCase):

    def test_option_of_another_plugin_is_an_error(self):
        conf = self.load()

        error = self.assertRaises(
            exception.ConfigurationInvalid, enabled.register_plugin, conf,
            _Clashing, 'the plug-in')

        self.assertIn('the plug-in: DuplicateOptError', str(error))

    def test_invalid_options_of_a_plugin_are_an_error(self):
        for said in ([1], None, 'text'):
            plugin = type('Plugin', (), {
                'group': 'some', 'opts': classmethod(lambda cls, s=said: s)})

            error = self.assertRaises(
                exception.ConfigurationInvalid, enabled.options_of, plugin,
                'the plug-in')

            self.assertIn('the plug-in: ', str(error))
