# SPDX-License-Identifier: Apache-2.0
"""A server."""

import datetime

from cellsched import objects
from tests.unit import base
from tests.unit.db import samples


class TestInstance(base.TestCase):

    def test_times_are_utc_without_a_zone(self):
        instance = objects.Instance(created_at='2026-01-02T03:04:05Z')

        self.assertEqual(
            datetime.datetime(2026, 1, 2, 3, 4, 5), instance.created_at)

    def test_times_travel_as_iso_8601(self):
        sent = samples.instance(samples.uuids(1)[0]).obj_to_primitive()

        self.assertEqual('2026-01-02T03:04:05Z',
                         sent['nova_object.data']['created_at'])

    def test_attempts_of_ours_are_nothing_to_those_who_do_not_know_them(self):
        instance = samples.instance(samples.uuids(1)[0])

        self.assertNotIn('build_attempts',
                         instance.obj_to_primitive()['nova_object.data'])
        self.assertEqual(0, instance.get('build_attempts', 0))
