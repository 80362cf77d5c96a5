# SPDX-License-Identifier: Apache-2.0
"""Queries for what a server brings along."""

import sqlalchemy as sa

from cellsched import context
from cellsched.db.cell import belongings
from cellsched.db.cell import block_devices
from cellsched.db.cell import instance_actions
from cellsched.db.cell import instances
from cellsched.db.cell import models
from cellsched.db.cell import tags
from cellsched import objects
from tests.unit.db.cell import base
from tests.unit.db import samples


class TestBelongings(base.TestCase):

    def setUp(self):
        super().setUp()
        self.requests = [self.request(uuid) for uuid in samples.uuids(2)]
        self.one, self.other = self.uuids = [
            each.instance_uuid for each in self.requests]
        self.write(instances.create, [
            each.instance for each in self.requests], samples.NOW)
        self.write(belongings.add, self.requests, samples.NOW)

    def request(self, uuid):
        return objects.BuildRequest(
            instance_uuid=uuid, instance=samples.instance(uuid),
            tags=objects.TagList.made(uuid, ['a', 'b']),
            block_device_mappings=objects.BlockDeviceMappingList(objects=[
                objects.BlockDeviceMapping(
                    uuid=samples.uuids(1)[0], instance_uuid=uuid)]))

    def there(self):
        """Return who has tags, and who has block devices."""
        return (set(self.read(tags.get_many, self.uuids)),
                set(self.read(block_devices.get_many, self.uuids)))

    def test_they_come_with_the_rows(self):
        self.assertEqual(({*self.uuids}, {*self.uuids}), self.there())

    def test_request_may_have_none(self):
        uuid, = self.write(instances.create, [
            samples.instance(samples.uuids(1)[0])], samples.NOW)

        self.write(belongings.add, [objects.BuildRequest(
            instance_uuid=uuid, instance=samples.instance(uuid))],
            samples.NOW)

        self.assertEqual({}, self.read(tags.get_many, [uuid]))

    def test_row_is_corrected(self):
        request = self.requests[0]
        request.instance.display_name = 'new'
        request.tags = objects.TagList.made(self.one, ['c'])

        for _ in range(2):
            self.write(belongings.correct, request, samples.LATER)

        self.assertEqual(
            'new', self.read(instances.get, self.one).display_name)
        self.assertEqual({self.one: ['c'], self.other: ['a', 'b']},
                         self.read(tags.get_many, self.uuids))

    def test_row_that_is_deleted_gets_no_tags_any_more(self):
        self.write(instances.delete, self.one, samples.NOW)

        self.write(belongings.correct, self.requests[0], samples.LATER)

        self.assertEqual(({self.other}, {self.other}), self.there())

    def test_they_go_with_the_rows(self):
        self.write(
            instance_actions.create_failed, self.uuids, 'create', 'event',
            context.admin(), samples.NOW, KeyError('x'), 'h')

        self.write(instances.purge, [self.one])

        self.assertEqual(({self.other}, {self.other}), self.there())
        for table in (models.instance_actions_events, models.tags,
                      models.block_device_mapping, models.instances):
            left = self.read(lambda connection: connection.scalar(sa.select(
                sa.func.count()).select_from(table)))
            self.assertEqual(
                2 if table is models.tags else 1, left, table.name)
