# SPDX-License-Identifier: Apache-2.0
"""A build that was accepted and has no cell yet."""

from oslo_versionedobjects import fields

from cellsched.objects import base


@base.Registry.register
class BuildRequest(base.Object):
    """What is to be built.

    While it exists it is what readers see of the server. Whoever deletes it
    owns the outcome: the conductor goes on, a user's deletion wins.
    """

    VERSION = '1.3'

    fields = {
        'id': fields.IntegerField(),
        'instance_uuid': fields.UUIDField(),
        'project_id': fields.StringField(),
        'instance': fields.ObjectField('Instance'),
        'block_device_mappings': base.RawField(nullable=True),
        'tags': base.RawField(nullable=True),
        'created_at': fields.DateTimeField(nullable=True, tzinfo_aware=False),
        'updated_at': fields.DateTimeField(nullable=True, tzinfo_aware=False),
    }
