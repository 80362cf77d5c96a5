# SPDX-License-Identifier: Apache-2.0
"""Versioned objects of messages and databases, as data only.

An object has fields and a version, in the envelope and under the names that
Nova uses. It never loads or saves itself; ``db`` does that. To add one, write
it in the module of its noun, import it here, and record its fingerprint in
the test.
"""

# The imports below would warn of eventlet.
from cellsched import silence_eventlet  # noqa: F401

from cellsched.objects.base import is_newer
from cellsched.objects.base import READ_ERRORS
from cellsched.objects.cells import Aggregate
from cellsched.objects.cells import AggregateList
from cellsched.objects.cells import CELL0_UUID
from cellsched.objects.cells import CellMapping
from cellsched.objects.cells import ComputeNode
from cellsched.objects.cells import ComputeNodeList
from cellsched.objects.cells import HostMapping
from cellsched.objects.cells import InstanceMapping
from cellsched.objects.requests import BuildRequest
from cellsched.objects.requests import Destination
from cellsched.objects.requests import ImageMeta
from cellsched.objects.requests import ImageMetaProps
from cellsched.objects.requests import InstanceGroup
from cellsched.objects.requests import RequestSpec
from cellsched.objects.requests import SchedulerLimits
from cellsched.objects.requests import SchedulerRetries
from cellsched.objects.requests import Selection
from cellsched.objects.servers import BlockDeviceMapping
from cellsched.objects.servers import BlockDeviceMappingList
from cellsched.objects.servers import Flavor
from cellsched.objects.servers import Instance
from cellsched.objects.servers import InstanceList
from cellsched.objects.servers import Tag
from cellsched.objects.servers import TagList

__all__ = (
    'Aggregate', 'AggregateList', 'BlockDeviceMapping',
    'BlockDeviceMappingList', 'BuildRequest', 'CELL0_UUID', 'CellMapping',
    'ComputeNode', 'ComputeNodeList', 'Destination', 'Flavor', 'HostMapping',
    'ImageMeta', 'ImageMetaProps', 'Instance', 'InstanceGroup',
    'InstanceList', 'InstanceMapping', 'READ_ERRORS', 'RequestSpec',
    'SchedulerLimits', 'SchedulerRetries', 'Selection', 'Tag', 'TagList',
    'is_newer',
)
