# SPDX-License-Identifier: Apache-2.0
"""Compute nodes, as requests and retries name them."""

from oslo_versionedobjects import fields

from cellsched.objects import base


@base.Registry.register
class ComputeNode(base.Object):
    """A node of a host."""

    VERSION = '1.19'

    fields = {
        'uuid': fields.UUIDField(),
        'host': fields.StringField(nullable=True),
        'hypervisor_hostname': fields.StringField(nullable=True),
    }


@base.Registry.register
class ComputeNodeList(base.ObjectList):
    """Nodes."""

    VERSION = '1.17'

    fields = {'objects': fields.ListOfObjectsField('ComputeNode')}


@base.Registry.register
class Aggregate(base.Object):
    """Hosts that an operator says something about."""

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
