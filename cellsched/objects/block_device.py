# SPDX-License-Identifier: Apache-2.0
"""The block devices of a server."""

from oslo_versionedobjects import fields

from cellsched.objects import base


@base.Registry.register
class BlockDeviceMapping(base.Object):
    """A disk: what it is made from, and where it is kept."""

    VERSION = '1.21'

    fields = {
        'id': fields.IntegerField(),
        'uuid': fields.UUIDField(),
        'instance_uuid': fields.UUIDField(),
        'source_type': fields.StringField(nullable=True),
        'destination_type': fields.StringField(nullable=True),
        'guest_format': fields.StringField(nullable=True),
        'device_type': fields.StringField(nullable=True),
        'disk_bus': fields.StringField(nullable=True),
        'boot_index': fields.IntegerField(nullable=True),
        'device_name': fields.StringField(nullable=True),
        'delete_on_termination': fields.BooleanField(default=False),
        'snapshot_id': fields.StringField(nullable=True),
        'volume_id': fields.StringField(nullable=True),
        'volume_size': fields.IntegerField(nullable=True),
        'volume_type': fields.StringField(nullable=True),
        'image_id': fields.StringField(nullable=True),
        'tag': fields.StringField(nullable=True),
    }


@base.Registry.register
class BlockDeviceMappingList(base.ObjectList):
    """Block devices."""

    VERSION = '1.18'

    fields = {'objects': fields.ListOfObjectsField('BlockDeviceMapping')}
