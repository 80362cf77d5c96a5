# SPDX-License-Identifier: Apache-2.0
"""Load that is drawn from published distributions."""

import itertools
import math

import hypothesis
from hypothesis import strategies as st
import numpy as np

from cellsched import exception
from cellsched.simulator.capacity import load
from tests.unit import base
from tests.unit.scheduler import recordings

SEED = 1

DAY_S = 86400

#: Percentage points that drawn values may differ from published ones.
POINTS = 1.5

#: Published: hours, and percentages of servers that live no longer.
LIFETIMES = {
    'azure19': {1.3: 68.3, 4: 78.0, 10: 83.7, 24: 89.4, 96: 92.0},
    'azure-v1': {0.9: 64.6, 4: 76.8, 17.4: 90.5, 48: 94.7, 206: 96.6},
    'azure-v2': {1.9: 70.9, 5.7: 79.1, 24: 87.4, 96: 90.6},
    'google-short': {1: 88},
    'huawei-small': {24: 93.5, 278.4: 96.4, 840: 97.6, 2784: 99.1},
}

#: Published: servers of a request, and percentages of requests of no more.
BATCHES = {
    'azure19': {1: 48, 2: 63.8, 5: 79.4, 10: 88.1, 50: 97.7},
    'azure-v1': {2: 47.6, 5: 64.9, 20: 86, 49: 93.8},
    'azure-v2': {1: 19, 3: 40, 10: 65.6, 50: 92.7},
    'huawei-small': {1: 100},
}

#: Published: vCPUs, and percentages of servers with no more.
VCPUS = {
    'azure19': {2: 58.1, 4: 81.1, 8: 93.1, 24: 99.1},
    'azure-v1': {1: 49.8, 2: 74.3, 4: 85.4, 8: 99.3},
    'azure-v2': {2: 59.0, 4: 89.4, 8: 96.8},
    'huawei-small': {1: 69.4, 2: 84.5, 4: 94.8, 8: 98.0},
}

#: Published: memory in GiB, and percentages of servers with no more.
MEMORY_GIB = {
    'azure19': {2: 12.0, 4: 28.6, 8: 61.3, 32: 90.3, 64: 96.8},
    'azure-v1': {0.75: 2, 1.75: 50, 3.5: 75, 7: 86, 14: 96},
    'azure-v2': {2: 12.0, 4: 27.7, 8: 65.0, 32: 96.8},
    'huawei-small': {1: 21.8, 2: 66.6},
}

POINTS_OF_A_CURVE = st.lists(
    st.tuples(st.floats(0.1, 1e4), st.floats(1e-6, 100)), min_size=1,
    max_size=6, unique_by=(lambda each: round(each[0], 1))).map(
    lambda points: [*zip(sorted(value for value, _ in points),
                         [*sorted(share for _, share in points)[:-1], 100])])


def make(name='azure19', seed=SEED, hours=24, hosts=1000, capacity=None,
         **section):
    return load.of({'preset': name, **section}, np.random.default_rng(seed),
                   hours, hosts, capacity)


def first(count, *args, **kwargs):
    return [*itertools.islice(make(*args, **kwargs).arrivals(), count)]


class TestCurve(base.TestCase):

    @hypothesis.given(points=POINTS_OF_A_CURVE, quantile=st.floats(0, 1))
    def test_values_are_between_bounds_and_inverse_to_shares(
        self, points, quantile,
    ):
        curve = load.Curve(points, 0.01)

        value = float(curve.inverse(quantile))

        self.assertTrue(0.0099 < value < points[-1][0] * 1.001)
        self.assertGreaterEqual(float(curve.share(value * 1.001)) + 1e-6,
                                quantile)

    @hypothesis.given(points=POINTS_OF_A_CURVE)
    @hypothesis.settings(max_examples=20)
    def test_mean_of_the_curve_agrees_with_drawn_values(self, points):
        curve = load.Curve(points, 0.01)
        drawn = curve.inverse((np.arange(2000) + 0.5) / 2000)

        self.assertAlmostEqual(1, drawn.mean() / curve.mean, 1)

    def test_remaining_lifetimes_are_weighted_by_length(self):
        # Of lives of 1 hour and of 9 hours, 9 of 10 at a moment are long.
        curve = load.Curve([(1, 50), (8.999, 50), (9, 100)], 1)

        drawn = curve.residual(np.random.default_rng(SEED), 20000)

        self.assertAlmostEqual(0.9 * 4.5 + 0.1 * 0.5, drawn.mean(), 1)

    def test_wrong_points_are_refused(self):
        for points in ([(2, 50), (1, 100)], [(1, 60), (2, 50), (3, 100)],
                       [(1, 50)], [(0.001, 50), (1, 100)]):
            self.assertRaises(ValueError, load.Curve, points, 0.01)


