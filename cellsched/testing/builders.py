# SPDX-License-Identifier: Apache-2.0
"""Hosts, requests and options for tests of plug-ins, in a line each."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any
from typing import TypeVar
import uuid

import numpy as np
from oslo_config import cfg

from cellsched.filters import base as filters
from cellsched.hosts.aggregate import HostAggregate
from cellsched.hosts.columns import AVAILABLE
from cellsched.hosts.columns import Column
from cellsched.hosts.columns import STANDARD
from cellsched.hosts.table import HostTable
from cellsched.hosts import view
from cellsched import objects
from cellsched.weighers import base as weighers

#: The default time of the request, in seconds since the epoch.
NOW = 1_700_000_000.0

#: The cell of hosts that are put into none.
CELL = '10000000-0000-4000-8000-000000000000'

#: Columns that are derived from other columns by default, in this order.
_FOLLOWING: dict[str, Callable[[view.Hosts], view.Column]] = {
    'unreserved_ram_mb': lambda it: it['total_usable_ram_mb'],
    'free_ram_mb': lambda it: it['unreserved_ram_mb'],
    'unreserved_disk_mb': lambda it: it['total_usable_disk_gb'] * 1024,
    'free_disk_mb': lambda it: it['unreserved_disk_mb'],
    'disk_mb_used': lambda it: it['unreserved_disk_mb'] - it['free_disk_mb'],
    'available:VCPU': lambda it: _offered(it, 'vcpus_total', 'cpu')
    - it['vcpus_used'],
    'available:MEMORY_MB': lambda it: _offered(it, 'unreserved_ram_mb', 'ram')
    - it['unreserved_ram_mb'] + it['free_ram_mb'],
    'available:DISK_GB': lambda it: (
        _offered(it, 'unreserved_disk_mb', 'disk')
        - it['disk_mb_used']) // 1024,
}

_Plugin = TypeVar('_Plugin', bound=filters.Filter | weighers.Weigher)


def hosts(
    count: int | None = None, *, now: float = NOW,
    located: Mapping[str, int] | None = None,
    available: Mapping[str, Any] | None = None,
    failures: Mapping[str, float] | None = None,
    columns: Iterable[Column] = (), **values: Any,
) -> view.Hosts:
    """Return hosts that are up and have room, as one request sees them.

    :param located: rows of instances, by uuid

    See :func:`table` for the other parameters.
    """
    made = table(count, now, available, failures, columns, **values)
    uuids = made.snapshot.columns['uuid']
    return made.view(now, {instance: uuids[row] for instance, row
                           in (located or {}).items()})


def table(
    count: int | None = None, now: float = NOW,
    available: Mapping[str, Any] | None = None,
    failures: Mapping[str, float] | None = None,
    columns: Iterable[Column] = (), **values: Any,
) -> HostTable:
    """Return a table of hosts that are up and have room.

    ``hosts(num_instances=[1, 2, 3])`` has three. A host has 8 CPUs offered
    four times, 16 GB of memory, 100 GB of disk, and no servers. The amounts
    that a request may claim are derived from the columns of the resource.

    :param count: the number of hosts, if no column has a list; by default one
    :param now: wall clock time of the request
    :param available: amounts that can still be claimed, by resource class
    :param failures: recent failures, by cell
    :param columns: columns beyond the standard ones
    :param values: a list of one value for each host, or one for all, by
        column; for aggregates a tuple of :func:`aggregate`
    """
    given = {**values, **{AVAILABLE + resource: amount
                          for resource, amount in (available or {}).items()}}
    lengths = {len(value) for value in given.values()
               if isinstance(value, (list, np.ndarray))}
    if count is not None:
        lengths.add(count)
    if len(lengths) > 1:
        raise ValueError(f'columns of different lengths: {sorted(lengths)}')
    count = lengths.pop() if lengths else 1
    uuids = given.pop('uuid', None) or [
        str(uuid.UUID(int=row + 1)) for row in range(count)]
    result = HostTable((*STANDARD, *columns))
    for name in given:
        if name not in result and not name.startswith(AVAILABLE):
            raise ValueError(
                f'the host table has no column {name!r}; expected a standard '
                'column, or one that columns=… adds')
    names = [f'host{row + 1}' for row in range(count)]
    result.put(uuids, {
        'host': names, 'nodename': names, 'cell': CELL,
        'availability_zone': 'nova', 'last_seen_up': now,
        'vcpus_total': 8, 'cpu_allocation_ratio': 4.0,
        'total_usable_ram_mb': 16384, 'total_usable_disk_gb': 100, **given})
    for cell, failed in (failures or {}).items():
        result.cells.failed(cell, failed, now)
    for name, follow in _FOLLOWING.items():
        if name not in given:
            result.put(uuids, {name: follow(result.view(now))})
    return result


def aggregate(number: int = 1, **metadata: str) -> HostAggregate:
    """Return an aggregate with this metadata."""
    return HostAggregate(
        number, str(uuid.UUID(int=number)), f'aggregate{number}', metadata)


def request(**fields: Any) -> objects.RequestSpec:
    """Return a request for one server of 1 CPU, 512 MB and 1 GB of disk.

    :param fields: fields of the request and of its flavor; in ``hints``
        scheduler hints, each a value or a list of values; in ``image`` the
        properties of an image, or its fields with ``properties`` among them;
        in ``group`` fields and ``rules`` of a server group
    """
    flavor = {'id': 1, 'flavorid': '1', 'name': 'small', 'vcpus': 1,
              'memory_mb': 512, 'root_gb': 1, 'ephemeral_gb': 0, 'swap': 0,
              'extra_specs': {}}
    spec = {'instance_uuid': str(uuid.UUID(int=1)), 'num_instances': 1,
            'project_id': 'project', 'user_id': 'user',
            'availability_zone': None, 'is_bfv': False}
    hints = fields.pop('hints', {})
    spec['scheduler_hints'] = {
        name: list(hint) if isinstance(hint, (list, tuple)) else [hint]
        for name, hint in hints.items()}
    if isinstance(fields.get('image'), Mapping):
        image = fields['image']
        if 'properties' not in image:
            image = {'properties': image}
        fields['image'] = objects.ImageMeta(**{
            'id': str(uuid.UUID(int=2)), 'name': 'image', **image,
            'properties': objects.ImageMetaProps(**image['properties'])})
    if 'group' in fields:
        fields['instance_group'] = objects.InstanceGroup(**{
            'id': 1, 'uuid': str(uuid.UUID(int=3)), 'name': 'group',
            'project_id': 'project', 'user_id': 'user', 'policy': None,
            'members': [], 'hosts': [], 'rules': {}, **fields.pop('group')})
    for name, value in fields.items():
        if name in objects.RequestSpec.fields:
            spec[name] = value
        elif name in objects.Flavor.fields:
            flavor[name] = value
        else:
            raise ValueError(f'neither request nor flavor has a {name!r}')
    return objects.RequestSpec(**{'flavor': objects.Flavor(**flavor), **spec})


def plugin(kind: type[_Plugin], **options: Any) -> _Plugin:
    """Return a filter or a weigher with these options, and defaults.

    ``plugin(NumInstancesFilter, max_instances_per_host=2)``
    """
    conf = cfg.ConfigOpts()
    group = None if kind.group == 'DEFAULT' else kind.group
    conf.register_opts(kind.opts(), group=group)
    conf([], default_config_files=[], default_config_dirs=[])
    for name, value in options.items():
        conf.set_override(name, value, group=group)
    if group is None:
        return kind(conf)
    conf.register_group(cfg.OptGroup(group))
    return kind(conf[group])


def _offered(it: view.Hosts, name: str, kind: str) -> view.Column:
    """Return the total amount of a resource that can be claimed."""
    return np.floor(it[name] * it[f'{kind}_allocation_ratio'])
