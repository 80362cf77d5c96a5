# SPDX-License-Identifier: Apache-2.0
"""PCI devices: pools of equal ones on a host, and requests for some.

Source: Nova 34, ``nova/pci/stats.py`` and ``nova/pci/utils.py``.
"""

import collections
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import operator
import re
from typing import Any

from oslo_utils import strutils

from cellsched.hardware.host import HostTopology

#: Policies for the distance of a device from the server's cells.
REQUIRED, LEGACY, PREFERRED, SOCKET = AFFINITIES = (
    'required', 'legacy', 'preferred', 'socket')

#: Properties of a request that are for Placement.
_OF_PLACEMENT = frozenset({'resource_class', 'traits', 'rp_uuids'})

#: The kinds of devices that only a request which names them gets.
_SPECIAL = 'type-PF', 'vdpa'

#: The properties that identify a device in texts. They are those of the
#: hardware, and not of the configuration.
_IDS = 'vendor_id', 'product_id', 'dev_type'

#: The traits of devices by their tags.
_TRAITS = {'live_migratable': 'HW_PCI_LIVE_MIGRATABLE',
           'one_time_use': 'HW_PCI_ONE_TIME_USE'}

#: The kinds of network devices, which a remote host may manage.
_NETWORK = 'type-PF', 'type-VF', 'vdpa'

#: Providers by request group; None if the requests name their providers.
Mappings = Mapping[str, Sequence[str]]


@dataclasses.dataclass(frozen=True)
class Pool:
    """Free devices that are equal.

    :param count: number of free devices
    :param numa_node: the cell that they are near to; None if the host does
        not say it
    :param properties: sorted tuples of name and value: ``vendor_id``,
        ``product_id`` and tags
    """

    count: int
    numa_node: int | None
    properties: tuple[tuple[str, Any], ...]

    @functools.cached_property
    def values(self) -> Mapping[str, Any]:
        """The properties by name, with ``numa_node``."""
        return {'numa_node': self.numa_node, **dict(self.properties)}

    @property
    def title(self) -> str:
        """The devices in words: ids, type and tags; not those of all hosts."""
        added = _added(self.values)
        values = {name: value for name, value in self.properties
                  if name not in _IDS and added.get(name) != value}
        return ' '.join((
            ':'.join(str(self.values.get(name)) for name in _IDS[:2]),
            *([str(self.values[_IDS[2]])] if self.values.get(_IDS[2]) else []),
            *(f'{name}={value}' for name, value in values.items())))

    @property
    def kind(self) -> tuple[int | None, tuple[tuple[str, Any], ...]]:
        """Its identity on the host, without the number of devices."""
        return self.numa_node, self.properties

    @property
    def provider(self) -> str | None:
        """The uuid of its provider in Placement; None if it has none."""
        uuid: str | None = self.values.get('rp_uuid')
        return uuid

    @property
    def is_one_time(self) -> bool:
        """True if a device that was used has no further server."""
        return bool(strutils.bool_from_string(
            self.values.get('one_time_use')))

    @property
    def is_remote(self) -> bool:
        """True if a remote host manages the devices."""
        return _is_remote(self.values)

    def without(self, taken: int) -> 'Pool':
        """Return the pool without some devices."""
        return dataclasses.replace(self, count=self.count - taken)

    def fits(self, spec: Mapping[str, Any]) -> bool:
        """Return whether its devices have these properties."""
        if not all(_equal(self.values.get(name), value)
                   for name, value in spec.items()
                   if name not in _OF_PLACEMENT):
            return False
        own, asked = self.values.get('resource_class'), spec.get(
            'resource_class')
        if own is None or _OF_PLACEMENT.isdisjoint(spec):
            # In Nova, whose pools have no class, Placement compares the class
            # and the traits.
            return True
        return (asked is None or _canonical(asked) == _canonical(own)) and (
            _traits(spec) <= _traits(self.values).union(
                trait for tag, trait in _TRAITS.items()
                if strutils.bool_from_string(self.values.get(tag))))


Pools = tuple[Pool, ...]


def pools(given: Iterable[Mapping[str, Any]]) -> Pools:
    """Return pools from mappings of their properties.

    Pools with fewer properties come first, because they are tried first.
    """
    found = [Pool(
        int(each['count']), each.get('numa_node'),
        tuple(sorted(
            (name, tuple(value) if isinstance(value, list) else value)
            for name, value in each.items()
            if name not in ('count', 'numa_node'))))
        for each in given]
    return ordered(found)


