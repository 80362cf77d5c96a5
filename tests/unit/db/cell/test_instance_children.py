# SPDX-License-Identifier: Apache-2.0
"""Queries for what a server brings along."""

import sqlalchemy as sa

from cellsched import context
from cellsched.db.cell import instance_children
from cellsched.db.cell import instance_history
from cellsched.db.cell import instances
from cellsched.db.cell import models
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
        self.write(instance_children.add, self.requests, samples.NOW)

    def request(self, uuid):
        return objects.BuildRequest(
            instance_uuid=uuid, instance=samples.instance(uuid),
            tags=objects.TagList.made(uuid, ['a', 'b']),
            block_device_mappings=objects.BlockDeviceMappingList(objects=[
                objects.BlockDeviceMapping(
                    uuid=samples.uuids(1)[0], instance_uuid=uuid)]))

    def owners(self):
        """Return who has tags, and who has block devices."""
        return (set(self.read(instance_children.get_tags, self.uuids)),
                set(self.read(
                    instance_children.get_block_devices, self.uuids)))

    def test_children_are_created_with_their_rows(self):
        self.assertEqual(({*self.uuids}, {*self.uuids}), self.owners())

    def test_request_may_have_no_children(self):
        uuid, = self.write(instances.create, [
            samples.instance(samples.uuids(1)[0])], samples.NOW)

        self.write(instance_children.add, [objects.BuildRequest(
            instance_uuid=uuid, instance=samples.instance(uuid))],
            samples.NOW)

        self.assertEqual({}, self.read(instance_children.get_tags, [uuid]))

    def test_row_is_corrected(self):
        request = self.requests[0]
        request.instance.display_name = 'new'
        request.tags = objects.TagList.made(self.one, ['c'])

        for _ in range(2):
            self.write(instances.correct, request, samples.LATER)

        self.assertEqual(
            'new', self.read(instances.get, self.one).display_name)
        self.assertEqual({self.one: ['c'], self.other: ['a', 'b']},
                         self.read(instance_children.get_tags, self.uuids))

    def test_deleted_row_gets_no_tags(self):
        self.write(instances.delete, self.one, samples.NOW)

        self.write(instances.correct, self.requests[0], samples.LATER)

        self.assertEqual(({self.other}, {self.other}), self.owners())

    def test_children_are_purged_with_their_rows(self):
        self.write(
            instance_history.create_failed, self.uuids, 'event',
            context.admin(), samples.NOW, KeyError('x'), 'h')

        self.write(instances.purge, [self.one])

        self.assertEqual(({self.other}, {self.other}), self.owners())
        for table in (models.instance_actions_events, models.tags,
                      models.block_device_mapping, models.instances):
            left = self.read(lambda connection: connection.scalar(sa.select(
                sa.func.count()).select_from(table)))
            self.assertEqual(
                2 if table is models.tags else 1, left, table.name)


class TestTags(base.TestCase):

    def test_tags_are_read_sorted_per_server(self):
        one, other, untagged = samples.uuids(3)

        self.write(instance_children.create_tags,
                   {one: ['b', 'a'], other: ['a'],
                    untagged: []})

        self.assertEqual(
            {one: ['a', 'b'], other: ['a']},
            self.read(instance_children.get_tags, [one, other, untagged]))
        self.assertEqual({other: ['a']}, self.read(
            instance_children.get_tags, [other]))

    def test_duplicate_tag_is_stored_once(self):
        [uuid] = samples.uuids(1)

        for _ in range(2):
            self.write(instance_children.create_tags, {uuid: ['a', 'b', 'a']})

        self.assertEqual({uuid: ['a', 'b']}, self.read(
            instance_children.get_tags, [uuid]))

    def test_tags_of_another_server_are_kept(self):
        one, other = uuids = samples.uuids(2)
        self.write(instance_children.create_tags, dict.fromkeys(uuids, ['a']))

        for _ in range(2):
            self.write(instance_children.delete_tags, [one])

        self.assertEqual({other: ['a']}, self.read(
            instance_children.get_tags, uuids))


