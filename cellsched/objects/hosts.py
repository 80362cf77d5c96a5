# SPDX-License-Identifier: Apache-2.0
"""Compute nodes and host aggregates."""

from oslo_versionedobjects import fields

from cellsched.objects import base


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
