# SPDX-License-Identifier: Apache-2.0
"""The NUMA cells and the devices that the servers of a host have."""

import collections
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import json
import os
import pathlib
import threading
from typing import Any

from oslo_log import log
from oslo_utils import uuidutils

from cellsched.claims import base as claims_base
from cellsched import exception
from cellsched.hardware import devices
from cellsched.hardware.devices import Pool
from cellsched.hardware.devices import Pools
from cellsched.hardware import documents
from cellsched.hardware import fit
from cellsched.hardware.fit import Placement
from cellsched.hardware.fit import Ratios
from cellsched.hardware.guest import GuestTopology
from cellsched.hardware.host import HostCell
from cellsched.hardware.host import HostTopology
from cellsched.hardware.instance import TakenDevices
from cellsched.hardware import units

LOG = log.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class NodeHardware:
    """The cells and devices of a node, without its servers.

    :param provider: the uuid of the node, which outlasts its name
    """

    provider: str
    topology: HostTopology | None = None
    devices: Pools = ()
    ratios: Ratios = Ratios()


@dataclasses.dataclass(frozen=True)
class Place:
    """The cells and devices of a server.

    :param provider: the uuid of its node
    :param cells: its cells on those of the node
    :param devices: its devices
    :param emulator_policy: its policy for the emulator's threads
    """

    provider: str
    cells: Placement = ()
    devices: tuple[TakenDevices, ...] = ()
    emulator_policy: str | None = None

    @property
    def pools(self) -> Pools:
        """Its devices, by pool."""
        return tuple(each.pool for each in self.devices)


class PlaceFiles:
    """The places of servers, as files of the host.

    They are files and not rows, as their guests are on the host: a restored
    database does not know the CPUs of a running guest.

    :param directory: the value of ``[DEFAULT] state_path``; None for no files
    """

    def __init__(self, directory: str | None = None) -> None:
        self._path = directory and pathlib.Path(directory) / 'places'
        self._used = directory and pathlib.Path(directory) / 'used_devices'

    def read(self) -> dict[str, Place]:
        """Return the places by the uuids of their servers.

        :raises cellsched.exception.ConfigurationInvalid: names a file that
            cannot be read
        """
        if not self._path or not self._path.is_dir():
            return {}
        return {path.name: self._read(path)
                for path in sorted(self._path.iterdir())
                if uuidutils.is_uuid_like(path.name)}

    def _read(self, path: pathlib.Path) -> Place:
        with _reading(path, 'the NUMA cells and the devices of a server; '
                      'without the file, a server of this host gets those of '
                      'its claims'):
            kept = json.loads(path.read_text(encoding='utf-8'))
            topology = documents.guest_topology(kept['numa_topology'])
            return Place(
                kept['provider'], documents.placement(kept['numa_topology']),
                tuple(TakenDevices(each['request_id'], pool)
                      for each in kept['pci_devices']
                      for pool in documents.device_pools(each['pools'])),
                topology.emulator_policy if topology else None)

    def list_used(self, provider: str) -> Pools:
        """Return the one-time-use devices of a node that were used.

        :param provider: the uuid of the node
        :raises cellsched.exception.ConfigurationInvalid: names a file that
            cannot be read
        """
        found: list[Pool] = []
        if self._used and self._used.is_dir():
            for path in self._used.glob('CUSTOM_*'):
                if path.suffix:
                    continue
                with _reading(path, 'a used device; remove it if the device '
                              'may be used again'):
                    used = json.loads(path.read_text(encoding='utf-8'))
                    if used['provider'] == provider:
                        found += documents.device_pools(used['pci_devices'])
        return tuple(found)

    def add_used(self, uuid: str, provider: str, pool: Pool) -> None:
        """Write that a server used one-time-use devices of a node."""
        if self._used and uuidutils.is_uuid_like(uuid):
            _write(self._used / f'{units.device(pool)}-{uuid}', {
                'provider': provider,
                'pci_devices': documents.written_pools((pool,))})

    def write(
        self, uuid: str, place: Place, topology: GuestTopology | None
    ) -> None:
        """Write the place of a server, as a whole or not at all."""
        if self._path and uuidutils.is_uuid_like(uuid):
            _write(self._path / uuid, {
                'provider': place.provider,
                'numa_topology': topology and documents.written_guest(
                    topology, place.cells),
                'pci_devices': [{
                    'request_id': each.request_id,
                    'pools': documents.written_pools((each.pool,))}
                    for each in place.devices]})

    def remove(self, uuid: str) -> None:
        """Remove the place of a server; a missing one is ignored."""
        if self._path and uuidutils.is_uuid_like(uuid):
            (self._path / uuid).unlink(missing_ok=True)