class TestBlockDevices(base.TestCase):

    def setUp(self):
        super().setUp()
        self.uuids = self.write(
            instances.create,
            [samples.instance(uuid) for uuid in samples.uuids(2)],
            samples.NOW)

    def create(self, *devices):
        self.write(instance_children.create_block_devices,
                   devices, samples.NOW)

    def device(self, uuid, **fields):
        return objects.BlockDeviceMapping(
            uuid=samples.uuids(1)[0], instance_uuid=uuid, **fields)

    def test_devices_are_stored_as_requested_and_in_order(self):
        one, other = self.uuids
        root = self.device(
            one, source_type='image', destination_type='volume',
            image_id='i', volume_size=3, volume_type='fast', boot_index=0,
            device_name='vda', disk_bus='virtio', device_type='disk',
            guest_format='ext4', tag='root', delete_on_termination=True)
        more = self.device(one, source_type='blank',
                           destination_type='local')
        self.create(root, more)

        found = self.read(instance_children.get_block_devices, [one, other])

        self.assertEqual([one], [*found])
        for sent, kept in zip((root, more), found[one], strict=True):
            for name in sent.obj_what_changed():
                self.assertEqual(sent.get(name), kept.get(name), name)
        self.assertFalse(found[one][1].delete_on_termination)

    def test_empty_list_of_devices_is_accepted(self):
        self.create()

        self.assertEqual({}, self.read(
            instance_children.get_block_devices, self.uuids))

    def test_devices_of_a_deleted_server_are_marked(self):
        one, other = self.uuids
        self.create(self.device(one), self.device(other))

        for _ in range(2):
            self.write(instance_children.mark_block_devices_deleted,
                       [one], samples.LATER)

        self.assertEqual(
            [other],
            [*self.read(instance_children.get_block_devices, self.uuids)])


class TestHardware(base.TestCase):

    def test_request_of_a_server_is_stored(self):
        first, second = samples.uuids(2)
        self.write(instances.create, [
            samples.instance(uuid) for uuid in (first, second)], samples.NOW)
        for documents in ({'cells': [{'id': 0}]}, {'requests': []}), (
                None, {'requests': [7]}), ({'cells': []}, None):
            self.write(instance_children.set_hardware, first, *documents)

            self.assertEqual(documents, self.read(
                instance_children.get_hardware, first))
            self.assertEqual((None, None), self.read(
                instance_children.get_hardware, second))

    def test_servers_with_requests_are_listed(self):
        both, cells, devices, neither = uuids = samples.uuids(4)
        self.write(instances.create, [
            samples.instance(uuid) for uuid in uuids], samples.NOW)
        for uuid, documents in ((both, ({'cells': []}, {'requests': []})),
                                (cells, ({'cells': []}, None)),
                                (devices, (None, {'requests': []}))):
            self.write(instance_children.set_hardware, uuid, *documents)

        for among, found in (([both, cells, devices, neither],
                              [both, cells, devices]), ([neither], []),
                             ([cells, neither], [cells]), ([], [])):
            self.assertEqual(sorted(found), self.read(
                instance_children.list_with_hardware, among))

    def test_unknown_server_has_no_request(self):
        self.assertEqual((None, None), self.read(
            instance_children.get_hardware, samples.uuids(1)[0]))


class TestImageProperties(base.TestCase):

    def create(self, properties, count=1, **fields):
        uuids = samples.uuids(count)
        self.write(
            instances.create, [samples.instance(
                uuid, **{'host': 'a', 'node': 'n', **fields})
                for uuid in uuids],
            samples.NOW, dict.fromkeys(uuids, properties))
        return uuids

    def count(self, host='a'):
        return sorted(
            self.read(instance_children.count_image_properties, host))

    def test_servers_of_a_host_are_counted_by_image_properties(self):
        self.create({'os_distro': 'x', 'hw_vif_model': 'e1000'}, 2)
        self.create({'os_distro': 'x'})
        self.create({'os_distro': 'y'}, node='m')
        self.create({'os_distro': 'x'}, host='b')
        self.create({})
        [gone] = self.create({'os_distro': 'x'})
        self.write(instances.delete, gone, samples.LATER)

        self.assertEqual(
            [('m', 'os_distro', 'y', 1), ('n', 'hw_vif_model', 'e1000', 2),
             ('n', 'os_distro', 'x', 3)], self.count())

    def test_values_are_shortened_texts(self):
        self.create({'a': True, 'b': 7, 'c': ['x'], 'd': 'x' * 300,
                     'n' * 249: 'fits', 'n' * 250: 'is left out'})

        self.assertEqual(
            [('n', 'a', 'True', 1), ('n', 'b', '7', 1), ('n', 'c', "['x']", 1),
             ('n', 'd', 'x' * 255, 1), ('n', 'n' * 249, 'fits', 1)],
            self.count())

    def test_rows_of_nova_other_than_properties_are_not_counted(self):
        [uuid] = self.create({'os_distro': 'x'})
        self.execute(
            sa.insert(models.instance_system_metadata), [
                {'instance_uuid': uuid, 'key': key, 'value': value,
                 'deleted': deleted} for key, value, deleted in (
                    ('image_min_ram', '5', 0), ('image_disk_format', 'x', 0),
                    ('imageXa', 'b', 0), ('owner', 'me', 0),
                    ('image_a', None, 0), ('image_b', 'c', 7))])

        self.assertEqual([('n', 'os_distro', 'x', 1)], self.count())

    def test_purged_server_has_no_properties(self):
        self.write(instances.purge, self.create({'os_distro': 'x'}))

        self.assertEqual([], self.fetch(
            sa.select(models.instance_system_metadata)))
