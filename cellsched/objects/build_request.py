# SPDX-License-Identifier: Apache-2.0
"""A build that was accepted and has no cell yet."""

from oslo_versionedobjects import fields

from cellsched.objects import base


@base.Registry.register
class BuildRequest(base.Object):
    """A request for the build of a server.

    While it exists it is what readers see of the server. Whoever deletes it
    owns the outcome: the conductor goes on, a user's deletion wins.

    Ours are ``buried``, whether a record in cell0 is being tried again, and
    ``failure``, why the build failed, where cell0 could not take it.
    """

    VERSION = '1.3'

    fields = {
        'id': fields.IntegerField(),
        'instance_uuid': fields.UUIDField(),
        'project_id': fields.StringField(),
        'instance': fields.ObjectField('Instance'),
        'block_device_mappings': fields.ObjectField(
            'BlockDeviceMappingList', nullable=True),
        'tags': fields.ObjectField('TagList', nullable=True),
        'buried': fields.BooleanField(default=False),
        'failure': fields.StringField(nullable=True),
        'created_at': fields.DateTimeField(nullable=True, tzinfo_aware=False),
        'updated_at': fields.DateTimeField(nullable=True, tzinfo_aware=False),
    }

    @property
    def tag_names(self) -> list[str]:
        """The tags of the server that is to be."""
        tags = self.get('tags')
        return [] if tags is None else tags.names
