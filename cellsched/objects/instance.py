# SPDX-License-Identifier: Apache-2.0
"""A server."""

from oslo_versionedobjects import fields

from cellsched.objects import base


@base.Registry.register
class Instance(base.Object):
    """A server, as a build request and a cell keep it.

    ``build_attempts`` is ours: the hosts that its build was tried on.
    """

    VERSION = '2.8'

    fields = {
        'uuid': fields.UUIDField(),
        'project_id': fields.StringField(nullable=True),
        'user_id': fields.StringField(nullable=True),
        'display_name': fields.StringField(nullable=True),
        'image_ref': fields.StringField(nullable=True),
        'launch_index': fields.IntegerField(nullable=True, default=0),
        'vm_state': fields.StringField(nullable=True),
        'task_state': fields.StringField(nullable=True),
        'power_state': fields.IntegerField(nullable=True, default=0),
        'vcpus': fields.IntegerField(nullable=True),
        'memory_mb': fields.IntegerField(nullable=True),
        'root_gb': fields.IntegerField(nullable=True),
        'ephemeral_gb': fields.IntegerField(nullable=True),
        'instance_type_id': fields.IntegerField(nullable=True),
        'host': fields.StringField(nullable=True),
        'node': fields.StringField(nullable=True),
        'availability_zone': fields.StringField(nullable=True),
        'reservation_id': fields.StringField(nullable=True),
        'created_at': fields.DateTimeField(nullable=True, tzinfo_aware=False),
        'launched_at': fields.DateTimeField(nullable=True, tzinfo_aware=False),
        'terminated_at': fields.DateTimeField(
            nullable=True, tzinfo_aware=False),
        'build_attempts': fields.IntegerField(default=0),
        'flavor': fields.ObjectField('Flavor'),
    }


@base.Registry.register
class InstanceList(base.ObjectList):
    """Servers."""

    VERSION = '2.6'

    fields = {'objects': fields.ListOfObjectsField('Instance')}
