# SPDX-License-Identifier: Apache-2.0
"""Servers, flavors, tags and block devices."""

from collections.abc import Iterable
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from typing import Self

from oslo_versionedobjects import fields

from cellsched.hardware.instance import InstanceNUMATopology
from cellsched.hardware.instance import PciDevice
from cellsched.objects import base


@base.Registry.register
class Instance(base.Object):
    """A server, as stored in a build request and in a cell.

    ``build_attempts`` is an addition: the number of hosts on which the build
    was attempted.
    """

    VERSION = '2.8'

    #: Its NUMA cells and PCI devices on a host, and its claims by provider.
    #: An agent sets them for its driver. They are not sent.
    numa_topology: InstanceNUMATopology | None = None
    pci_devices: tuple[PciDevice, ...] = ()
    allocations: Mapping[str, Mapping[str, Any]] = MappingProxyType({})

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


@base.Registry.register
class Flavor(base.Object):
    """A flavor; memory and swap in MB, disks in GB."""

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


@base.Registry.register
class Tag(base.Object):
    """A tag; ``resource_id`` is the uuid of its server."""

    VERSION = '1.1'

    fields = {
        'resource_id': fields.StringField(),
        'tag': fields.StringField(),
    }


@base.Registry.register
class TagList(base.ObjectList):
    """Tags."""

    VERSION = '1.1'

    fields = {'objects': fields.ListOfObjectsField('Tag')}

    @classmethod
    def made(cls, uuid: str, tags: Iterable[str]) -> Self:
        """Return the tags of a server."""
        return cls(objects=[Tag(resource_id=uuid, tag=tag) for tag in tags])

    @property
    def names(self) -> list[str]:
        """The tags as strings."""
        return [each.tag for each in self.objects]


@base.Registry.register
class BlockDeviceMapping(base.Object):
    """A block device: its source and its destination."""

    VERSION = '1.21'

    fields = {
        'id': fields.IntegerField(),
        'uuid': fields.UUIDField(),
        'instance_uuid': fields.UUIDField(),
        'source_type': fields.StringField(nullable=True),
        'destination_type': fields.StringField(nullable=True),
        'guest_format': fields.StringField(nullable=True),
        'device_type': fields.StringField(nullable=True),
        'disk_bus': fields.StringField(nullable=True),
        'boot_index': fields.IntegerField(nullable=True),
        'device_name': fields.StringField(nullable=True),
        'delete_on_termination': fields.BooleanField(default=False),
        'snapshot_id': fields.StringField(nullable=True),
        'volume_id': fields.StringField(nullable=True),
        'volume_size': fields.IntegerField(nullable=True),
        'volume_type': fields.StringField(nullable=True),
        'image_id': fields.StringField(nullable=True),
        'tag': fields.StringField(nullable=True),
    }

    @property
    def is_root_volume(self) -> bool:
        """Return whether the server boots from this volume."""
        return (self.get('boot_index') == 0
                and self.get('destination_type') == 'volume')


@base.Registry.register
class BlockDeviceMappingList(base.ObjectList):
    """Block devices."""

    VERSION = '1.18'

    fields = {'objects': fields.ListOfObjectsField('BlockDeviceMapping')}
