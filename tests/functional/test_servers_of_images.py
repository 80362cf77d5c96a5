# SPDX-License-Identifier: Apache-2.0
"""Hosts are selected by the images of their servers."""

import json

import sqlalchemy as sa

from cellsched import context
from cellsched.db.api import models as api_models
from cellsched.host_manager import manager
from cellsched.standalone import deployment
from tests.functional import base

#: Memory of a host that comes first as long as nothing speaks against it.
LARGE = 65536


class TestServersOfImages(base.TestCase):

    def setUp(self):
        super().setUp()
        self.deploy(
            {'cell1': [deployment.DeployedHost('a1', memory_mb=LARGE),
                       deployment.DeployedHost('a2')]},
            DEFAULT={'report_interval': 1},
            scheduler=base.READ_EACH_TIME,
            filter_scheduler={'image_props_weight_multiplier': -1000.0,
                              # A host may still report its last build.
                              'io_ops_weight_multiplier': 0.0})
        parts = self.world.api.parts
        # What another scheduler knows.
        self.known = manager.HostManager(
            parts.database, parts.cells, parts.gatherer, parts.discovery,
            parts.claims, parts.clock, manager.RefreshPolicy(), 'nova')

    def images(self, host):
        self.known.refresh(context.admin())
        table = self.known.table
        code = table['image_props'][table.row(self.provider('cell1', host))]
        return table.encoding('image_props').values[code]

    def build(self, **properties):
        """Build a server of an image that says this; return its host."""
        [uuid] = self.unheard().servers.create(
            base.USER, 'server', 'small', image_ref='image')
        table = api_models.request_specs
        with self.world.api.parts.database.writer() as connection:
            spec = json.loads(connection.execute(sa.select(table.c.spec).where(
                table.c.instance_uuid == uuid)).scalar_one())
            spec['nova_object.data']['image']['nova_object.data'][
                'properties'] = {
                    'nova_object.name': 'ImageMetaProps',
                    'nova_object.namespace': 'nova',
                    'nova_object.version': '1.44',
                    'nova_object.data': properties}
            connection.execute(
                sa.update(table).where(table.c.instance_uuid == uuid)
                .values(spec=json.dumps(spec)))
        self.recover(late_s=3600)
        [server] = self.settled([uuid])
        self.assertEqual('ACTIVE', server.status)
        return uuid, server.host

    def test_servers_of_like_images_are_spread(self):
        first, host = self.build(os_distro='x')
        self.assertEqual('a1', host)
        self.until(lambda: self.images('a1') == (('os_distro', 'x', 1),),
                   'a1 tells of its server')

        self.assertEqual('a1', self.build(os_distro='y')[1])
        self.assertEqual('a2', self.build(os_distro='x')[1])

        self.delete(first)
        self.until(lambda: self.images('a1') == (('os_distro', 'y', 1),),
                   'a1 tells that its server is gone')
