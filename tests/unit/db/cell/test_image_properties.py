# SPDX-License-Identifier: Apache-2.0
"""What servers keep of their images."""

import sqlalchemy as sa

from cellsched.db.cell import image_properties
from cellsched.db.cell import instances
from cellsched.db.cell import models
from tests.unit.db.cell import base
from tests.unit.db import samples


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
        return sorted(self.read(image_properties.count, host))

    def test_servers_of_a_host_are_counted_by_what_their_images_say(self):
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

    def test_values_are_texts_that_fit(self):
        self.create({'a': True, 'b': 7, 'c': ['x'], 'd': 'x' * 300,
                     'n' * 249: 'fits', 'n' * 250: 'is left out'})

        self.assertEqual(
            [('n', 'a', 'True', 1), ('n', 'b', '7', 1), ('n', 'c', "['x']", 1),
             ('n', 'd', 'x' * 255, 1), ('n', 'n' * 249, 'fits', 1)],
            self.count())

    def test_rows_of_nova_that_are_no_properties_are_left_out(self):
        [uuid] = self.create({'os_distro': 'x'})
        self.write(lambda connection: connection.execute(
            sa.insert(models.instance_system_metadata), [
                {'instance_uuid': uuid, 'key': key, 'value': value,
                 'deleted': deleted} for key, value, deleted in (
                    ('image_min_ram', '5', 0), ('image_disk_format', 'x', 0),
                    ('imageXa', 'b', 0), ('owner', 'me', 0),
                    ('image_a', None, 0), ('image_b', 'c', 7))]))

        self.assertEqual([('n', 'os_distro', 'x', 1)], self.count())

    def test_server_that_is_to_leave_no_trace_leaves_none(self):
        self.write(instances.purge, self.create({'os_distro': 'x'}))

        self.assertEqual([], self.read(lambda connection: connection.execute(
            sa.select(models.instance_system_metadata)).all()))
