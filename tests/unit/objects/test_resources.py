# SPDX-License-Identifier: Apache-2.0
"""Resource classes, inventories, and what extra specs ask for."""

from importlib import metadata

import fixtures
import hypothesis
from hypothesis import strategies
import os_resource_classes
import stevedore

from cellsched import exception
from cellsched.objects import resource_class
from cellsched.objects import resources
from cellsched import plugins
from cellsched.testing import builders
from cellsched.testing.suite import resource_classes as suite
from tests import broken_packages
from tests.unit import base
from tests.unit import installing


class TestNames(base.TestCase):

    def test_standard_classes_are_the_classes_of_the_library(self):
        for name in os_resource_classes.STANDARDS:
            self.assertTrue(resources.is_known(name), name)

    def test_custom_classes_begin_with_custom(self):
        for name in ('CUSTOM_X', 'CUSTOM_' + 'A' * 248, 'CUSTOM__9'):
            self.assertTrue(resources.is_known(name), name)
        for name in ('', 'X', 'custom_x', 'CUSTOM_', 'CUSTOM_x', 'CUSTOM_X\n',
                     'CUSTOM_' + 'A' * 249, 'CUSTOM_\u00c4', 'VCPU ', 'VCPUS'):
            self.assertFalse(resources.is_known(name), name)

    def test_classes_of_parts_are_unknown(self):
        for name in ('CUSTOM_PCPU_1', 'CUSTOM_NUMA0_VCPU',
                     'CUSTOM_NUMA1_MEMORY_MB', 'CUSTOM_NUMA0_PAGES_4KB',
                     'CUSTOM_PCI_POOL_0123456789ABCDEF'):
            self.assertFalse(resources.is_known(name), name)
        self.assertTrue(resources.is_known('CUSTOM_PCPU_FAST'))


class TestRequested(base.TestCase):

    def test_amounts_are_by_class_and_include_zero(self):
        self.assertEqual(
            {'VGPU': 1, 'CUSTOM_GOLD': 2, 'VCPU': 0},
            resources.requested({
                'resources:VGPU': '1', 'resources:CUSTOM_GOLD': '02',
                'resources:VCPU': '0', 'resources1:VGPU': '3',
                'hw:cpu_policy': 'shared'}))

    def test_flavor_may_have_no_extra_specs(self):
        for extra_specs in None, {}:
            self.assertEqual({}, resources.requested(extra_specs))

    def test_unknown_class_is_refused_by_its_key(self):
        for name in ('', 'GPU', 'custom_x', 'a:b', 'CUSTOM_X\n', 'x' * 500,
                     '\U00010000' * 80):
            error = self.assertRaises(
                exception.InvalidField, resources.requested,
                {f'resources:{name}': '1'})
            self.assertIn('extra_specs.resources:', error.field)
            self.assertLess(len(error.field), 120)
            self.assertNotIn('\n', str(error))
            self.assertIn('CUSTOM_', error.expected)

    def test_invalid_amount_is_refused_with_the_bound(self):
        for said in ('', '-1', '1.5', 'one', ' 1', '1\n', '\u0661',
                     '2147483648', '9' * 5000, None, 1):
            error = self.assertRaises(
                exception.InvalidField, resources.requested,
                {'resources:VGPU': said})
            self.assertEqual(
                ('flavor', 'extra_specs.resources:VGPU',
                 'a whole number from 0 to 2147483647'),
                (error.where, error.field, error.expected))
        self.assertEqual({'VGPU': 2 ** 31 - 1}, resources.requested(
            {'resources:VGPU': '2147483647'}))


class TestInventory(base.TestCase):

    @hypothesis.given(
        *[strategies.integers(1, 40) for _ in range(3)],
        strategies.integers(0, 100))
    def test_amounts_are_admitted_within_the_units(
        self, least, most, step, amount
    ):
        inventory = resources.Inventory(
            9, min_unit=least, max_unit=most, step_size=step)

        self.assertEqual((least, most, step), inventory.units)
        self.assertEqual(
            amount in [each for each in range(least, most + 1)
                       if each % step == 0],
            inventory.admits(amount))


