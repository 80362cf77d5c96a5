# SPDX-License-Identifier: Apache-2.0
"""Cells, compute nodes and aggregates, and the mappings to cells."""

from oslo_versionedobjects import fields

from cellsched.objects import base

#: The cell of failed builds. It has a database, no hosts and no queue.
CELL0_UUID = '00000000-0000-0000-0000-000000000000'


@base.Registry.register
class CellMapping(base.Object):
    """A cell. Its repr omits the URLs, which contain passwords."""

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
        """The cell in messages: ``uuid(name)``."""
        values = self.values_of(('uuid', 'name'))
        uuid, name = values['uuid'] or '?', values['name']
        return f'{uuid}({name})' if name else uuid

    def is_cell0(self) -> bool:
        return self.uuid == CELL0_UUID

    def __repr__(self) -> str:
        return f'CellMapping({self.identity})'


@base.Registry.register
class HostMapping(base.Object):
    """The cell of a host. Host names are unique across cells."""

    VERSION = '1.0'

    fields = {
        'id': fields.IntegerField(read_only=True),
        'host': fields.StringField(),
        'cell_mapping': fields.ObjectField('CellMapping'),
    }


@base.Registry.register
class InstanceMapping(base.Object):
    """The cell of a server; None until the scheduler has selected one."""

    VERSION = '1.2'

    fields = {
        'id': fields.IntegerField(read_only=True),
        'instance_uuid': fields.UUIDField(),
        'cell_mapping': fields.ObjectField('CellMapping', nullable=True),
        'project_id': fields.StringField(),
        'user_id': fields.StringField(nullable=True),
        'queued_for_delete': fields.BooleanField(default=False),
    }


@base.Registry.register
class ComputeNode(base.Object):
    """A compute node of a host."""

    VERSION = '1.19'

    fields = {
        'uuid': fields.UUIDField(),
        'host': fields.StringField(nullable=True),
        'hypervisor_hostname': fields.StringField(nullable=True),
    }


@base.Registry.register
class ComputeNodeList(base.ObjectList):
    """Compute nodes."""

    VERSION = '1.17'

    fields = {'objects': fields.ListOfObjectsField('ComputeNode')}


@base.Registry.register
class Aggregate(base.Object):
    """A host aggregate with its metadata."""

    VERSION = '1.3'

    fields = {
        'id': fields.IntegerField(),
        'uuid': fields.UUIDField(),
        'name': fields.StringField(),
        'hosts': fields.ListOfStringsField(nullable=True),
        'metadata': fields.DictOfStringsField(nullable=True),
    }


@base.Registry.register
class AggregateList(base.ObjectList):
    """Aggregates."""

    VERSION = '1.3'

    fields = {'objects': fields.ListOfObjectsField('Aggregate')}