class TestPresets(base.TestCase):

    def assertAgrees(self, published, drawn):
        for value, percent in published.items():
            found = 100 * np.mean(np.array(drawn) <= value)
            self.assertLessEqual(abs(found - percent), POINTS, value)

    def test_drawn_values_agree_with_published_values(self):
        for name in LIFETIMES:
            arrivals = first(15000, name, hours=10000)

            self.assertAgrees(LIFETIMES[name], [
                seconds / 3600 for each in arrivals
                for seconds in each.lifetimes])
            self.assertAgrees(BATCHES.get(name, {}), [
                len(each.lifetimes) for each in arrivals])
            self.assertAgrees(VCPUS.get(name, {}), [
                each.flavor.vcpus for each in arrivals])
            self.assertAgrees(MEMORY_GIB.get(name, {}), [
                each.flavor.memory_mb / 1024 for each in arrivals])

    def test_no_server_lives_for_less_than_five_minutes(self):
        for name in load.presets():
            self.assertGreaterEqual(
                min(min(each.lifetimes) for each in first(500, name)), 299.9)

    def test_short_servers_of_google_use_little(self):
        hours = make('google-short').lifetimes.inverse(
            (np.arange(100000) + 0.5) / 100000)

        self.assertAlmostEqual(
            0.02, hours[hours <= 1].sum() / hours.sum(), 3)