GROUP = {'requester_id': 'port', 'resources': {'CUSTOM_SEATS': 6}}


class Fallible(resource_class.ResourceClass):
    """Says what is wanted of it."""

    says = None

    def amount_taken(self, amount):
        if isinstance(self.says, BaseException):
            raise self.says
        return self.says


class Overridden(resource_class.ResourceClass):
    """Has the name of a standard class."""

    word = 'nonsense'


class Seats(resource_class.ResourceClass):
    """Seats, with the defaults."""


class Torn(resource_class.ResourceClass):
    """Has a unit of two lines."""

    unit = 'M\nB'


class ClassTestCase(base.TestCase):

    def install(self, *points):
        """Make entry points be there: pairs of a name and a target."""
        cache = dict(stevedore.ExtensionManager.ENTRY_POINT_CACHE)
        cache[plugins.RESOURCE_CLASSES] = [
            metadata.EntryPoint(name, target, plugins.RESOURCE_CLASSES)
            for name, target in points]
        self.useFixture(fixtures.MonkeyPatch(
            'stevedore.ExtensionManager.ENTRY_POINT_CACHE', cache))
        resources.load_classes.cache_clear()
        self.addCleanup(resources.load_classes.cache_clear)

    def parse(self, name, amount):
        return resources.requested({f'resources:{name}': str(amount)})

    def refused(self, name, amount=1):
        error = self.assertRaises(
            exception.InvalidField, self.parse, name, amount)
        self.assertEqual(f'extra_specs.resources:{name}', error.field)
        return error.expected


class TestStandardClasses(ClassTestCase):

    def test_amount_of_a_class_is_charged(self):
        for name in os_resource_classes.STANDARDS:
            for amount in suite.AMOUNTS:
                self.assertEqual({name: amount}, self.parse(name, amount))

    def test_descriptions_have_readable_names_and_units(self):
        for name, wanted in {
                'VCPU': ('CPUs', 'VCPU'), 'MEMORY_MB': ('memory', 'MB'),
                'NUMA_MEMORY_MB': ('NUMA_MEMORY_MB', 'MB'),
                'NET_BW_EGR_KILOBIT_PER_SEC': (
                    'outgoing bandwidth', 'kbit/s'),
                'VGPU': ('VGPU', 'VGPU')}.items():
            self.assertEqual(wanted, resources.describe(name))

    def test_plugin_does_not_replace_a_standard_class(self):
        self.install(
            ('VGPU', f'{__name__}:Overridden'),
            ('VCPU', 'tests.nonsense:Class'), ('VCPU', 'tests.nonsense:Other'))

        self.assertEqual({'VGPU': 3, 'VCPU': 2}, resources.requested(
            {'resources:VGPU': '3', 'resources:VCPU': '2'}))
        self.assertEqual(('VGPU', 'VGPU'), resources.describe('VGPU'))


