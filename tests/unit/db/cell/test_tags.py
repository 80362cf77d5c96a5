# SPDX-License-Identifier: Apache-2.0
"""Queries for the tags of a cell's servers."""

from cellsched.db.cell import tags
from tests.unit.db.cell import base
from tests.unit.db import samples


class TestTags(base.TestCase):

    def test_tags_are_read_sorted_by_their_server(self):
        one, other, untagged = samples.uuids(3)

        self.write(tags.create_all, {one: ['b', 'a'], other: ['a'],
                                     untagged: []})

        self.assertEqual(
            {one: ['a', 'b'], other: ['a']},
            self.read(tags.get_many, [one, other, untagged]))
        self.assertEqual({other: ['a']}, self.read(tags.get_many, [other]))

    def test_tag_that_is_there_already_stays_once(self):
        [uuid] = samples.uuids(1)

        for _ in range(2):
            self.write(tags.create_all, {uuid: ['a', 'b', 'a']})

        self.assertEqual({uuid: ['a', 'b']}, self.read(tags.get_many, [uuid]))

    def test_tags_are_removed_from_these_servers_only(self):
        one, other = uuids = samples.uuids(2)
        self.write(tags.create_all, dict.fromkeys(uuids, ['a']))

        for _ in range(2):
            self.write(tags.delete, [one])

        self.assertEqual({other: ['a']}, self.read(tags.get_many, uuids))
