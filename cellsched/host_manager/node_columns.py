# SPDX-License-Identifier: Apache-2.0
"""Conversion of a cell's database rows to columns of the host table."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import datetime
import json
from typing import Any

from cellsched import exception
from cellsched.hardware.devices import Pools
from cellsched.hardware import documents
from cellsched.hosts import columns
from cellsched.hosts import plugin_columns
from cellsched.objects import child_providers

#: By the uuid of a node, the values that are ignored, in words.
Flaws = dict[str, list[str]]

#: Times in databases are in UTC, without a time zone.
_EPOCH = datetime.datetime(1970, 1, 1)

#: Statistics that are columns, besides the names that begin with num_.
_COUNTS = frozenset({'failed_builds', 'image_props', 'io_workload'})


def of_nodes(
    rows: Sequence[Any], cell: str, sourced: Iterable[columns.Column] = (),
    hosts: Sequence[str] = (), flaws: Flaws | None = None,
) -> dict[str, Any]:
    """Return the columns of compute node rows.

    :param sourced: columns of plug-ins that have sources
    :param hosts: the names of the rows' hosts, if they are stored already
    :param flaws: is filled with the values that are ignored
    """
    flaws = {} if flaws is None else flaws
    stats = [stats_of(row, flaws) for row in rows]
    children = [_children(row, flaws) if row.providers else []
                for row in rows]
    traits = _each(rows, 'traits', lambda names: frozenset(map(str, names)),
                   flaws)
    sourced = tuple(sourced)
    of_plugins = plugin_columns.filled(sourced, {
        plugin_columns.STATS: stats,
        plugin_columns.METRICS: [_metrics(row, flaws) for row in rows],
        plugin_columns.TRAITS: [dict.fromkeys(each, True) for each in traits],
    }) if sourced else {}
    return of_plugins | {
        **of_reports(rows, cell, stats, hosts, flaws),
        'children': [_numbered(each) if each else () for each in children],
        'child_uuids': [tuple(each.uuid for each in value)
                        for value in children],
        'traits': traits,
        'unreserved_ram_mb': [
            row.memory_mb - row.memory_mb_used for row in rows],
        'unreserved_disk_mb': [
            (row.local_gb - row.local_gb_used) * 1024 for row in rows],
        'cpu_allocation_ratio': [
            row.cpu_allocation_ratio or 1.0 for row in rows],
        'ram_allocation_ratio': [
            row.ram_allocation_ratio or 1.0 for row in rows],
        'disk_allocation_ratio': [
            row.disk_allocation_ratio or 1.0 for row in rows],
        **_hardware(rows, flaws),
        'image_props': [_image_props(each) for each in stats],
    }


def of_reports(
    rows: Sequence[Any], cell: str, stats: Sequence[dict[str, Any]],
    hosts: Sequence[str] = (), flaws: Flaws | None = None,
) -> dict[str, Any]:
    """Return the columns that computes of Nova report in the same way.

    :param stats: the statistics of the rows; see :func:`stats_of`
    :param hosts: the names of the rows' hosts, if they are stored already
    :param flaws: is filled with the values that are ignored
    """
    hosts = hosts or [row.host for row in rows]
    return {
        'host': hosts,
        # Most node names are host names.
        'nodename': [host if row.hypervisor_hostname == host
                     else row.hypervisor_hostname or ''
                     for row, host in zip(rows, hosts)],
        'host_ip': [row.host_ip or None for row in rows],
        'cell': cell,
        'vcpus_total': [row.vcpus for row in rows],
        'total_usable_ram_mb': [row.memory_mb for row in rows],
        'total_usable_disk_gb': [row.local_gb for row in rows],
        'num_io_ops': [number(each, 'io_workload') for each in stats],
        'failed_builds': [number(each, 'failed_builds') for each in stats],
        # The database column is not nullable: an unknown type is empty text.
        'hypervisor_type': [row.hypervisor_type or None for row in rows],
        'hypervisor_version': [row.hypervisor_version or 0 for row in rows],
        'cpu_info': [row.cpu_info or '' for row in rows],
        'supported_instances': _each(
            rows, 'supported_instances', lambda listed: tuple(
                tuple(map(str, each)) for each in listed
                if isinstance(each, list)),
            {} if flaws is None else flaws),
        'stats': [_lasting(each) for each in stats],
        'metrics': [row.metrics or '' for row in rows],
    }


def stats_of(row: Any, flaws: Flaws) -> dict[str, Any]:
    """Return the statistics of a compute node row.

    :param flaws: is filled with values that are ignored
    """
    found: dict[str, Any] = _json(row, 'stats', dict, flaws)
    return found


def _hardware(rows: Sequence[Any], flaws: Flaws) -> dict[str, list[Any]]:
    """Return the NUMA cells and the PCI devices.

    The claims have their usage, so hosts of one shape have equal values.
    """
    pools: list[Pools] = _documents(
        rows, 'pci_stats', documents.device_pools, (), flaws)
    cells = _documents(
        rows, 'numa_topology', documents.host_topology, None, flaws)
    return {
        'numa_topology': [each and each.unused for each in cells],
        'device_pools': [tuple(
            dataclasses.replace(pool, count=1) for pool in each)
            for each in pools],
        'claims_hardware': [True] * len(rows),
        'free_pci_devices': [
            sum(pool.count for pool in each) for each in pools],
    }


def _metrics(row: Any, flaws: Flaws) -> dict[str, Any]:
    return {each['name']: each.get('value')
            for each in _json(row, 'metrics', list, flaws)
            if isinstance(each, dict) and isinstance(each.get('name'), str)}


def of_services(rows: Sequence[Any], ahead_s: float = 0.0) -> dict[str, Any]:
    """Return the columns of compute service rows.

    :param ahead_s: seconds that the clock of the rows is ahead
    """
    return {
        'service_disabled': [bool(row.disabled) for row in rows],
        'forced_down': [bool(row.forced_down) for row in rows],
        'last_seen_up': [
            timestamp(row.last_seen_up or row.created_at, ahead_s)
            for row in rows],
    }


def timestamp(time: datetime.datetime | None, ahead_s: float = 0.0) -> float:
    """Return a database time in seconds since the epoch.

    :param time: None for a time long ago
    :param ahead_s: seconds that the clock of the time is ahead
    """
    if time is None:
        return 0.0
    return (time - _EPOCH).total_seconds() - ahead_s


def _json(row: Any, name: str, kind: type, flaws: Flaws) -> Any:
    """Return a column's JSON value, or an empty one if it is not valid."""
    text = getattr(row, name)
    if not text:
        return kind()
    try:
        value = json.loads(text)
    except (RecursionError, ValueError):
        value = None
    if isinstance(value, kind):
        return value
    flaws.setdefault(row.uuid, []).append(
        f'{name} is not a JSON {"object" if kind is dict else "array"}')
    return kind()


