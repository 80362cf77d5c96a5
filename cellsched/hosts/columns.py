# SPDX-License-Identifier: Apache-2.0
"""The columns of the host table."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Column:
    """A column: one value for each host.

    :param name: Nova's name of the host state's attribute, where it has one
    :param dtype: NumPy's type of the values; ``object`` for text
    :param default: value of a host that has not said its own
    :param doc: what it is, with its unit
    """

    name: str
    dtype: str
    default: Any
    doc: str


#: Columns that every table has.
STANDARD = (
    Column('host', 'object', '', 'service host'),
    Column('nodename', 'object', '', 'name of the node'),
    Column('uuid', 'object', '', 'uuid of the compute node'),
    Column('cell', 'int32', -1, 'code of the cell, see HostTable.cells'),
    Column('availability_zone', 'int32', -1,
           'code of the availability zone, see HostTable.code'),
    Column('service_disabled', 'bool', False, 'an operator disabled it'),
    Column('forced_down', 'bool', False, 'an operator said that it is down'),
    Column('last_seen_up', 'float64', 0.0,
           'its last report, in seconds since the epoch'),
    Column('vcpus_total', 'int64', 0, 'physical CPUs'),
    Column('vcpus_used', 'int64', 0, 'virtual CPUs taken'),
    Column('cpu_allocation_ratio', 'float64', 1.0,
           'virtual CPUs for each physical one'),
    Column('total_usable_ram_mb', 'int64', 0, 'physical memory, MB'),
    Column('free_ram_mb', 'int64', 0,
           'physical memory that is neither reserved nor taken, MB; below '
           'zero where it is overcommitted'),
    Column('unreserved_ram_mb', 'int64', 0,
           'physical memory that the host does not keep for itself, MB'),
    Column('ram_allocation_ratio', 'float64', 1.0,
           'memory offered as a multiple of the physical memory'),
    Column('total_usable_disk_gb', 'int64', 0, 'physical disk, GB'),
    Column('free_disk_mb', 'int64', 0,
           'physical disk that is neither reserved nor taken, MB'),
    Column('unreserved_disk_mb', 'int64', 0,
           'physical disk that the host does not keep for itself, MB'),
    Column('disk_mb_used', 'int64', 0, 'disk taken, MB'),
    Column('disk_allocation_ratio', 'float64', 1.0,
           'disk offered as a multiple of the physical disk'),
    Column('num_instances', 'int32', 0, 'servers that hold a claim here'),
    Column('num_io_ops', 'int32', 0, 'builds and moves in progress'),
    Column('failed_builds', 'int32', 0, 'builds that failed in a row'),
    Column('hypervisor_version', 'int64', 0, 'version of the hypervisor'),
)

#: Prefix of the columns that say how much of a resource class can still be
#: claimed: ``room:VCPU``. They come into being with the first inventory.
ROOM = 'room:'