@contextlib.contextmanager
def _reading(path: pathlib.Path, content: str) -> Iterator[None]:
    """Translate the errors of a file.

    :raises cellsched.exception.ConfigurationInvalid: it cannot be read
    """
    try:
        yield
    except (OSError, KeyError, RecursionError, TypeError, ValueError,
            exception.InvalidField):
        raise exception.ConfigurationInvalid(
            field='[DEFAULT] state_path', problem=f'{path} cannot be read',
            expected=f'a readable file with {content}') from None


def _write(path: pathlib.Path, document: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix('.new')
    with new.open('w', encoding='utf-8') as file:
        json.dump(document, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


class Places:
    """The places of the servers on the nodes of a host.

    Thread-safe. The places are kept across restarts of the agent.

    :param files: the places of earlier processes; by default none are kept
    :param claims: the store whose claims name CPUs, pages and devices; by
        default a server gets any that are free
    :param packs_cells: whether cells with less free room are tried first
    :raises cellsched.exception.ConfigurationInvalid: a file cannot be read
    """

    def __init__(
        self, files: PlaceFiles | None = None,
        claims: claims_base.Claims | None = None, packs_cells: bool = False,
    ) -> None:
        self._claims = claims
        self._packs_cells = packs_cells
        self._files = files or PlaceFiles()
        self._lock = threading.Lock()
        self._nodes: dict[str, NodeHardware] = {}
        self._places = self._files.read()

    def report(
        self, node: str, hardware: NodeHardware
    ) -> tuple[HostTopology | None, Pools]:
        """Set the hardware of a node; return it with the use of its servers.

        :returns: the cells with their usage, and the free devices
        """
        with self._lock:
            self._nodes[node] = hardware
            return self._remaining(hardware)

    def device_inventories(
        self, provider: str, pools: Pools
    ) -> dict[str, claims_base.Inventory]:
        """Return the inventories of the devices of a node, by class.

        One-time-use devices that were used are reserved. So are devices of
        servers that claimed them by other tags: their former classes stay
        until the servers leave.

        :param provider: the uuid of the node
        """
        totals, reserved = (collections.Counter[str]() for _ in range(2))
        for pool in pools:
            totals[units.device(pool)] += pool.count
        with self._lock:
            for pool in self._used_devices(provider, pools):
                reserved[units.device(pool)] += pool.count
            for taken, pool in devices.located(pools, self._taken(provider)):
                if taken.kind != pool.kind:
                    reserved[units.device(pool)] += pool.count
                    totals[units.device(taken)] += pool.count
        return {name: claims_base.Inventory(total, reserved[name])
                for name, total in totals.items() if total}

    def misfits(self, node: str) -> Iterator[str]:
        """Yield what servers have and the node does not report any more."""
        with self._lock:
            hardware = self._nodes[node]
            places = [(uuid, each) for uuid, each in self._places.items()
                      if each.provider == hardware.provider]
            topology, _ = self._remaining(hardware)
        cells = topology.cells if topology else ()
        offered = frozenset[int]().union(*(each.pcpus for each in cells))
        for uuid, place in places:
            pinned = frozenset[int]().union(*(
                each.pinned for each in place.cells))
            if cpus := sorted(pinned - offered):
                yield (f'Node {node} does not offer the dedicated CPUs '
                       f'{", ".join(map(str, cpus))} of server {uuid}')
        for cell in cells:
            for pages in cell.pages:
                if pages.free < 0:
                    yield (f'NUMA cell {cell.id} of node {node} lacks '
                           f'{-pages.free} pages of {pages.size_kb} KiB that '
                           'its servers have')
        taken = [pool for _, each in places for pool in each.pools]
        found = devices.located(hardware.devices, taken)
        if lost := sum(each.count for each in taken) - sum(
                pool.count for _, pool in found):
            yield (f'Node {node} does not report {lost} PCI devices of its '
                   'servers')

    @property
    def has_hardware(self) -> bool:
        """True if any node reports NUMA cells or devices."""
        with self._lock:
            return any(each.topology or each.devices
                       for each in self._nodes.values())

    def list_all(self) -> list[str]:
        """Return the uuids of the servers that have a place."""
        with self._lock:
            return list(self._places)

    def misplaced(self, uuids: Collection[str]) -> dict[str, dict[str, int]]:
        """Return the parts of servers that use others than they claim; blocks.

        A server whose claims name no CPUs, pages and devices may use any.

        :param uuids: servers that are at rest
        :raises cellsched.exception.DatabaseUnreachable: the claims cannot be
            read
        """
        with self._lock:
            nodes = {each.provider: each for each in self._nodes.values()}
            used = {uuid: (place.provider, _amounts(
                nodes[place.provider], place, idle=False))
                for uuid, place in self._places.items()
                if uuid in uuids and place.provider in nodes}
        if not used or self._claims is None:
            return {}
        with claims_base.translated_errors():
            held = self._claims.claims_of([*used])
        found = {}
        for uuid, (provider, amounts) in used.items():
            claimed = collections.Counter[str]()
            for claim in held.get(uuid, ()):
                if claim.provider == provider:
                    claimed.update(units.named(claim.resources))
            if claimed and not collections.Counter(amounts) <= claimed:
                found[uuid] = amounts
        return found

    def place(
        self, uuid: str, node: str, request: fit.Demand,
        consumers: Sequence[str] = (),
    ) -> None:
        """Give a server cells and devices of a node; blocks.

        It gets those that its claims name. If they name none, a server that
        has a place on the node keeps it. A node that reports neither gives
        none.

        :param consumers: the consumers that may have its claims; by default
            the server. The first one with claims on the node counts
        :raises cellsched.exception.BuildFailed: they do not fit
        :raises cellsched.exception.DatabaseUnreachable: its claims cannot be
            read
        """
        held = self.claimed(consumers or [uuid])
        with self._lock:
            hardware = self._nodes.get(node, NodeHardware(''))
            claimed = units.named(held.get(hardware.provider, {}))
            if (hardware.topology is None and not hardware.devices
                    and not claimed):
                # No filter has checked the request.
                LOG.warning('Node %s reports no NUMA cells and no devices, so '
                            'the server gets none', node, instance_uuid=uuid)
                return
            before = self._places.get(uuid) or Place('')
            if before.provider == hardware.provider and claimed in (
                    {}, *(_amounts(hardware, before, idle)
                          for idle in (True, False))):
                return
            place, problem = self._fit(uuid, hardware, request, claimed)
            if place is None:
                raise exception.BuildFailed(uuid=uuid, reason=problem)
            self._places[uuid] = place
        try:
            self._keep_used(uuid, before, place.pools)
            self._files.write(uuid, place, request.topology)
        except OSError as exc:
            with self._lock:
                if before.provider:
                    self._places[uuid] = before
                else:
                    del self._places[uuid]
            raise exception.BuildFailed(
                uuid=uuid, reason='its host cannot store its NUMA cells and '
                'devices%(error)s',
                internals={'error': f' ({exc.strerror})'}) from exc

    def get(self, uuid: str) -> Place:
        """Return the place of a server; an empty one if it has none."""
        with self._lock:
            return self._places.get(uuid) or Place('')

    def remove(self, uuid: str) -> None:
        """Free the place of a server; one without a place is ignored.

        Its one-time-use devices stay reserved until an operator removes their
        files. If they cannot be written, the server keeps its place.
        """
        try:
            self._keep_used(uuid, self.get(uuid))
        except OSError as exc:
            LOG.error('The server keeps its NUMA cells and devices: the file '
                      'of a used device could not be written: %s',
                      exc.strerror, instance_uuid=uuid)
            return
        with self._lock:
            if self._places.pop(uuid, None) is None:
                return
        try:
            self._files.remove(uuid)
        except OSError as exc:
            # The agent removes it after its next start.
            LOG.warning('Could not remove the file of the NUMA cells and the '
                        'devices of the server: %s', exc.strerror,
                        instance_uuid=uuid)

    def _keep_used(
        self, uuid: str, place: Place, kept: Collection[Pool] = ()
    ) -> None:
        """Reserve the one-time-use devices of a place that ends.

        :param kept: the devices that the server keeps
        """
        for pool in place.pools:
            if pool.is_one_time and pool not in kept:
                self._files.add_used(uuid, place.provider, pool)
                LOG.info('Device %s was used and stays reserved',
                         units.device(pool), instance_uuid=uuid)

    def _remaining(
        self, hardware: NodeHardware, uuid: str = ''
    ) -> tuple[HostTopology | None, Pools]:
        """Return the cells and devices that no server uses, except one."""
        topology = hardware.topology
        if topology is not None:
            pinned = set[int]()
            for each in self._on_node(hardware.provider, uuid):
                topology = fit.used(topology, _present(hardware, each))
                pinned.update(*(cell.pinned for cell in each.cells))
            # A CPU may be in another cell than when its server got it.
            topology = HostTopology(tuple(
                dataclasses.replace(
                    cell, pinned=cell.pinned | cell.pcpus & pinned)
                for cell in topology.cells))
        found = devices.located(
            hardware.devices, self._taken(hardware.provider, uuid))
        return topology, devices.ordered(devices.without(
            hardware.devices, [
                *self._used_devices(hardware.provider, hardware.devices),
                *(pool for _, pool in found)]))

    def _on_node(self, provider: str, uuid: str = '') -> list[Place]:
        """Return the places on a node, without that of a server."""
        return [place for server, place in self._places.items()
                if place.provider == provider and server != uuid]

    def _taken(self, provider: str, uuid: str = '') -> list[Pool]:
        """Return the devices of the servers of a node, without one."""
        return [pool for each in self._on_node(provider, uuid)
                for pool in each.pools]

    def _used_devices(self, provider: str, pools: Pools) -> list[Pool]:
        """Return the one-time-use devices of a node that were used."""
        once = [each for each in pools if each.is_one_time]
        return [pool for _, pool in devices.located(
            once, self._files.list_used(provider))] if once else []

    def claimed(
        self, consumers: Sequence[str]
    ) -> dict[str, Mapping[str, int]]:
        """Return the amounts of claims, by provider; blocks.

        :param consumers: the first one with claims on a provider counts
        :raises cellsched.exception.DatabaseUnreachable: the claims cannot be
            read
        """
        if self._claims is None:
            return {}
        with claims_base.translated_errors():
            held = self._claims.claims_of(consumers)
        return {claim.provider: claim.resources
                for consumer in reversed(consumers)
                for claim in held.get(consumer, ())}

    def _is_in_use(
        self, uuid: str, hardware: NodeHardware, claimed: Mapping[str, int]
    ) -> bool:
        """Return whether other servers still use what a server has claimed.

        Their claims may end before their guests are gone, for example while
        the host is down.
        """
        used = collections.Counter(claimed)
        for each in self._on_node(hardware.provider, uuid):
            used.update(_amounts(hardware, each))
        totals = units.inventory(
            hardware.topology, hardware.devices, hardware.ratios)
        return any(used[name] > totals[name]
                   for name in claimed.keys() & totals.keys())

    def _fit(
        self, uuid: str, hardware: NodeHardware, request: fit.Demand,
        claimed: Mapping[str, int],
    ) -> tuple[Place | None, str]:
        """Return a place, or None and the problem.

        :param claimed: the amounts of the CPUs, pages and devices of the
            server; empty if its claims name none
        """
        ratios = hardware.ratios
        topology, pools = _, free = self._remaining(hardware, uuid)
        in_use = ('its host still uses the CPUs, pages or devices for another '
                  'server')
        if claimed:
            if self._is_in_use(uuid, hardware, claimed):
                return None, in_use
            # Only what the claims name is free for this server.
            ratios = Ratios()
            topology = hardware.topology and units.limited(
                hardware.topology, claimed)
            unused = devices.without(
                hardware.devices,
                self._used_devices(hardware.provider, hardware.devices))
            pools = units.free_devices(
                tuple(each for each in unused if each.count),
                lambda names: [claimed.get(name, 0) for name in names])
        cells: Placement = ()
        policy: str | None = None
        if request.topology is not None:
            if topology is None:
                return None, 'its host has no NUMA cells'
            policy = request.topology.emulator_policy
            found = fit.fit(topology, request._replace(
                packs=self._packs_cells, is_claimed=bool(claimed)),
                ratios, pools)
            if found is None:
                alone = fit.Demand(
                    request.topology, is_claimed=bool(claimed))
                if fit.fit(topology, alone, ratios) is None:
                    return None, ('its host has no NUMA cells with enough '
                                  'free CPUs and memory')
                return None, ('its host has no free PCI devices or networks '
                              'near NUMA cells with enough free CPUs and '
                              'memory')
            cells = found
        taken = _taken(request, pools, cells, topology)
        if taken is None:
            return None, 'its host has too few free PCI devices'
        # The host may report devices of other servers with other tags.
        if devices.counts(each.pool for each in taken) - devices.counts(free):
            return None, in_use
        return Place(hardware.provider, cells, taken, policy), ''


def _taken(
    request: fit.Demand, pools: Pools, cells: Placement,
    topology: HostTopology | None,
) -> tuple[TakenDevices, ...] | None:
    """Return the devices for each request; None if they lack."""
    near = frozenset(each.host_cell for each in cells) if cells else None
    taken: list[TakenDevices] = []
    for each in request.devices:
        remaining = devices.take(pools, [each], cells=near, host=topology)
        if remaining is None:
            return None
        taken += [TakenDevices(each.request_id, pool)
                  for pool in devices.without(pools, remaining)
                  if pool.count]
        pools = remaining
    return tuple(taken)


def _present(node: NodeHardware, place: Place) -> Placement:
    """Return the cells of a place that its node still has."""
    return tuple(cell for cell in place.cells if node.topology is not None
                 and cell.host_cell in node.topology.by_id)


def _amounts(
    node: NodeHardware, place: Place, idle: bool = True
) -> dict[str, int]:
    """Return the CPUs, pages and devices of a place, by class.

    :param idle: whether the idle threads of its cores count, which the server
        claims if they were free
    """
    cells = node.topology.cells if node.topology else ()
    if not idle:
        cells = tuple(dataclasses.replace(cell, pinned=cell.pcpus)
                      for cell in cells)
    # The server keeps its CPUs even if the node reports other cells now.
    former = {each.host_cell: HostCell(
        each.host_cell, frozenset(), each.pinned, each.guest.memory_mb)
        for each in place.cells}
    for cell in cells:
        former.pop(cell.id, None)
    return units.amounts(HostTopology((*cells, *former.values())),
                         place.cells, place.pools)


def request_of(
    topology: Any, requests: Any, networks: Any = None
) -> fit.Demand | None:
    """Return the request of Nova's documents; None if it asks for nothing.

    :param topology: an ``InstanceNUMATopology``, or None
    :param requests: an ``InstancePCIRequests``, or None
    :param networks: a ``NetworkMetadata``, or None
    :raises cellsched.exception.InvalidField: one has another form
    """
    found = fit.Demand(
        documents.guest_topology(topology),
        documents.device_requests(requests), documents.networks(networks))
    return found if found.topology or found.devices else None