class TestLoad(base.TestCase):

    def test_same_seed_has_the_same_load_each_time(self):
        made = make(hours=400, fill=0.1, capacity=(1000, 1e7, 1e6))
        before = [*made.arrivals()]

        self.assertEqual(before, [*made.arrivals()])
        self.assertNotEqual(before, [*make(seed=1, hours=400).arrivals()])

    def test_requests_come_in_order_until_the_end_at_the_rate(self):
        times = [each.at for each in make(
            'huawei-small', hours=14 * 24, rate=100).arrivals()]

        self.assertEqual(sorted(times), times)
        self.assertLess(times[-1], 14 * DAY_S)
        self.assertAlmostEqual(100, len(times) / 14 / 24, delta=5)

    def test_batches_do_not_change_the_rate_of_servers(self):
        arrivals = make(hours=28 * 24, rate=1000).arrivals()

        self.assertAlmostEqual(1, sum(
            len(each.lifetimes) for each in arrivals) / 28 / 24 / 1000, 1)

    def test_days_peak_in_the_afternoon_and_weekends_are_calm(self):
        times = np.array([each.at for each in make(
            'huawei-small', hours=28 * 24, rate=200).arrivals()])
        hours, days = times // 3600 % 24, times // DAY_S % 7

        peak, calm = ((hours == hour).sum() for hour in (13, 1))
        self.assertAlmostEqual(3, peak / calm, 0)
        weekday, weekend = (days < 5).sum() / 5, (days >= 5).sum() / 2
        self.assertAlmostEqual(0.7, weekend / weekday, 1)

    def test_incidents_multiply_the_rate_for_a_minute(self):
        times = [each.at for each in make(
            'huawei-small', hours=240, rate=600, bursts=1, day=0,
            weekend=0).arrivals()]

        # In 10 minutes, usually 100; with an incident about 190 more.
        counts = np.bincount((np.array(times) / 600).astype(int))
        self.assertAlmostEqual(10, (counts > 200).sum(), delta=5)
        self.assertAlmostEqual(600, len(times) / 240, delta=30)

    def test_projects_follow_zipf(self):
        counts = {}
        for each in first(20000, 'huawei-small', hours=1000):
            counts[each.project] = counts.get(each.project, 0) + 1

        self.assertAlmostEqual(
            2 ** 1.1, counts['project-0'] / counts['project-1'], 0)

    def test_groups_are_given_to_their_share_of_small_requests(self):
        arrivals = first(2000, hours=1000, groups={'anti-affinity': 0.5})

        grouped = [each.group == 'anti-affinity' for each in arrivals
                   if len(each.lifetimes) in load.GROUP_SIZES]
        self.assertAlmostEqual(0.5, np.mean(grouped), 1)
        self.assertEqual({None}, {
            each.group for each in arrivals
            if len(each.lifetimes) not in load.GROUP_SIZES})

    def test_batches_have_a_limit(self):
        self.assertEqual(7, max(len(each.lifetimes) for each in first(
            1000, hours=1000, batch_max=7)))

    def test_fill_places_servers_at_the_start_and_keeps_their_number(self):
        capacity = np.array((64, 262144, 4000)) * 200
        made = make('huawei-small', hours=1000, fill=0.6, capacity=capacity,
                    day=0, weekend=0)

        starts, ends, vcpus = np.array([
            (each.at, each.at + each.lifetimes[0], each.flavor.vcpus)
            for each in made.arrivals()]).T

        for at in (0, 500 * 3600, 999 * 3600):
            used = vcpus[(starts <= at) & (at < ends)].sum()
            self.assertAlmostEqual(0.6, used / capacity[0], 1)

    def test_values_of_a_scenario_replace_values_of_the_preset(self):
        arrival, = first(1, flavors=[[3, 1.5, 100]], disk_gb=7,
                         lifetimes=[[2.001, 0], [2.002, 100]],
                         batches=[[3.9, 0], [4, 100]])

        self.assertEqual(load.Flavor('3c-1.5g', 3, 1536, 7), arrival.flavor)
        self.assertEqual([2] * 4, [
            int(each / 3600) for each in arrival.lifetimes])

    def test_wrong_values_are_named(self):
        for section, text in (
                ({'preset': 'azure20'}, r'load\.preset.*azure19'),
                ({'lifetimes': [[1, 50]]}, r'load\.lifetimes.*100'),
                ({'flavors': [[1, 1, 0]]}, r'load\.flavors'),
                ({'groups': {'affinity': 0.6, 'anti-affinity': 0.6}},
                 r'load\.groups'),
                ({'rate': 0}, r'load\.rate.*above 0'),
                ({'rate': True}, r'load\.rate'),
                ({'speed': 1}, r"load.*unknown field 'speed'.*batches"),
                ({'lifetimes': [[1]]}, r'load\.lifetimes\[0\]'),
                ({'lifetimes': [[1, 101]]}, r'load\.lifetimes\[0\]\[1\]'),
                ({'flavors': [[0, 1, 1]]}, r'load\.flavors\[0\]\[0\]'),
                ({'trace': 'x', 'form': 'y'}, r'one of .*huawei')):
            if 'trace' not in section:
                section = {'preset': 'azure19', **section}
            with self.assertRaisesRegex(exception.InvalidField, text):
                load.of(section, np.random.default_rng(1), 1, 1)


class TestRecordedLoad(recordings.RecordingTestCase):

    def of(self, hours=1, **section):
        self.recorder.flush()
        return load.of({'recording': str(self.path), **section},
                       np.random.default_rng(SEED), hours, 1)

    def test_load_has_the_recorded_requests_of_the_schedulers(self):
        self.ask(vcpus=2, memory_mb=1024, root_gb=5, project_id='a')
        self.clock.advance(60)
        self.ask(vcpus=1000, memory_mb=1024, root_gb=5, project_id='b')

        made = self.of()

        self.assertEqual(
            [(0, 'a', (2, 1024, 5), (math.inf,)),
             (60, 'b', (1000, 1024, 5), (math.inf,))],
            [(each.at, each.project, each.flavor[1:], each.lifetimes)
             for each in made.arrivals()])
        self.assertEqual([0.5, 0.5], made.shares.tolist())

    def test_lifetimes_are_drawn(self):
        self.ask()

        [arrival] = self.of(lifetimes=[[2, 0], [3, 100]]).arrivals()

        self.assertTrue(2 * 3600 <= arrival.lifetimes[0] <= 3 * 3600)

    def test_load_ends_with_the_simulation(self):
        self.ask()
        self.clock.advance(7200)
        self.ask()

        self.assertEqual(1, len([*self.of().arrivals()]))

    def test_recording_without_decisions_is_named(self):
        with self.assertRaisesRegex(
                exception.InvalidField, r'load\.recording|recording'):
            self.of()
