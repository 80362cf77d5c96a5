# SPDX-License-Identifier: Apache-2.0
"""The mapping of a host to its cell."""

from oslo_versionedobjects import fields

from cellsched.objects import base


@base.Registry.register
class HostMapping(base.Object):
    """A host, whose name is unique across all cells, and its cell."""

    VERSION = '1.0'

    fields = {
        'id': fields.IntegerField(read_only=True),
        'host': fields.StringField(),
        'cell_mapping': fields.ObjectField('CellMapping'),
    }
