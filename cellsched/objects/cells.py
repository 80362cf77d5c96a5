# SPDX-License-Identifier: Apache-2.0
"""A cell: its name and the ways into it."""

from oslo_versionedobjects import fields

from cellsched.objects import base

#: The cell of what could not be built: a database and nothing else.
CELL0_UUID = '00000000-0000-0000-0000-000000000000'


@base.Registry.register
class CellMapping(base.Object):
    """A cell; its URLs hold passwords, so its text form leaves them out."""

    VERSION = '1.1'

    fields = {
        'id': fields.IntegerField(read_only=True),
        'uuid': fields.UUIDField(),
        'name': fields.StringField(nullable=True),
        'transport_url': fields.StringField(),
        'database_connection': fields.StringField(),
        'disabled': fields.BooleanField(default=False),
    }

    @property
    def identity(self) -> str:
        """The cell for people: ``uuid(name)``."""
        said = self.values_of(('uuid', 'name'))
        uuid, name = said['uuid'] or '?', said['name']
        return f'{uuid}({name})' if name else uuid

    def is_cell0(self) -> bool:
        return self.uuid == CELL0_UUID

    def __repr__(self) -> str:
        return f'CellMapping({self.identity})'


@base.Registry.register
class HostMapping(base.Object):
    """A host, whose name is unique across all cells, and its cell."""

    VERSION = '1.0'

    fields = {
        'id': fields.IntegerField(read_only=True),
        'host': fields.StringField(),
        'cell_mapping': fields.ObjectField('CellMapping'),
    }


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
