# SPDX-License-Identifier: Apache-2.0
"""The mapping of a server to its cell."""

from oslo_versionedobjects import fields

from cellsched.objects import base


@base.Registry.register
class InstanceMapping(base.Object):
    """A server and its cell; no cell as long as none was decided on."""

    VERSION = '1.2'

    fields = {
        'id': fields.IntegerField(read_only=True),
        'instance_uuid': fields.UUIDField(),
        'cell_mapping': fields.ObjectField('CellMapping', nullable=True),
        'project_id': fields.StringField(),
        'user_id': fields.StringField(nullable=True),
        'queued_for_delete': fields.BooleanField(default=False),
    }
