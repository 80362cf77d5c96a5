# SPDX-License-Identifier: Apache-2.0
"""Databases and configurations of embedded conductors."""

import uuid

from cellsched import embedding
from cellsched import objects
from tests.unit import base


class EmbeddedTestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.directory = self.temporary_directory()
        self.world = uuid.uuid4().hex

    def url(self, name):
        return f'sqlite:///{self.directory}/{name}.sqlite'

    def conf(self, **groups):
        """Return the configuration of a conductor of this test."""
        return embedding.configuration(
            self.url('api'), f'local://{self.world}/api', self.url('claims'),
            'embedder', **groups)

    def make(self, **groups):
        """Return a conductor with its databases, and nothing around it."""
        conf = self.conf(**groups)
        embedding.create_schemas(
            conf, [self.url('cell0'), self.url('cell1')])
        conductor = embedding.EmbeddedConductor(conf)
        self.addCleanup(conductor.close)
        return conductor


def spec():
    """Return a request for a server, as an embedder writes it."""
    return objects.RequestSpec(flavor=objects.Flavor(
        id=1, flavorid='1', name='tiny', vcpus=2, memory_mb=512, root_gb=1,
        extra_specs={}))
