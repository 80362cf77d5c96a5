# SPDX-License-Identifier: Apache-2.0
"""Builds that a compute host was told of."""

import dataclasses

from cellsched.db.cell import build_casts
from tests.unit.db.cell import base
from tests.unit.db import samples
from tests.unit import racing


def cast(uuid, **fields):
    return build_casts.BuildCast(**{
        'instance_uuid': uuid, 'host': 'h', 'node': 'n', 'message': '{}',
        'cast_at': 100.0, **fields})


class TestBuildCasts(base.TestCase):

    def setUp(self):
        super().setUp()
        self.uuids = samples.uuids(3)

    def create(self, *casts):
        self.write(build_casts.create, casts)

    def get(self, uuid):
        return self.read(build_casts.get, uuid)

    def test_what_was_told_is_kept_until_it_is_dropped(self):
        told = [cast(uuid) for uuid in self.uuids]
        self.create(*told)
        self.assertEqual(told[1], self.get(self.uuids[1]))

        self.write(build_casts.drop, self.uuids[:2])
        self.write(build_casts.drop, self.uuids[:2])

        self.assertEqual(
            [None, None, told[2]], [self.get(each) for each in self.uuids])

    def test_telling_the_same_leaves_it_and_the_next_host_replaces_it(self):
        first = cast(self.uuids[0])
        self.create(first)
        self.create(dataclasses.replace(first, host='other'))
        self.assertEqual(first, self.get(self.uuids[0]))

        moved = dataclasses.replace(first, host='other', cast_at=120.0)
        self.write(build_casts.replace, moved)

        self.assertEqual(moved, self.get(self.uuids[0]))

    def test_old_ones_are_taken_the_oldest_first(self):
        old, older, new = (
            cast(uuid, cast_at=at)
            for uuid, at in zip(self.uuids, (50.0, 40.0, 60.0)))
        self.create(old, older, new)

        self.assertEqual([older], self.take(1))
        self.assertEqual([old], self.take(10))

    def test_what_was_taken_counts_as_told_of_now(self):
        self.create(cast(self.uuids[0], cast_at=40.0))
        self.assertTrue(self.read(build_casts.is_any_before, 60.0))

        self.take(10)

        self.assertFalse(self.read(build_casts.is_any_before, 60.0))
        self.assertEqual(cast(self.uuids[0], cast_at=70.0),
                         self.get(self.uuids[0]))

    def test_each_is_taken_by_one_of_several(self):
        self.create(*[cast(uuid, cast_at=40.0) for uuid in self.uuids])

        taken = racing.race(*[lambda: self.take(1)] * 6)

        self.assertEqual(sorted(self.uuids), sorted(
            each.instance_uuid for some in taken for each in some))

    def take(self, limit):
        return self.write(build_casts.take_before, 60.0, 70.0, limit)

    def test_exactly_one_of_several_tells_again(self):
        told = cast(self.uuids[0])
        self.create(told)

        outcomes = racing.race(*[
            lambda: self.write(build_casts.tell_again, told, 200.0)] * 6)

        self.assertEqual(1, sum(outcomes))
        self.assertEqual(
            dataclasses.replace(told, casts=2, cast_at=200.0),
            self.get(told.instance_uuid))
