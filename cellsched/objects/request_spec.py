# SPDX-License-Identifier: Apache-2.0
"""The request that a caller makes to the scheduler."""

from typing import Any

from oslo_versionedobjects import fields

from cellsched.objects import base
from cellsched.objects import request_groups
from cellsched.objects import resources


@base.Registry.register
class SchedulerLimits(base.Object):
    """Limits that filters allow a build on a host beyond its totals."""

    VERSION = '1.0'

    fields = {
        'numa_topology': base.RawField(nullable=True),
        'vcpu': fields.IntegerField(nullable=True),
        'disk_gb': fields.IntegerField(nullable=True),
        'memory_mb': fields.IntegerField(nullable=True),
    }

    def to_dict(self) -> dict[str, Any]:
        """Return the limits that are set, as older callers expect them."""
        return {name: value for name, value in
                self.values_of(self.fields).items() if value is not None}


@base.Registry.register
class SchedulerRetries(base.Object):
    """Hosts that a build was tried on."""

    VERSION = '1.1'

    fields = {
        'num_attempts': fields.IntegerField(),
        'hosts': fields.ObjectField('ComputeNodeList'),
    }


@base.Registry.register
class Destination(base.Object):
    """The host, node or cell that a request wants to go to, or has to."""

    VERSION = '1.4'

    fields = {
        'host': fields.StringField(),
        'node': fields.StringField(nullable=True),
        'cell': fields.ObjectField('CellMapping', nullable=True),
        'aggregates': fields.ListOfStringsField(nullable=True),
        'allow_cross_cell_move': fields.BooleanField(default=False),
        'forbidden_aggregates': base.SetOfStringsField(nullable=True),
    }


#: Fields that say of groups of resources, beside the flavor.
_BESIDE_FLAVOR = 'requested_resources', 'request_level_params'


@base.Registry.register
class RequestSpec(base.Object):
    """A request for one or more servers of one size.

    Fields that hold Nova's objects which nothing here reads are passed on as
    they came.
    """

    VERSION = '1.15'

    fields = {
        'id': fields.IntegerField(),
        'image': fields.ObjectField('ImageMeta', nullable=True),
        'numa_topology': base.RawField(nullable=True),
        'pci_requests': base.RawField(nullable=True),
        'project_id': fields.StringField(nullable=True),
        'user_id': fields.StringField(nullable=True),
        'availability_zone': fields.StringField(nullable=True),
        'flavor': fields.ObjectField('Flavor'),
        'num_instances': fields.IntegerField(default=1),
        'ignore_hosts': fields.ListOfStringsField(nullable=True),
        'force_hosts': fields.ListOfStringsField(nullable=True),
        'force_nodes': fields.ListOfStringsField(nullable=True),
        'requested_destination': fields.ObjectField(
            'Destination', nullable=True, default=None),
        'retry': fields.ObjectField('SchedulerRetries', nullable=True),
        'limits': fields.ObjectField('SchedulerLimits', nullable=True),
        'instance_group': fields.ObjectField('InstanceGroup', nullable=True),
        'scheduler_hints': fields.DictOfListOfStringsField(nullable=True),
        'instance_uuid': fields.UUIDField(),
        'security_groups': base.RawField(),
        'network_metadata': base.RawField(),
        'is_bfv': fields.BooleanField(),
        'requested_resources': base.RawField(nullable=True),
        'request_level_params': base.RawField(),
        'requested_networks': base.RawField(),
    }

    def hint(self, name: str) -> list[str]:
        """Return what a scheduler hint says; nothing where it is not given."""
        hints = self.get('scheduler_hints') or {}
        return list(hints.get(name) or ())

    def get_scheduler_hint(self, name: str, default: Any = None) -> Any:
        """Return a hint as filters written for Nova read it.

        A single value stands for itself, several are a list.
        """
        if name not in (self.get('scheduler_hints') or {}):
            return default
        hint = self.hint(name)
        return hint[0] if len(hint) == 1 else hint

    def image_property(self, name: str, default: Any = None) -> Any:
        """Return a property of the image, or the default without one."""
        image = self.get('image')
        properties = image.get('properties') if image else None
        return properties.get(name, default) if properties else default

    def image_properties(self) -> dict[str, Any]:
        """Return all properties of the image, by name."""
        image = self.get('image')
        properties = image.get('properties') if image else None
        return dict(properties.items()) if properties else {}

    def resources(self) -> dict[str, int]:
        """Return what one instance takes, by resource class.

        A root disk on a volume takes no disk of the host. Swap is given in MB
        and taken in whole GB. What an extra spec ``resources:CLASS`` says of
        a class goes before that, and zero takes nothing of it.

        :raises cellsched.exception.InvalidField: an extra spec names no such
            class, or no amount
        """
        flavor = self.flavor
        more = flavor.values_of(('ephemeral_gb', 'swap', 'extra_specs'))
        swap_gb = -(-(more['swap'] or 0) // 1024)
        disk_gb = (more['ephemeral_gb'] or 0) + swap_gb
        if not self.get('is_bfv', False):
            disk_gb += flavor.root_gb
        wanted = {'VCPU': flavor.vcpus, 'MEMORY_MB': flavor.memory_mb,
                  'DISK_GB': disk_gb}
        if more['extra_specs']:
            wanted.update(resources.asked(more['extra_specs']))
        return {name: amount for name, amount in wanted.items() if amount}

    def group_demand(self) -> request_groups.GroupDemand:
        """Return what one instance takes beside that, of single providers.

        The flavor's extra specs, ``requested_resources`` and ``same_subtree``
        of ``request_level_params`` say it.

        :raises cellsched.exception.InvalidField: names what makes no sense
        """
        more = self.values_of(_BESIDE_FLAVOR)
        return request_groups.asked(
            self.flavor.get('extra_specs'), *more.values())
