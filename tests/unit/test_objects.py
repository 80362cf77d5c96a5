# SPDX-License-Identifier: Apache-2.0
"""Versioned objects: what travels and what is kept, as data only."""

import inspect

from oslo_versionedobjects import base as ovo
from oslo_versionedobjects import fields as ovo_fields
from oslo_versionedobjects import fixture

from cellsched import objects
from cellsched.objects import base as objects_base
from tests.unit import base

#: Versions, each with a hash of the fields. When this test fails the fields
#: of an object have changed: what is sent and kept by older releases has
#: others. Then the version goes up, as Nova's does, and so does the hash.
FINGERPRINTS = {
    'Aggregate': '1.3-2c4ce1dcd4855a6205eb8770e12dde93',
    'AggregateList': '1.3-15ecf022a68ddbb8c2a6739cfc9f8f5e',
    'BlockDeviceMapping': '1.21-39e44bda0988c8a8d2fe2fa77b3f17f6',
    'BlockDeviceMappingList': '1.18-15ecf022a68ddbb8c2a6739cfc9f8f5e',
    'BuildRequest': '1.3-09fe360ec2652861e861b69da9cabb01',
    'CellMapping': '1.1-698c221560f4e95ad3b65a4f82e8f3af',
    'ComputeNode': '1.19-c2ccf5eaafc52a2341e0c265743b27b7',
    'ComputeNodeList': '1.17-15ecf022a68ddbb8c2a6739cfc9f8f5e',
    'Destination': '1.4-85937120d960675ca061c6eecbe988b0',
    'Flavor': '1.2-665ed14f858e16edd25f55cc613b9567',
    'HostMapping': '1.0-ded64e9601549db02a69dfee2f3c181c',
    'ImageMeta': '1.8-c01dce67d4ad09f5372f705a979bccfa',
    'ImageMetaProps': '1.44-77509ea1ea0dd750d5864b9bd87d3f9d',
    'Instance': '2.8-848e6793ba875fdc2a19970a34509cee',
    'InstanceGroup': '1.11-be9780b4fb973c1e295c193f85d749de',
    'InstanceList': '2.6-15ecf022a68ddbb8c2a6739cfc9f8f5e',
    'InstanceMapping': '1.2-ec791be724ba13c2a9479d06c1bad92c',
    'RequestSpec': '1.15-14fe87e705bbd581fbe1efd0b92bc898',
    'SchedulerLimits': '1.0-8a16f9113a75f6ca9ed32ea85a9132c7',
    'SchedulerRetries': '1.1-3c9c8b16143ebbb6ad7030e999d14cc0',
    'Selection': '1.1-548e3c2f04da2a61ceaf9c4e1589f264',
    'Tag': '1.1-c56e1f59beab4dce02720e6b6acec1a5',
    'TagList': '1.1-15ecf022a68ddbb8c2a6739cfc9f8f5e',
}


class TestObjects(base.TestCase):

    def setUp(self):
        super().setUp()
        self.classes = objects_base.Registry.obj_classes()

    def test_fields_change_only_with_the_version(self):
        checker = fixture.ObjectVersionChecker(self.classes)

        self.assertEqual(FINGERPRINTS, checker.get_hashes())

    def test_every_object_is_published(self):
        self.assertEqual(
            set(self.classes),
            {name for name in objects.__all__
             if inspect.isclass(getattr(objects, name))})

    def test_registry_is_separate_from_host_applications(self):
        theirs = ovo.VersionedObjectRegistry.obj_classes()

        for name in self.classes:
            self.assertNotIn(name, theirs)

    def test_object_of_a_host_application_does_not_replace_ours(self):
        class Flavor(ovo.VersionedObject):
            OBJ_PROJECT_NAMESPACE = 'nova'
            VERSION = objects.Flavor.VERSION
            fields = {'name': ovo_fields.StringField()}

        # The fixture needs the registry to have been used.
        ovo.VersionedObjectRegistry.obj_classes()
        self.useFixture(fixture.VersionedObjectRegistryFixture()).register(
            Flavor)

        self.assertEqual([objects.Flavor], self.classes['Flavor'])

    def test_objects_have_the_envelope(self):
        for name, (newest, *_) in self.classes.items():
            empty = ({'objects': []} if issubclass(newest, ovo.ObjectListBase)
                     else {})

            self.assertEqual(
                {'nova_object.name': name, 'nova_object.namespace': 'nova',
                 'nova_object.version': newest.VERSION,
                 'nova_object.data': empty},
                newest().obj_to_primitive())

    def test_objects_can_always_be_shown(self):
        for name, (newest, *_) in self.classes.items():
            self.assertTrue(repr(newest()).startswith(name))
