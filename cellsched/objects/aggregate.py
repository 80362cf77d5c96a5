# SPDX-License-Identifier: Apache-2.0
"""A host aggregate, as callers tell schedulers of it."""

from oslo_versionedobjects import fields

from cellsched.objects import base


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
