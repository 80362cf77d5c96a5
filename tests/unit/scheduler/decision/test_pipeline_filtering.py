# SPDX-License-Identifier: Apache-2.0
"""Asking stage after stage, about ever fewer hosts."""

import hypothesis
from hypothesis import strategies as st
import numpy as np

from cellsched.scheduler.decision import pipeline
from cellsched.testing import builders
from tests.unit import base
from tests.unit.scheduler import toys


def everyone(count):
    return pipeline.FilteredHosts(builders.hosts(count), None, count)


class TestThrough(base.TestCase):

    def filtered(self, count, *stages, start=None):
        return (start or everyone(count)).through(stages, builders.request())

    def test_stages_receive_whole_columns_while_many_hosts_remain(self):
        first = toys.Filter([True, True, False, True])
        second = toys.Filter([False, True, True, True])

        left = self.filtered(4, first, second)

        self.assertEqual([[0, 1, 2, 3]], second.rows)
        self.assertEqual(([1, 3], 2), (left.rows.tolist(), left.left))

    def test_stages_receive_only_a_few_remaining_hosts(self):
        first = toys.Filter([row in (3, 90) for row in range(100)])
        second = toys.Filter([row != 3 for row in range(100)])

        left = self.filtered(100, first, second)

        self.assertEqual([[3, 90]], second.rows)
        self.assertEqual([90], left.rows.tolist())
        self.assertEqual([3], left.steps[1].rejected.tolist())

    def test_stage_by_row_receives_only_remaining_hosts(self):
        for count in (2, 4):
            first = toys.Filter([row != 1 for row in range(count)])
            costly = toys.Filter([True] * count, by_row=True)
            self.filtered(count, costly, first, costly)

            rows = list(range(count))
            self.assertEqual(
                [rows, [row for row in rows if row != 1]], costly.rows)

    def test_stage_keeping_all_hosts_is_no_step(self):
        keeping = toys.Filter([True, True])

        left = self.filtered(2, keeping, toys.Filter(None))

        self.assertEqual(((), 2), (left.steps, left.left))

    def test_step_has_its_entered_and_remaining_hosts(self):
        stages = [toys.Filter([True, False, True]),
                  toys.Filter([False, False, True])]

        left = self.filtered(3, *stages)

        self.assertEqual(
            [(3, 2, [1]), (2, 1, [0])],
            [(step.entered, step.left, step.rejected.tolist())
             for step in left.steps])
        self.assertEqual(stages, [step.stage for step in left.steps])

    def test_no_filter_runs_without_hosts(self):
        never = toys.Filter(toys.fail)

        left = self.filtered(2, toys.Filter([False, False]), never)

        self.assertEqual((0, []), (left.left, left.rows.tolist()))

    def test_earlier_mask_is_kept(self):
        first = self.filtered(3, toys.Filter([True, False, True]))

        left = self.filtered(3, toys.Filter([True, True, False]), start=first)

        self.assertEqual([[1], [2]], [
            step.rejected.tolist() for step in left.steps])
        self.assertEqual([0, 2], first.rows.tolist())

    @hypothesis.given(st.data())
    def test_each_host_is_rejected_once_or_kept(self, data):
        count = data.draw(st.integers(1, 30))
        stages = [toys.Filter(
            data.draw(st.lists(st.booleans(), min_size=count,
                               max_size=count)),
            by_row=data.draw(st.booleans()))
            for _ in range(data.draw(st.integers(0, 5)))]

        left = self.filtered(count, *stages)

        expected = np.all([stage.answer for stage in stages]
                          or [[True] * count], axis=0)
        self.assertEqual(np.flatnonzero(expected).tolist(),
                         left.rows.tolist())
        out = [row for step in left.steps for row in step.rejected]
        self.assertEqual(list(range(count)), sorted([*out, *left.rows]))
        self.assertEqual(left.left, len(left.rows))


class TestSifted(base.TestCase):

    def test_without_keeps_other_hosts_and_the_steps(self):
        left = everyone(4).through(
            [toys.Filter([True, True, False, True])], builders.request())

        fewer = left.without([1, 2])

        self.assertEqual(([0, 3], 2), (fewer.rows.tolist(), fewer.left))
        self.assertEqual(left.steps, fewer.steps)
        self.assertEqual([0, 1, 3], left.rows.tolist())
        self.assertEqual([3], fewer.without([0]).rows.tolist())

    def test_narrowed_has_no_other_hosts(self):
        left = everyone(4).without([1])

        self.assertEqual((4, 3), (
            len(left.hosts), len(left.narrowed().hosts)))
        self.assertEqual([0, 2, 3], left.narrowed().rows.tolist())
        self.assertIsNone(left.narrowed().mask)
        sifted = everyone(3).through(
            [toys.Filter([True, False, True])], builders.request())
        self.assertEqual(sifted.steps, sifted.narrowed().steps)
        # There are too many left for it to pay.
        self.assertIs(left, left.narrowed(2))