def _each(
    rows: Sequence[Any], name: str, convert: Callable[[list[Any]], Any],
    flaws: Flaws,
) -> list[Any]:
    """Return a JSON list of each row, converted; most hosts have the same."""
    known: dict[str, Any] = {}
    result = []
    for row in rows:
        text = getattr(row, name)
        if text in known:
            result.append(known[text])
            continue
        result.append(convert(_json(row, name, list, flaws)))
        # A value with a flaw is one of each node that has it.
        if row.uuid not in flaws:
            known[text] = result[-1]
    return result


def _documents(
    rows: Sequence[Any], name: str, read: Callable[[Any], Any], missing: Any,
    flaws: Flaws,
) -> list[Any]:
    """Return what a document of each row says; many hosts have the same.

    :param missing: for a row without the document
    """
    known: dict[str, Any] = {}
    result = []
    for row in rows:
        text = getattr(row, name)
        if text and text not in known:
            try:
                known[text] = read(json.loads(text))
            except (RecursionError, ValueError, exception.Invalid):
                flaws.setdefault(row.uuid, []).append(
                    f"{name} is not a document of Nova's form")
        result.append(known.get(text, missing) if text else missing)
    return result


def _children(row: Any, flaws: Flaws) -> list[child_providers.Child]:
    """Return the child providers of a node that are used.

    They are sorted by their properties, then by name, so that nodes with
    similar providers number them alike.
    """
    providers = sorted(child_providers.load(row.providers), key=lambda each: (
        each.parent is not None, sorted(each.traits), each.name))
    if len(providers) > columns.CHILDREN_MAX:
        flaws.setdefault(row.uuid, []).append(
            f'of {len(providers)} child providers only '
            f'{columns.CHILDREN_MAX} are used')
    return providers[:columns.CHILDREN_MAX]


def _numbered(
    children: Sequence[child_providers.Child]
) -> tuple[tuple[int, frozenset[str]], ...]:
    """Return the parents, as numbers, and the traits of child providers."""
    numbers: dict[str | None, int] = {
        each.uuid: number for number, each in enumerate(children, start=1)}
    return tuple((numbers.get(each.parent, 0), each.traits)
                 for each in children)


def _lasting(stats: dict[str, Any]) -> str:
    """Return the statistics that hosts have in common, as JSON text.

    Counts of servers are left out: they differ by host, so that no decision
    could be shared. Counts that plug-ins read are columns.
    """
    lasting = {name: value for name, value in stats.items()
               if name not in _COUNTS and not name.startswith('num_')}
    return json.dumps(lasting, sort_keys=True) if lasting else ''


def number(stats: dict[str, Any], name: str) -> int:
    """Return a statistic as a number; Nova's agents also report text."""
    try:
        found = int(stats.get(name) or 0)
    except (OverflowError, TypeError, ValueError):
        return 0
    return found if abs(found) <= columns.NUMBER_MAX else 0


def _image_props(stats: dict[str, Any]) -> tuple[tuple[str, str, int], ...]:
    """Return how many servers have each value of each image property."""
    given = stats.get('image_props')
    return tuple(
        (name, value, count) for name, counts in sorted(given.items())
        if isinstance(counts, dict) for value in sorted(counts)
        if (count := number(counts, value)) > 0
    ) if isinstance(given, dict) else ()
