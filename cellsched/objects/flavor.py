# SPDX-License-Identifier: Apache-2.0
"""Sizes that servers come in."""

from oslo_versionedobjects import fields

from cellsched.objects import base


@base.Registry.register
class Flavor(base.Object):
    """A size; memory and swap in MB, disks in GB."""

    VERSION = '1.2'

    fields = {
        'id': fields.IntegerField(),
        'name': fields.StringField(nullable=True),
        'memory_mb': fields.IntegerField(),
        'vcpus': fields.IntegerField(),
        'root_gb': fields.IntegerField(),
        'ephemeral_gb': fields.IntegerField(default=0),
        'flavorid': fields.StringField(),
        'swap': fields.IntegerField(default=0),
        'rxtx_factor': fields.FloatField(nullable=True, default=1.0),
        'vcpu_weight': fields.IntegerField(nullable=True),
        'disabled': fields.BooleanField(default=False),
        'is_public': fields.BooleanField(default=True),
        'extra_specs': fields.DictOfStringsField(),
        'projects': fields.ListOfStringsField(),
        'description': fields.StringField(nullable=True),
    }
