# SPDX-License-Identifier: Apache-2.0
"""Versioned objects: what travels and what is kept, as data only.

An object has fields and a version, in the envelope and under the names that
Nova uses. It never loads or saves itself; ``db`` does that. To add one, write
it in the module of its noun, import it here, and record its fingerprint in
the test.
"""

from cellsched.objects.aggregate import Aggregate
from cellsched.objects.aggregate import AggregateList
from cellsched.objects.base import READ_ERRORS
from cellsched.objects.block_device import BlockDeviceMapping
from cellsched.objects.block_device import BlockDeviceMappingList
from cellsched.objects.build_request import BuildRequest
from cellsched.objects.cell_mapping import CELL0_UUID
from cellsched.objects.cell_mapping import CellMapping
from cellsched.objects.compute_node import ComputeNode
from cellsched.objects.compute_node import ComputeNodeList
from cellsched.objects.flavor import Flavor
from cellsched.objects.host_mapping import HostMapping
from cellsched.objects.image_meta import ImageMeta
from cellsched.objects.image_meta import ImageMetaProps
from cellsched.objects.instance import Instance
from cellsched.objects.instance import InstanceList
from cellsched.objects.instance_group import InstanceGroup
from cellsched.objects.instance_mapping import InstanceMapping
from cellsched.objects.request_spec import Destination
from cellsched.objects.request_spec import RequestSpec
from cellsched.objects.request_spec import SchedulerLimits
from cellsched.objects.request_spec import SchedulerRetries
from cellsched.objects.selection import Selection
from cellsched.objects.tag import Tag
from cellsched.objects.tag import TagList
from cellsched import silence_eventlet  # noqa: F401

__all__ = (
    'Aggregate', 'AggregateList', 'BlockDeviceMapping',
    'BlockDeviceMappingList', 'BuildRequest', 'CELL0_UUID', 'CellMapping',
    'ComputeNode', 'ComputeNodeList', 'Destination', 'Flavor', 'HostMapping',
    'ImageMeta', 'ImageMetaProps', 'Instance', 'InstanceGroup',
    'InstanceList', 'InstanceMapping', 'READ_ERRORS', 'RequestSpec',
    'SchedulerLimits', 'SchedulerRetries', 'Selection', 'Tag', 'TagList',
)