class TestInstalledClasses(ClassTestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(installing.Installed(broken_packages.write_working))

    def test_class_of_a_plugin_has_its_own_description(self):
        self.assertEqual(('licences', 'seats'),
                         resources.describe('CUSTOM_SEATS'))

    def test_class_determines_the_amount_of_a_request(self):
        for amount, taken in (0, 0), (1, 5), (5, 5), (6, 10), (11, 15):
            request = builders.request(extra_specs={
                'resources:CUSTOM_SEATS': str(amount)})
            self.assertEqual(
                taken, request.resources().get('CUSTOM_SEATS', 0))

    def test_class_determines_the_amounts_of_groups(self):
        request = builders.request(extra_specs={
            'resources1:CUSTOM_SEATS': '2', 'resources1:CUSTOM_PLAIN': '2'},
            requested_resources=[GROUP])

        self.assertEqual(
            [(('CUSTOM_PLAIN', 2), ('CUSTOM_SEATS', 5)),
             (('CUSTOM_SEATS', 10),)],
            [each.resources for each in request.group_demand().groups])

    def test_amount_charged_above_the_maximum_is_refused(self):
        self.assertIn('charges at most 2147483647',
                      self.refused('CUSTOM_SEATS', 2 ** 31 - 1))
        error = self.assertRaises(
            exception.InvalidField, builders.request(requested_resources=[
                GROUP | {'resources': {'CUSTOM_SEATS': 2 ** 31 - 1}},
            ]).group_demand)
        self.assertEqual('requested_resources[0].resources.CUSTOM_SEATS',
                         error.field)

    def test_class_without_a_plugin_charges_the_request(self):
        self.assertEqual({'CUSTOM_OTHER': 7}, self.parse('CUSTOM_OTHER', 7))
        self.assertEqual(('CUSTOM_CACHE_MB', 'MB'),
                         resources.describe('CUSTOM_CACHE_MB'))
        self.assertEqual(('CUSTOM_OTHER', 'CUSTOM_OTHER'),
                         resources.describe('CUSTOM_OTHER'))


class TestBrokenClasses(ClassTestCase):

    def test_broken_classes_are_logged_and_refused(self):
        self.useFixture(installing.Installed(broken_packages.write_broken))

        for name in ('CUSTOM_LEAVING', 'CUSTOM_WORDY', 'CUSTOM_NO_CLASS',
                     'CUSTOM_UNMAKABLE'):
            self.assertEqual(resources.FAILED, self.refused(name))
            self.assertIn(f'cellsched.resource_classes {name}: ',
                          self.logs.output)
            self.assertEqual((name, name), resources.describe(name))
        self.assertEqual({'CUSTOM_OTHER': 7}, self.parse('CUSTOM_OTHER', 7))

    def test_name_of_two_packages_is_logged_and_refused(self):
        self.install(('CUSTOM_A', f'{__name__}:Fallible'),
                     ('CUSTOM_A', f'{__name__}:Overridden'))

        self.assertEqual(resources.FAILED, self.refused('CUSTOM_A'))
        self.assertIn('CUSTOM_A: several plug-ins have the name: '
                      f'{__name__}:Fallible, {__name__}:Overridden',
                      self.logs.output)

    def test_invalid_name_of_a_class_is_logged(self):
        self.install(('seats', f'{__name__}:Fallible'))

        self.assertEqual({}, resources.load_classes().usable)
        self.assertIn("cellsched.resource_classes seats: 'seats' is not the",
                      self.logs.output)

    def test_invalid_unit_of_a_class_is_logged(self):
        self.install(('CUSTOM_A', f'{__name__}:Torn'))

        self.assertEqual({'CUSTOM_A'}, resources.load_classes().broken)
        self.assertIn('CUSTOM_A: its unit is not valid; expected at most 40',
                      self.logs.output)

    def test_failing_or_invalid_answer_of_a_class_is_refused(self):
        self.install(('CUSTOM_A', f'{__name__}:Fallible'))
        for said in (None, 'much', 2.0, True, 0, 1, -5, ValueError('odd'),
                     SystemExit('odd')):
            self.useFixture(fixtures.MonkeyPatch(
                f'{__name__}.Fallible.says', said))

            self.assertEqual(resources.FAILED, self.refused('CUSTOM_A', 2))
        self.assertIn('Resource class CUSTOM_A failed', self.logs.output)
        self.assertIn('SystemExit: odd', self.logs.output)
        self.assertIn("2 is asked for, and 'much' is no", self.logs.output)


class TestSuite(suite.ResourceClassSuite, ClassTestCase):
    """The suite for plug-ins of others."""

    plugin = Seats
    name = 'CUSTOM_SEATS'

    def setUp(self):
        super().setUp()
        self.install((self.name, f'{__name__}:Seats'))
