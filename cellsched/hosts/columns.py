# SPDX-License-Identifier: Apache-2.0
"""The columns of the host table."""

import dataclasses
import difflib
import functools
from typing import Any

#: Whole numbers, stored as float64: it is the fastest to compare and multiply,
#: and exact up to :data:`NUMBER_MAX`.
WHOLE = 'whole'

#: Any hashable value, stored as a code that hosts with equal values share.
CODED = 'coded'


#: The greatest number that a column holds exactly.
NUMBER_MAX = 2.0 ** 53


@dataclasses.dataclass(frozen=True)
class Column:
    """A column: one value for each host.

    :param name: Nova's name of the host state attribute, if it has one
    :param dtype: NumPy type of the values, ``object`` for text, :data:`WHOLE`
        or :data:`CODED`
    :param default: value of a host that reported none; for a text column it
        may also be None
    :param doc: the meaning of the column, with its unit
    :param source: the part of the agents' reports that fills the column:
        ``stats.NAME`` for a statistic, ``metrics.NAME`` for a metric,
        ``traits.NAME`` for whether the node has a trait; None if reports do
        not fill it. Numbers may be reported as text. Text must be printable
        and have at most 255 characters. Any other value is replaced with the
        default
    """

    name: str
    dtype: str
    default: Any
    doc: str
    source: str | None = None

    @property
    def stored(self) -> str:
        """NumPy type of the stored array."""
        return {WHOLE: 'float64', CODED: 'int32'}.get(self.dtype, self.dtype)


#: Columns that every table has.
STANDARD = (
    Column('host', 'object', '', 'service host'),
    Column('nodename', 'object', '', 'name of the node'),
    Column('uuid', 'object', '', 'uuid of the compute node'),
    Column('host_ip', 'object', None, 'address of the host, as text; None '
           'if it reported none'),
    Column('cell', CODED, '', 'uuid of the cell'),
    Column('availability_zone', CODED, '', 'name of the availability zone'),
    Column('aggregates', CODED, (), 'the host aggregates, a tuple of '
           ':class:`~cellsched.hosts.aggregate.HostAggregate` by their ids'),
    Column('traits', CODED, frozenset(), 'names of the traits of the host, a '
           'frozenset'),
    Column('units', CODED, (), 'allocation units for one server, a tuple of '
           'tuples of resource class, minimum, maximum and step size'),
    Column('children', CODED, (), 'child providers, a tuple of tuples of the '
           "parent's number, or 0 for the host, and the traits, a frozenset; "
           'they are numbered from 1'),
    Column('child_uuids', CODED, (), 'uuids of the child providers, a tuple'),
    Column('child_units', CODED, (), 'allocation units, for each child '
           'provider'),
    Column('sharing', CODED, (), 'uuids of the sharing providers of the '
           "host's aggregates, a tuple"),
    Column('service_disabled', 'bool', False, 'an operator disabled it'),
    Column('forced_down', 'bool', False, 'an operator forced it down'),
    Column('last_seen_up', 'float64', 0.0,
           'its last report, in seconds since the epoch'),
    Column('vcpus_total', WHOLE, 0, 'physical CPUs'),
    Column('vcpus_used', WHOLE, 0, 'virtual CPUs in use'),
    Column('cpu_allocation_ratio', 'float64', 1.0,
           'virtual CPUs for each physical one'),
    Column('total_usable_ram_mb', WHOLE, 0, 'physical memory, MB'),
    Column('free_ram_mb', WHOLE, 0,
           'physical memory that is neither reserved nor in use, MB; '
           'negative if it is overcommitted'),
    Column('unreserved_ram_mb', WHOLE, 0,
           'physical memory that the host does not keep for itself, MB'),
    Column('ram_allocation_ratio', 'float64', 1.0,
           'memory offered as a multiple of the physical memory'),
    Column('total_usable_disk_gb', WHOLE, 0, 'physical disk, GB'),
    Column('free_disk_mb', WHOLE, 0,
           'physical disk that is neither reserved nor in use, MB'),
    Column('unreserved_disk_mb', WHOLE, 0,
           'physical disk that the host does not keep for itself, MB'),
    Column('disk_mb_used', WHOLE, 0, 'disk in use, MB'),
    Column('disk_allocation_ratio', 'float64', 1.0,
           'disk offered as a multiple of the physical disk'),
    Column('num_instances', WHOLE, 0, 'servers that hold a claim here'),
    Column('num_io_ops', WHOLE, 0, 'builds and moves in progress'),
    Column('failed_builds', WHOLE, 0, 'builds that failed in a row'),
    Column('free_pci_devices', WHOLE, 0, 'unused PCI devices'),
    Column('numa_topology', CODED, None, 'NUMA cells, a '
           ':class:`~cellsched.hardware.host.HostTopology`; None if the host '
           'reported none'),
    Column('device_pools', CODED, (), 'PCI devices, a tuple of '
           ':class:`~cellsched.hardware.devices.Pool`'),
    Column('claims_hardware', 'bool', False, 'CPUs, pages and devices are '
           'resource classes, so cells and pools are without their usage'),
    Column('hypervisor_type', CODED, None, 'type of the hypervisor; None '
           'if the host reported none'),
    Column('hypervisor_version', WHOLE, 0, 'version of the hypervisor'),
    Column('cpu_info', CODED, '', 'description of the CPUs, as JSON text'),
    Column('supported_instances', CODED, (), 'what the host can run, a tuple '
           'of tuples of architecture, hypervisor type and VM mode'),
    Column('image_props', CODED, (), 'servers by image property, a '
           'tuple of tuples of property, value and number of servers'),
    Column('stats', CODED, '', 'statistics, as JSON text of an object'),
    Column('metrics', CODED, '', 'metrics, as JSON text of a list of objects '
           'with ``name`` and ``value``'),
)

#: Facts of the host's cell, computed when they are first read.
CELL_FACTS = (
    Column('cell_free_share', 'float64', 0.0,
           'least share of CPUs, memory or disk that is free in the cell'),
    Column('cell_builds', WHOLE, 0,
           'builds and moves in progress in the cell'),
    Column('cell_failures', 'float64', 0.0,
           'failures of builds and of the database in the cell, with '
           'exponential decay'),
    Column('cell_silent_s', 'float64', 0.0,
           'seconds since the last answer of the cell'),
    Column('cell_disabled', 'bool', False,
           'the cell is disabled, and takes no new servers'),
)

#: Name prefix of the columns with the unclaimed amount of a resource class:
#: ``available:VCPU``. A column is created with the first inventory of the
#: class.
AVAILABLE = 'available:'

#: Separates a resource class from its provider if that is not the host itself:
#: ``available:VGPU@2`` is the second child provider of each host. With a uuid
#: it is a sharing provider, which has no column.
AT = '@'

#: The maximum number of child providers of a host; further ones are ignored.
CHILDREN_MAX = 128


def sharing_provider(name: str) -> str | None:
    """Return the sharing provider's uuid in a resource name, or None."""
    _, _, place = name.partition(AT)
    return place if place and not place.isdigit() else None


@functools.lru_cache(256)
def near(name: str, names: tuple[str, ...]) -> str:
    """Return a "did you mean" question with the nearest name, or a full stop.

    The result is cached, because a plug-in may fail to read a column once for
    each host.
    """
    found = difflib.get_close_matches(name, names, 1)
    return f'; did you mean {found[0]}?' if found else '.'