def ordered(found: Iterable[Pool]) -> Pools:
    """Return pools in the order in which they are tried."""
    return tuple(sorted(found, key=lambda pool: len(pool.properties)))


def reported(found: Iterable[Pool]) -> Pools:
    """Return the pools of a host with the tags that Nova's agents add.

    Network devices are not managed remotely unless they say so, since ports
    name this tag. The resource class is that of Nova's provider.
    """
    tagged = []
    for pool in found:
        values = dict(pool.properties)
        tagged.append(dataclasses.replace(pool, properties=tuple(sorted(
            {**_added(values), **values}.items()))))
    return ordered(tagged)


def _added(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags that a pool gets by default."""
    added = {'resource_class': '_'.join(str(each).upper() for each in (
        'CUSTOM_PCI', values.get('vendor_id'), values.get('product_id')))}
    if values.get('dev_type') in _NETWORK:
        added['remote_managed'] = 'false'
    return added


_KIND = operator.attrgetter('kind')

#: The marks of the same devices in two reports of a host, the best first.
_IDENTITIES: tuple[Callable[[Pool], Any], ...] = (
    _KIND,
    lambda pool: pool.values.get('address'),
    lambda pool: (*map(pool.values.get, _IDS), pool.numa_node),
    lambda pool: (*map(pool.values.get, _IDS),),
)


def located(
    pools: Iterable[Pool], taken: Iterable[Pool]
) -> list[tuple[Pool, Pool]]:
    """Return taken devices and the pools that have them now.

    The host may report them with other tags than when they were taken. Devices
    that it does not report any more are left out.

    :returns: tuples of taken devices and the part of a pool
    """
    pools, found = tuple(pools), []
    room = counts(pools)
    missing = [(each, each.count) for each in taken]
    for identity in _IDENTITIES:
        for number, (each, count) in enumerate(missing):
            # Equal devices that are missing are gone.
            for pool in pools if (identity is _KIND or each.kind
                                  not in room) else ():
                part = min(count, room[pool.kind])
                if part > 0 and identity(each) and (
                        identity(pool) == identity(each)):
                    found.append((each, dataclasses.replace(
                        pool, count=part)))
                    room[pool.kind] -= part
                    count -= part
            missing[number] = each, count
    return found


def without(pools: Iterable[Pool], taken: Iterable[Pool] = ()) -> Pools:
    """Return the pools that remain of some after others are taken away.

    Equal devices are one pool then, which may be empty. Taken devices that are
    not in the pools are left out.
    """
    found = counts(pools)
    for each in taken:
        if each.kind in found:
            found[each.kind] -= each.count
    return tuple(
        Pool(max(count, 0), *kind) for kind, count in found.items())


def counts(pools: Iterable[Pool]) -> collections.Counter[Any]:
    """Return the number of devices by their kind."""
    found = collections.Counter[Any]()
    for each in pools:
        found[each.kind] += each.count
    return found


def _canonical(name: Any) -> str:
    """Return the name of a class or trait, without its prefix."""
    return re.sub('[^A-Z0-9_]', '_', str(name).strip().upper()).removeprefix(
        'CUSTOM_')


def _traits(values: Mapping[str, Any]) -> set[str]:
    """Return the traits that devices or a request name."""
    return set(map(_canonical, filter(
        None, str(values.get('traits') or '').split(','))))


def _equal(has: Any, value: Any) -> bool:
    if isinstance(value, (list, tuple)) and isinstance(has, tuple):
        return set(value) <= set(has)
    if isinstance(value, str):
        value = value.lower()
    return bool((has.lower() if isinstance(has, str) else has) == value)


@dataclasses.dataclass(frozen=True)
class DeviceRequest:
    """A request for some devices.

    :param count: number of devices
    :param specs: alternatives, each a mapping of properties to values
    :param alias: name of the alias; None if a port asks for the devices
    :param request_id: prefix of its request groups
    :param affinity: one of :data:`AFFINITIES`; None is as legacy
    """

    count: int
    specs: tuple[Mapping[str, Any], ...]
    alias: str | None = None
    request_id: str | None = None
    affinity: str | None = None

    def __hash__(self) -> int:
        return hash((self.count, self.alias, self.request_id, self.affinity))

    def describes(self, pool: Pool) -> bool:
        """Return whether the devices of a pool have the properties."""
        return any(map(pool.fits, self.specs))

    def allows(self, pool: Pool) -> bool:
        """Return whether devices that fit may be taken.

        Some kinds of devices have to be asked for. If all alternatives ask
        for devices that can be live migrated, or for others, only these may
        be taken.
        """
        kind, migratable = (
            pool.values.get(name) for name in ('dev_type', 'live_migratable'))
        if kind in _SPECIAL and not any(
                each.get('dev_type') == kind for each in self.specs):
            return False
        if pool.is_remote and not any(map(_is_remote, self.specs)):
            return False
        asked = {each.get('live_migratable') for each in self.specs}
        return asked not in ({'true'}, {'false'}) or migratable in asked

    def providers(self, mappings: Mappings | None) -> list[str]:
        """Return the provider of each device; empty if any may serve.

        :param mappings: those of an allocation candidate
        """
        if self.alias is None:
            # Placement does not know the devices of ports by their request.
            return []
        if not mappings:
            named = (self.specs[0] if self.specs else {}).get('rp_uuids')
            return str(named).split(',') if named else []
        return [uuid for group, uuids in mappings.items()
                if self.request_id and group.startswith(self.request_id)
                for uuid in uuids]


def take(
    pools: Pools, requests: Iterable[DeviceRequest],
    mappings: Mappings | None = None, cells: Collection[int] | None = None,
    host: HostTopology | None = None,
) -> Pools | None:
    """Return the pools without the requested devices; None if they lack.

    Each request takes devices from the pools in order, before the next one is
    looked at.

    :param mappings: providers by request group, of an allocation candidate
    :param cells: ids of the host cells of the server; None without any
    :param host: the host, to find the cells of a socket
    """
    remaining = list(pools)
    for request in requests:
        providers = collections.Counter(request.providers(mappings))
        usable = matching(remaining, request, providers, cells, host)
        if usable is None:
            return None
        if providers:
            served = [each.provider for each in remaining if each.provider]
            if len(set(served)) < len(served):
                # Two pools cannot be one provider.
                return None
            for place in usable:
                pool = remaining[place]
                remaining[place] = pool.without(providers[str(pool.provider)])
        else:
            missing = request.count
            for place in usable:
                taken = min(missing, remaining[place].count)
                remaining[place] = remaining[place].without(taken)
                missing -= taken
        remaining = [each for each in remaining if each.count > 0]
    return tuple(remaining)


def matching(
    pools: Sequence[Pool], request: DeviceRequest,
    providers: Mapping[str, int], cells: Collection[int] | None,
    host: HostTopology | None,
) -> list[int] | None:
    """Return the indices of the pools for a request, the best ones first.

    :param providers: devices by provider; empty if any may serve
    :returns: None if they have too few devices
    """
    def enough(places: Sequence[int]) -> bool:
        return sum(pools[each].count for each in places) >= request.count

    # 1. Devices with the properties, near enough to the server's cells.
    found = [place for place, pool in enumerate(pools)
             if request.describes(pool)]
    if cells is not None and enough(found):
        found = _near(pools, found, request.affinity or LEGACY, enough, cells,
                      host)
    # 2. No kind of device that has to be asked for.
    found = [each for each in found if request.allows(pools[each])]
    # 3. The devices that Placement has allocated.
    if providers:
        found = [each for each in found if (
            0 < providers.get(pools[each].provider or '', 0)
            <= pools[each].count)]
    return found if found and enough(found) else None


def describe(requests: Iterable[DeviceRequest]) -> str:
    """Return requests in words."""
    return ' and '.join(
        f'{each.count} PCI device{"" if each.count == 1 else "s"} '
        f'{f"of alias {each.alias}" if each.alias else "for a port"}'
        for each in requests)


def _is_remote(values: Mapping[str, Any]) -> bool:
    return bool(strutils.bool_from_string(values.get('remote_managed')))


def _near(
    pools: Sequence[Pool], found: list[int], affinity: str,
    enough: Callable[[Sequence[int]], bool], cells: Collection[int],
    host: HostTopology | None,
) -> list[int]:
    """Return the indices of the pools that an affinity policy allows."""
    def within(nodes: Collection[int | None]) -> list[int]:
        return [each for each in found if pools[each].numa_node in nodes]

    near = within(cells)
    if affinity == REQUIRED or enough(near):
        return near
    if affinity == SOCKET:
        return within(host.neighbours(cells) if host else ())
    near = within({*cells, None})
    if affinity == LEGACY or enough(near):
        return near
    return sorted(found, key=lambda each: each not in near)
