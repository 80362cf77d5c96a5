# SPDX-License-Identifier: Apache-2.0
"""The suite of filters finds what is wrong."""

import numpy as np

from cellsched.filters import base as filters
from cellsched.filters import num_instances
from cellsched.testing import builders
from cellsched.testing.suite import filters as suite
from tests.unit import base
from tests.unit.testing.suite import runner


class NumInstancesFilter(num_instances.NumInstancesFilter):
    """Is what a wrong one is made of."""


class Suite(suite.FilterSuite):
    """Is the suite over a filter that nobody installed."""

    installed = False


class TestFilterSuite(base.TestCase):

    def assertFinds(self, expected, **wrong):
        """Check which test finds what is wrong."""
        kind = type('Wrong', (NumInstancesFilter,),
                    {'__doc__': 'Is wrong.'} | wrong)
        self.assertIn(expected, runner.failures(Suite, kind))

    def test_sound_filter_passes(self):
        self.assertEqual(set(), runner.failures(Suite, NumInstancesFilter))
        self.assertEqual(set(), runner.failures(
            suite.FilterSuite, num_instances.NumInstancesFilter))

    def test_filter_without_entry_point_is_found(self):
        self.assertEqual(
            {'test_entry_point_has_the_name_of_the_class'},
            runner.failures(suite.FilterSuite, NumInstancesFilter))

    def test_filter_without_documentation_is_found(self):
        self.assertFinds('test_class_has_documentation', __doc__=None)

    def test_undefined_demands_are_detected(self):
        for name in ('hw:numa_nodes', 'flavor.extra_spec', 'new',
                     'flavor.extra_specs.licence:*'):
            self.assertFinds('test_reads_are_demands', reads={name})
        for name in ('flavor.extra_specs.hw:numa_nodes', 'numa_topology',
                     'flavor.extra_specs.hw:numa_cpus*',
                     'flavor.extra_specs.resources*',
                     'flavor.extra_specs.unscoped',
                     'image.properties.hw_disk_bus'):
            kind = type('Right', (NumInstancesFilter,), {
                '__doc__': 'Is right.', 'reads': frozenset({name})})
            self.assertEqual(set(), runner.failures(Suite, kind))

    def test_mask_of_the_wrong_shape_is_found(self):
        self.assertFinds('test_answer_has_an_entry_for_each_host',
                         keep=lambda *args: np.ones(10, dtype=bool))
        self.assertFinds('test_answer_has_an_entry_for_each_host',
                         keep=lambda *args: True)

    def test_mask_of_numbers_is_found(self):
        self.assertFinds('test_mask_is_of_booleans',
                         keep=lambda self, hosts, _: np.ones(len(hosts)))

    def test_filter_with_state_is_detected(self):
        def keep(self, hosts, request):
            self.times = getattr(self, 'times', 0) + 1
            return hosts['num_instances'] < self.times

        self.assertFinds(
            'test_plugin_keeps_no_state_between_requests', keep=keep)
        self.assertFinds('test_same_question_has_the_same_answer', keep=keep)

    def test_local_filter_depending_on_other_hosts_is_detected(self):
        def below_mean(self, hosts, request):
            return hosts['num_instances'] <= hosts['num_instances'].mean()

        def below_all(self, hosts, request):
            return (hosts['num_instances']
                    < hosts.whole['num_instances'].sum() - 45)

        self.assertFinds(
            'test_local_answers_depend_on_no_other_host', keep=below_mean)
        self.assertFinds(
            'test_local_answers_ignore_amounts_taken_of_other_hosts',
            keep=below_all)
        for keep in below_mean, below_all:
            kind = type('Right', (NumInstancesFilter,), {
                '__doc__': 'Is right.', 'keep': keep, 'local': False})
            self.assertEqual(set(), runner.failures(Suite, kind))

    def test_filter_returning_none_passes(self):
        kind = type('Right', (NumInstancesFilter,), {
            '__doc__': 'Is right.', 'keep': lambda *args: None})

        self.assertEqual(set(), runner.failures(Suite, kind))

    def test_filter_changing_the_table_is_detected(self):
        def keep(self, hosts, request):
            hosts.take(0, {'VCPU': 3})
            return hosts['num_instances'] < 3

        self.assertFinds('test_table_and_request_are_not_changed', keep=keep)

    def test_filter_changing_the_request_is_detected(self):
        def keep(self, hosts, request):
            request.num_instances = 3
            return hosts['num_instances'] < 3

        self.assertFinds('test_table_and_request_are_not_changed', keep=keep)

    def test_option_without_help_is_found(self):
        (option,) = NumInstancesFilter.opts()
        option.help = ' '

        self.assertFinds('test_options_have_help',
                         opts=classmethod(lambda cls: [option]))

    def test_unreadable_reason_is_detected(self):
        for reason in ('', 'Is full', 'is full.', 'is full of ' + 'x' * 60,
                       'is not unused', "doesn't lack %s", 'is {host}'):
            self.assertFinds('test_reason_reads_well', reason=reason)
        for reason in ('full', 'cannot do'):
            self.assertFinds('test_reason_begins_with_a_verb', reason=reason)

    def test_readable_reasons_pass(self):
        for reason in ('lacks memory', 'does not answer', 'is under load',
                       'has no unit to spare'):
            kind = type('Right', (NumInstancesFilter,),
                        {'__doc__': 'Is right.', 'reason': reason})
            self.assertEqual(set(), runner.failures(Suite, kind), reason)

    def test_reserved_hint_is_detected(self):
        self.assertFinds('test_hints_are_for_users', hints={'_secret'})

    def test_located_instances_other_than_texts_are_detected(self):
        self.assertFinds('test_located_instances_are_texts',
                         located=lambda *args: [3])

    def test_shortfall_of_the_wrong_shape_is_found(self):
        self.assertFinds('test_shortfall_has_an_entry_for_each_host',
                         shortfall=lambda *args: (np.ones(3), 'MB'))


class EastFilter(filters.Filter):
    """Keep hosts in the east."""

    def applies(self, request):
        return bool(request.hint('east'))

    def keep(self, hosts, request):
        east = hosts.code('availability_zone', 'east')
        return hosts['availability_zone'] == east


class TestAssertKeeps(Suite, base.TestCase):

    plugin = EastFilter

    def test_mask_is_compared(self):
        hosts = builders.hosts(availability_zone=['east', 'west'])
        asked = builders.request(hints={'east': 'yes'})

        self.assertKeeps([True, False], hosts, asked)
        self.assertRaises(AssertionError, self.assertKeeps,
                          [True, True], hosts, asked)

    def test_inapplicable_filter_keeps_all_hosts(self):
        hosts = builders.hosts(availability_zone=['east', 'west'])

        self.assertKeeps([True, True], hosts)
