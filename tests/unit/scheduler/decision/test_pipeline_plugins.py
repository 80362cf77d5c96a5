# SPDX-License-Identifier: Apache-2.0
"""Answers of plug-ins are checked."""

import numpy as np

from cellsched import exception
from cellsched.filters import compute
from cellsched.scheduler.decision import pipeline
from cellsched.testing import builders
from cellsched.testing.clock import FakeClock
from cellsched.weighers import resources
from tests.unit import base
from tests.unit.scheduler import toys


class _Failing(toys.Filter):

    def applies(self, request):
        toys.fail()


class TestApplying(base.TestCase):

    def test_plugins_apply_by_default(self):
        plugins = [toys.Filter([]), builders.plugin(compute.ComputeFilter),
                   builders.plugin(resources.RAMWeigher)]
        other = toys.Filter([], applies=False)

        self.assertEqual(plugins, pipeline.PluginCalls().applying(
            [*plugins, other], builders.request()))

    def test_failure_names_the_plugin(self):
        error = self.assertRaises(
            exception.PluginFailed, pipeline.PluginCalls().applying, [
                _Failing([])],
            builders.request())

        self.assertEqual('_Failing', error.plugin)


class TestAsk(base.TestCase):

    def test_failure_names_the_plugin_and_its_text_is_of_the_cause(self):
        plugin = toys.Filter([])

        error = self.assertRaises(
            exception.PluginFailed, pipeline.PluginCalls().ask, plugin,
            toys.fail)

        self.assertEqual('Filter Filter failed.', error.format_message())
        self.assertEqual("'as told'", str(error.__cause__))

    def test_exit_of_a_plugin_is_a_failure(self):
        for left in SystemExit(1), BaseException('odd'):
            error = self.assertRaises(
                exception.PluginFailed, self.raising, left)

            self.assertIs(left, error.__cause__)

    def test_interrupt_is_passed_on(self):
        for stop in (KeyboardInterrupt(), GeneratorExit(),
                     exception.ThreadStopped()):
            self.assertRaises(type(stop), self.raising, stop)

    @staticmethod
    def raising(error):
        def fail():
            raise error

        pipeline.PluginCalls().ask(toys.Filter([]), fail)

    def test_calls_of_a_plugin_are_timed_and_added_up(self):
        clock = FakeClock()
        calls = pipeline.PluginCalls(clock.monotonic)
        slow, quick = toys.Filter([]), toys.Filter([])

        calls.ask(slow, clock.advance, 2.0)
        calls.ask(quick, clock.advance, 0.25)
        calls.ask(slow, clock.advance, 0.5)

        self.assertEqual({slow: 2.5, quick: 0.25}, calls.seconds)

    def test_invalid_input_is_raised_unchanged(self):
        wrong = exception.InvalidField(where='a', field='b', expected='c')

        def refuse():
            raise wrong

        error = self.assertRaises(
            exception.InvalidField, pipeline.PluginCalls().ask,
            toys.Filter([]), refuse)

        self.assertIs(wrong, error)

    def test_other_errors_of_the_project_are_failures_of_the_plugin(self):
        def fail():
            raise exception.NotFound

        self.assertRaises(
            exception.PluginFailed, pipeline.PluginCalls().ask,
            toys.Filter([]), fail)


class TestMask(base.TestCase):

    def ask(self, answer):
        return pipeline.PluginCalls().mask(
            toys.Filter(answer), builders.hosts(2), builders.request())

    def test_mask_is_returned(self):
        self.assertEqual([True, False], self.ask([True, False]).tolist())

    def test_invalid_mask_fails(self):
        for answer in ([True], [True] * 3, True, (True, True),
                       np.True_, np.ones(2), np.ones((2, 1), bool),
                       np.array([True, None]), np.array(True)):
            error = self.assertRaises(
                exception.PluginFailed, self.ask, lambda hosts: answer)
            self.assertEqual('Filter', error.plugin)

    def test_none_keeps_all_hosts(self):
        self.assertIsNone(self.ask(None))

    def test_plugin_writing_to_the_table_fails(self):
        def write(hosts):
            hosts['free_ram_mb'][0] = 9

        error = self.assertRaises(exception.PluginFailed, self.ask, write)

        self.assertIn('read-only', str(error.__cause__))


class TestScores(base.TestCase):

    def ask(self, answer):
        return pipeline.PluginCalls().scores(
            toys.Weigher(answer), builders.hosts(2), builders.request())

    def test_numbers_of_any_kind_are_scores(self):
        for kind in ('bool', 'int8', 'uint64', 'float32', 'float64'):
            self.assertEqual([0, 1], self.ask(
                lambda hosts: np.arange(2).astype(kind)).tolist())

    def test_none_scores_all_hosts_equally(self):
        self.assertIsNone(self.ask(None))

    def test_failing_weigher_is_named(self):
        error = self.assertRaises(
            exception.PluginFailed, self.ask, toys.fail)

        self.assertEqual(('Weigher', 'Weigher'), (error.kind, error.plugin))

    def test_invalid_scores_fail(self):
        for answer in ([1], 1.0, [1, 2, 3], np.array(['a', 'b']),
                       np.array([1, None]), np.ones((1, 2)), 1j * np.ones(2)):
            error = self.assertRaises(
                exception.PluginFailed, self.ask, lambda hosts: answer)
            self.assertEqual('Weigher', error.plugin)


class TestMultiplier(base.TestCase):

    def ask(self, times):
        return pipeline.PluginCalls().multiplier(
            toys.Weigher([], times), builders.hosts(2))

    def test_number_is_for_all_and_column_for_each(self):
        for times in (1, -1.5, 0, np.float64(3), np.int64(2)):
            self.assertEqual(times, self.ask(times))
        self.assertEqual([1, 2], self.ask(np.array([1, 2])).tolist())

    def test_zero_multipliers_are_omitted(self):
        more, less, each = (
            toys.Weigher([], times)
            for times in (1.5, -1.0, np.array([0.0, 0.0])))

        found = pipeline.PluginCalls().multipliers(
            [more, toys.Weigher([], 0.0), less, each], builders.hosts(2))

        self.assertEqual([more, less, each], [*found])
        self.assertEqual((1.5, -1.0), (found[more], found[less]))
        self.assertEqual([0, 0], found[each].tolist())

    def test_result_of_another_type_fails(self):
        for times in (None, '1', [1, 2], np.ones(3), np.array(['a', 'b']),
                      float('nan'), float('inf'), np.array([1, np.nan])):
            self.assertRaises(exception.PluginFailed, self.ask, times)
