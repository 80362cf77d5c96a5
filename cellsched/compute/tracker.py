# SPDX-License-Identifier: Apache-2.0
"""Reports of a host's nodes and resources."""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
import dataclasses
import datetime
import json
import logging
from typing import Any
from uuid import UUID
from uuid import uuid5

from oslo_config import cfg
from oslo_log import log
from oslo_serialization import jsonutils

from cellsched.claims import base as claims_base
from cellsched.claims import validation
from cellsched.compute import children
from cellsched.compute import host_name
from cellsched.compute import places
from cellsched.compute import progress
from cellsched.compute.provider_config import ProviderConfig
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import instance_children
from cellsched.db.cell import instances
from cellsched.db.cell import on_host
from cellsched.db.cell import services
from cellsched.db import session
from cellsched import exception
from cellsched.hardware import devices
from cellsched.hardware import documents
from cellsched.hardware.fit import Ratios
from cellsched.hardware import units
from cellsched.migrations import TRANSFER_TRAIT
from cellsched.objects import child_providers
from cellsched.observability.conditions import Conditions
from cellsched.rpc import compute
from cellsched.virt import base as virt_base

LOG = log.getLogger(__name__)

#: A trait of each node, as Nova's agents set it. It tells readers of a claim
#: store which providers are compute nodes.
TRAITS = frozenset({'COMPUTE_NODE', 'OWNER_NOVA'})

_Inventories = Mapping[str, claims_base.Inventory]

#: Attempts of a report before it fails. Hosts write the same lanes of the
#: feed, so a serializable transaction of one of two hosts fails.
_ATTEMPTS_MAX = 20


#: Reports after which the inventory of a new node is no longer verified.
_VERIFIED_REPORTS = 6


class Tracker:
    """Reports a host's nodes to its cell and to the claim store.

    Only the claim store has the host's usage. The cell has the totals, the
    reserved amounts and the statistics.

    :param outcomes: outcomes of the builds on this host
    :param provider_config: configuration files of the nodes
    :param name: protects the host's name
    :param state: the uuids that the host keeps
    :param places_: the NUMA cells and devices of the servers
    """

    def __init__(
        self, conf: cfg.ConfigOpts, database: session.Database,
        claims: claims_base.Providers, driver: virt_base.ComputeDriver,
        outcomes: progress.Outcomes, new_uuid: Callable[[], str],
        provider_config: ProviderConfig, name: host_name.HostName,
        state: host_name.StateFile, places_: places.Places,
    ) -> None:
        self._places = places_
        self._name = name
        self._state = state
        # The uuids of nodes that the host keeps; None until they are read.
        self._kept: dict[str, str] | None = None
        # Former uuids of the nodes of this host, which have no inventory.
        self._former: Set[str] = frozenset()
        self._provider_config = provider_config
        self._conf = conf
        self._database = database
        self._claims = claims
        self._driver = driver
        self._outcomes = outcomes
        self._new_uuid = new_uuid
        # The servers and images that were last read from the cell.
        self._servers: Sequence[Any] = ()
        self._images: Sequence[Any] = ()
        # The last report of each node: the values in the cell, the uuid, and
        # the inventories in the claim store.
        self._rows: dict[str, Mapping[str, Any]] = {}
        self._providers: dict[str, str] = {}
        self._reported: dict[str, dict[str, _Inventories]] = {}
        # The traits and the root that the store has, by provider.
        self._described: dict[str, tuple[str, Set[str]]] = {}
        # Child providers of each node that may have inventory.
        self._children: dict[str, set[str]] = {}
        # Parts of files that were ignored, by the subject of the log.
        self._ignored: dict[str, Set[str]] = {}
        # Nodes with a uuid of their own, or with devices that have one.
        self._moving: set[str] = set()
        # New nodes, and the number of reports in which their inventories will
        # be verified.
        self._unverified: dict[str, int] = {}
        # Nodes that the last report left out, with the reasons.
        self._refused: dict[str, str] = {}
        self._conditions = Conditions(LOG, database.clock.monotonic)
        # Hardware that servers have and that is not reported any more.
        self._misfits = Conditions(LOG, database.clock.monotonic)
        # Vanished nodes of this report, and whether each was empty.
        self._emptied: dict[str, bool] = {}

    def report(self) -> None:
        """Report that the host is up, and its resources if they changed.

        The report includes the outcomes of builds, so that builds do not wait
        for it. The service row is written last, so that a host is selected
        only after its nodes and inventories are known. Times are by the clock
        of the cell's database, because other services compare them.

        :raises cellsched.exception.HostNameTaken: another agent has its name
        :raises cellsched.exception.InvalidField: the driver reports invalid
            child providers; names the field
        """
        now = self._database.now()
        self._keep_name()
        nodes = self._driver.nodes()
        for node, resources in nodes.items():
            children.check(node, resources.providers)
        children.check_uuids(nodes)
        self._provider_config.follow()
        former: Sequence[compute_nodes.HeldNode] = ()
        with self._database.reader() as connection:
            servers = instances.count_states(connection, self._conf.host)
            if servers != self._servers:
                # Read again only after a server has changed.
                self._images = instance_children.count_image_properties(
                    connection, self._conf.host)
                self._servers = servers
            held = compute_nodes.list_held(connection, self._conf.host)
            if self._name.host_id and (
                    not self._rows or self._rows.keys() - nodes.keys()):
                former = compute_nodes.list_former(
                    connection, self._conf.host, self._name.host_id)
        self._emptied = {}
        if self._kept is None:
            self._kept = self._state.read_nodes()
        unnamed = {node for node, each in nodes.items() if each.uuid is None}
        nodes = self._place(nodes, held, now)
        self._keep_uuids(nodes, unnamed, held)
        self._verify()
        for node, resources in nodes.items():
            self._report_node(node, resources, servers, now)
        self._misfits.replace({
            text: '' for node in nodes for text in self._places.misfits(node)})
        self._drop_vanished(nodes, [*held, *former], now)
        self._provider_config.note_idle({
            name for node, resources in nodes.items()
            for name in (node, *resources.providers)}.union(
                *self._reported.values()))
        self._write(
            services.report, self._new_uuid(), self._conf.host,
            services.COMPUTE, compute.TOPIC, now, compute.SERVICE_VERSION,
            self._name.host_id)
        self._name.take(self._write)

    def _place(
        self, nodes: Mapping[str, virt_base.NodeResources],
        held: Sequence[compute_nodes.HeldNode], now: datetime.datetime,
    ) -> dict[str, virt_base.NodeResources]:
        """Return the nodes that this host may report, each with its uuid.

        A node with a uuid of its driver comes with its row and its servers
        from another name or another host of the cell, once that host does not
        report it. A node that only has the name of another one waits until
        nothing is on the other one.
        """
        rows = {each.node: each for each in held}
        uuids = {each.uuid for each in held}
        placed: dict[str, virt_base.NodeResources] = {}
        self._moving, self._refused = set(), {}
        for node, resources in nodes.items():
            row, uuid = rows.get(node), resources.uuid
            if self._providers.get(node) not in uuids:
                # It was deleted, or another host has taken it.
                self._forget(node)
            if uuid is None:
                uuid = row.uuid if row else self._new_node_uuid(
                    node, uuids, len(nodes))
            elif row is None or row.uuid != uuid:
                if row is not None and not self._vanish(row, now):
                    self._refuse(node, f'has the uuid {uuid}, and the servers '
                                 f'of node {row.uuid} of the same name are '
                                 'not deleted yet')
                    continue
                if not self._take_row(uuid, node, now):
                    continue
                self._forget(node)
            if resources.uuid or any(
                    child.uuid for child in resources.providers.values()):
                self._moving.add(node)
            placed[node] = dataclasses.replace(resources, uuid=uuid)
        self._conditions.replace(self._refused, logging.ERROR)
        return placed

    def _new_node_uuid(
        self, node: str, taken: Set[str], count: int
    ) -> str | None:
        """Return the uuid of a node without a row and one of its driver.

        It is the uuid that the host keeps for the node, since a restored
        database may have lost the row. The only node of a host has the uuid of
        the host.
        """
        host_id = self._name.host_id
        kept = (self._kept or {}).get(node)
        if kept is not None and kept not in taken:
            return kept
        if host_id is None or count == 1 and host_id not in taken:
            return host_id
        return _derived(host_id, node)

    def _keep_uuids(
        self, nodes: Mapping[str, virt_base.NodeResources],
        unnamed: Set[str], held: Sequence[compute_nodes.HeldNode],
    ) -> None:
        """Store the uuids of nodes, before the nodes are reported.

        A node can have a row with another uuid than before, for example in a
        restored database. Its former provider is taken out of sale first, so
        that only one of the two can be claimed. The audit names its claims.

        :param unnamed: the nodes without a uuid of their driver
        """
        kept, host_id = self._kept, self._name.host_id
        if kept is None or host_id is None:
            return
        uuids = {node: str(nodes[node].uuid)
                 for node in nodes.keys() & unnamed}
        uuids = {**{node: uuid for node, uuid in kept.items()
                    if uuid not in uuids.values()}, **uuids}
        current = {each.uuid for each in held}
        current.update(str(each.uuid) for each in nodes.values())
        former = {host_id, *kept.values(), *(
            _derived(host_id, node) for node in uuids)} - current
        if former - self._former:
            with self._database.reader() as connection:
                gone = {uuid for uuid in former if compute_nodes.holder(
                    connection, uuid) is None}
            gone.update([child_providers.uuid_of(uuid, name)
                         for uuid in gone for node in nodes.values()
                         for name in node.providers])
            for usage in self._claims.usages(providers=sorted(gone)).usages:
                if any(usage.capacity.values()):
                    LOG.warning('Provider %s no longer belongs to host %s '
                                'and gets no more servers', usage.provider,
                                self._conf.host)
                    self._claims.set_inventory(usage.provider, {})
        self._former = former
        if uuids != kept:
            self._state.write_nodes(uuids)
        self._kept = uuids

    def _take_row(self, uuid: str, node: str, now: datetime.datetime) -> bool:
        """Move a node's row to this host and name.

        :returns: whether the row has this host and name
        """
        with self._database.reader() as connection:
            held = compute_nodes.holder(connection, uuid)
            here = (self._conf.host, node)
            if held is None or (held.host, held.node) == here:
                return True
            reported = not held.vanished and held.host != here[0] and (
                services.is_up(connection, held.host, now,
                               self._conf.service_down_time))
        if reported:
            self._refuse(node, f'is reported by host {held.host} too, under '
                         f'the same uuid {uuid}')
            return False
        LOG.warning('Node %s of host %s is node %s of host %s now', held.node,
                    held.host, node, here[0])
        self._write(compute_nodes.take, held, *here, now)
        return True

    def _refuse(self, node: str, problem: str) -> None:
        self._refused[f'Node {node} is not reported: it {problem}'] = ''
        self._forget(node)

    def _forget(self, node: str) -> None:
        """Forget what was reported of a node."""
        self._rows.pop(node, None)
        self._children.pop(node, None)
        for uuid in self._reported.pop(node, {}):
            self._described.pop(uuid, None)
        self._providers.pop(node, None)

    def _verify(self) -> None:
        """Report inventories again that another host has emptied since.

        The former host of a node or device with a uuid of its driver empties
        the inventory when it stops to report it. The deletion of a service
        empties a node that comes back at the same time.
        """
        nodes = {uuid: node for node in {*self._moving, *self._unverified}
                 for uuid in self._reported.get(node, ())}
        self._unverified = {
            node: reports - 1 for node, reports in self._unverified.items()
            if reports > 1}
        for usage in self._claims.usages(
                providers=list(nodes)).usages if nodes else ():
            reported = self._reported[nodes[usage.provider]]
            if not any(usage.capacity.values()) and any(
                    each.capacity
                    for each in reported[usage.provider].values()):
                del reported[usage.provider]

    def _drop_vanished(
        self, nodes: Mapping[str, Any],
        held: Sequence[compute_nodes.HeldNode], now: datetime.datetime,
    ) -> None:
        """Stop offering the nodes that the driver no longer reports."""
        for node in self._rows.keys() - nodes.keys():
            self._forget(node)
        reported = set(self._providers.values())
        for each in held:
            if each.uuid not in reported:
                self._vanish(each, now)

    def _vanish(
        self, held: compute_nodes.HeldNode, now: datetime.datetime
    ) -> bool:
        """Empty a node, and delete it if nothing is on it.

        :returns: whether nothing is on it
        """
        if held.uuid in self._emptied:
            return self._emptied[held.uuid]
        uuids = [held.uuid, *_uuids(held.providers)]
        if not held.vanished:
            LOG.warning('Node %s of host %s is no longer reported by its '
                        'driver, and gets no more servers', held.node,
                        held.host)
            for uuid in uuids:
                if uuid == held.uuid or not self._is_elsewhere(
                        uuid, held.uuid):
                    self._claims.set_inventory(uuid, {})
        with self._database.reader() as connection:
            empty = not (
                on_host.count(connection, held.host, held.node)
                or on_host.is_awaited(connection, held.host, held.node))
        empty = empty and not any(
            usage.consumers for usage in self._claims.usages(
                providers=uuids).usages)
        if empty or not held.vanished:
            self._write(compute_nodes.mark_vanished, held, now, empty)
        self._emptied[held.uuid] = empty
        return empty

    def _keep_name(self) -> None:
        with self._database.reader() as connection:
            seen = services.look(connection, self._conf.host)
        if self._name.keep(seen, self._write):
            # Another process may have set the inventory.
            self._rows.clear()
            self._reported.clear()
            self._described.clear()
            self._providers.clear()

    def _report_node(
        self, node: str, resources: virt_base.NodeResources,
        servers: Sequence[Any], now: datetime.datetime,
    ) -> None:
        new = resources.uuid or self._new_uuid()
        provider = self._providers.get(node) or self._find(node) or new
        resources = self._with_hardware(node, provider, resources)
        values = self._values(resources)
        values['stats'] = _text({
            **resources.stats,
            **of_servers(row for row in servers if row.node == node),
            **of_images(
                value for on, *value in self._images if on == node),
            'failed_builds': self._outcomes.failed_in_a_row(node)})
        if node not in self._rows:
            self._unverified[node] = _VERIFIED_REPORTS
        # A node whose row was deleted meanwhile gets a new row.
        while self._rows.get(node) != (values := {
                **values, **self._facts(node, provider, resources)}):
            self._empty_children(node, provider, values['providers'])
            provider = self._providers[node] = self._write(
                compute_nodes.save, new, self._conf.host, node, values, now)
            self._rows[node] = values
            new = resources.uuid or self._new_uuid()
        reported = self._reported.setdefault(node, {})
        inventories = self._inventories(node, provider, resources)
        for uuid, inventory in inventories.items():
            if reported.get(uuid) != inventory:
                self._claims.set_inventory(uuid, inventory)
                reported[uuid] = inventory
        for uuid in reported.keys() - inventories.keys():
            del reported[uuid]
        self._describe(node, provider, resources)

    def _describe(
        self, node: str, provider: str, resources: virt_base.NodeResources
    ) -> None:
        """Report the traits of a node and its children to the store.

        Names that no request can use are left out.
        """
        traits = {provider: self._node_traits(node, provider, resources)}
        for name, child in resources.providers.items():
            uuid = _child_uuid(provider, name, child)
            traits[uuid] = self._child_traits(name, uuid, child)
        for uuid, names in traits.items():
            value = provider, frozenset(filter(validation.is_trait, names))
            if self._described.get(uuid) != value:
                self._claims.set_traits(uuid, value[1], root=provider)
                self._described[uuid] = value

    def _find(self, node: str) -> str | None:
        """Return a node's uuid in the cell, and remember its children."""
        with self._database.reader() as connection:
            found = compute_nodes.find(connection, self._conf.host, node)
        if found is None:
            return None
        uuid, providers = found
        self._children[node] = _uuids(providers)
        return uuid

    def _is_elsewhere(self, uuid: str, provider: str) -> bool:
        """Return whether a device belongs to another node now."""
        root = self._claims.roots([uuid]).get(uuid, provider)
        with self._database.reader() as connection:
            return root != provider or compute_nodes.has_child(
                connection, uuid, provider)

    def _empty_children(
        self, node: str, provider: str, providers: str | None
    ) -> None:
        """Remove the inventories of children that a node no longer has.

        The cell forgets them afterwards: a restarted agent knows them only
        from there.

        :param providers: text of the current children
        """
        known = self._children.setdefault(node, set())
        current = _uuids(providers)
        for uuid in sorted(known - current):
            if not self._is_elsewhere(uuid, provider):
                self._claims.set_inventory(uuid, {})
            self._reported.get(node, {}).pop(uuid, None)
            self._described.pop(uuid, None)
            known.discard(uuid)
        known |= current

    def _write(self, query: Callable[..., Any], *args: Any) -> Any:
        return self._database.write(query, *args, attempts_max=_ATTEMPTS_MAX)

    def _inventories(
        self, node: str, provider: str, resources: virt_base.NodeResources
    ) -> dict[str, _Inventories]:
        """Return the inventories of a node and its children, by uuid."""
        merged = {provider: self._merged(
            f'node {node}', provider,
            {**self._figures(resources), **resources.inventories},
            self._provider_config.inventories(node, provider))}
        for name, child in resources.providers.items():
            uuid = _child_uuid(provider, name, child)
            merged[uuid] = self._merged(
                f'child provider {name!a} of node {node}', uuid,
                child.inventories, self._provider_config.inventories(
                    name, uuid, is_node=False))
        return merged

    def _merged(
        self, name: str, uuid: str, of_driver: _Inventories,
        of_files: _Inventories,
    ) -> _Inventories:
        """Merge inventories of driver and files; the driver wins."""
        self._note_ignored(name, uuid, of_driver.keys() & of_files.keys())
        return {**of_files, **of_driver}

    def _note_ignored(self, name: str, uuid: str, both: Set[str]) -> None:
        """Log parts of files that the driver reports, too, once."""
        if both and both != self._ignored.get(uuid):
            LOG.error('The provider configuration of %s on %s is ignored: '
                      'the driver reports it', ', '.join(sorted(both)), name)
        self._ignored[uuid] = both

    def _with_hardware(
        self, node: str, provider: str, resources: virt_base.NodeResources
    ) -> virt_base.NodeResources:
        """Return the resources of a node with those of its NUMA cells.

        The cells and devices of the file complete those of the driver.
        """
        of_file = self._provider_config.hardware(node, provider)
        self._note_ignored(f'node {node}', f'hardware of {provider}', {
            name for name, both in (
                ('cells', of_file.topology and resources.topology),
                ('devices', of_file.devices and resources.devices)) if both})
        topology = resources.topology or of_file.topology
        found = devices.reported(resources.devices or of_file.devices)
        cpu, ram, _ = self._ratios()
        resources = dataclasses.replace(
            resources, topology=topology, devices=found,
            traits=resources.traits | {
                'COMPUTE_REMOTE_MANAGED_PORTS'
                for each in found if each.is_remote}, inventories={
                **{name: claims_base.Inventory(total) for name, total
                   in units.inventory(
                       topology, (), Ratios(cpu, ram)).items()},
                **self._places.device_inventories(provider, found),
                **resources.inventories})
        if topology is None:
            return resources
        dedicated = sum(
            len(each.pcpus - each.cpus) for each in topology.cells)
        if dedicated:
            resources = dataclasses.replace(
                resources,
                vcpus=sum(len(each.cpus) for each in topology.cells),
                inventories={'PCPU': claims_base.Inventory(
                    dedicated, max_unit=dedicated), **resources.inventories})
        traits = {trait for trait, is_met in (
            ('HW_CPU_HYPERTHREADING', topology.has_threads),
            ('COMPUTE_SOCKET_PCI_NUMA_AFFINITY', all(
                each.socket is not None for each in topology.cells)))
            if is_met}
        return dataclasses.replace(resources, traits=resources.traits | traits)

    def _figures(
        self, resources: virt_base.NodeResources
    ) -> dict[str, claims_base.Inventory]:
        cpu, ram, disk = self._ratios()
        conf = self._conf
        return {
            'VCPU': claims_base.Inventory(
                resources.vcpus, conf.reserved_host_cpus, cpu,
                max_unit=max(resources.vcpus, 1)),
            'MEMORY_MB': claims_base.Inventory(
                resources.memory_mb, self._reserved_ram_mb(resources), ram,
                max_unit=max(resources.memory_mb, 1)),
            'DISK_GB': claims_base.Inventory(
                resources.local_gb, self._reserved_disk_gb(), disk,
                max_unit=max(resources.local_gb, 1)),
        }

    def _values(self, resources: virt_base.NodeResources) -> dict[str, Any]:
        cpu, ram, disk = self._ratios()
        ram_mb = self._reserved_ram_mb(resources)
        disk_gb = self._reserved_disk_gb()
        return {
            'vcpus': resources.vcpus,
            'vcpus_used': self._conf.reserved_host_cpus,
            'memory_mb': resources.memory_mb, 'memory_mb_used': ram_mb,
            'free_ram_mb': resources.memory_mb - ram_mb,
            'local_gb': resources.local_gb, 'local_gb_used': disk_gb,
            'free_disk_gb': resources.local_gb - disk_gb,
            'hypervisor_type': resources.hypervisor_type,
            'hypervisor_version': resources.hypervisor_version,
            'cpu_info': _text(resources.cpu_info),
            'supported_instances': _text(resources.supported_instances),
            'host_ip': resources.host_ip,
            'metrics': _text(resources.metrics),
            'cpu_allocation_ratio': cpu,
            'ram_allocation_ratio': ram, 'disk_allocation_ratio': disk,
        }

    def _facts(
        self, node: str, provider: str, resources: virt_base.NodeResources
    ) -> dict[str, str | None]:
        """Return the columns of a node that depend on its uuid."""
        cpu, ram, _ = self._ratios()
        topology, free = self._places.report(node, places.NodeHardware(
            provider, resources.topology, resources.devices,
            Ratios(cpu, ram)))
        return {
            'numa_topology': _text(documents.written_host(
                topology)) if topology else None,
            'pci_stats': _text(documents.written_pools(
                free)) if resources.devices else None,
            'traits': _text(sorted(
                self._node_traits(node, provider, resources))),
            'providers': child_providers.dump(
                child_providers.Child(
                    uuid := _child_uuid(provider, name, child), name,
                    child.parent and _child_uuid(
                        provider, child.parent,
                        resources.providers[child.parent]),
                    self._child_traits(name, uuid, child))
                for name, child in resources.providers.items())}

    def _node_traits(
        self, node: str, provider: str, resources: virt_base.NodeResources
    ) -> Set[str]:
        own = ({TRANSFER_TRAIT} if self._driver.supports_migration
               else frozenset())
        return (TRAITS | (resources.traits - {TRANSFER_TRAIT}) | own
                | self._provider_config.traits(node, provider))

    def _child_traits(
        self, name: str, uuid: str, child: virt_base.ChildProvider
    ) -> frozenset[str]:
        return frozenset(child.traits | self._provider_config.traits(
            name, uuid, is_node=False))

    def _ratios(self) -> tuple[float, float, float]:
        return self._ratio('cpu'), self._ratio('ram'), self._ratio('disk')

    def _ratio(self, kind: str) -> float:
        """Return an allocation ratio; zero means unset, as in Nova."""
        name = f'{kind}_allocation_ratio'
        ratio = self._conf[name] or self._conf[f'initial_{name}']
        if not ratio:
            raise exception.ConfigurationInvalid(
                field=f'[DEFAULT] initial_{name}',
                problem=f'it is 0, and {name} is not set',
                expected='a number above 0')
        return ratio

    def _reserved_ram_mb(self, resources: virt_base.NodeResources) -> int:
        return min(self._conf.reserved_host_memory_mb, resources.memory_mb)

    def _reserved_disk_gb(self) -> int:
        return -(-self._conf.reserved_host_disk_mb // 1024)


def _derived(host_id: str, node: str) -> str:
    """Return the uuid of a new node of a host with several nodes."""
    return str(uuid5(UUID(host_id), f'node {node}'))


def _child_uuid(
    node: str, name: str, child: virt_base.ChildProvider
) -> str:
    return child.uuid or child_providers.uuid_of(node, name)


def _uuids(providers: str | None) -> set[str]:
    return {child.uuid for child in child_providers.load(providers)}


def _text(value: Any) -> str:
    """Return a driver's value as JSON text; a text is returned unchanged."""
    if isinstance(value, str):
        return value
    return jsonutils.dumps(value, sort_keys=True)


#: Characters that the properties of images may take as JSON. The column has
#: room for twice as many in MySQL.
_IMAGES_MAX = 32_000

#: Tasks of servers that load the disks and the network of their host.
_BUSY_TASKS = frozenset({
    'image_backup', 'image_snapshot', 'rebuilding', 'rescuing',
    'resize_migrating', 'resize_prep', 'unshelving'})


def of_servers(rows: Iterable[Any]) -> dict[str, int]:
    """Return the statistics of servers.

    :param rows: the number of ``servers`` with each ``vm_state``,
        ``task_state`` and ``project_id``
    """
    counts = collections.Counter({'num_instances': 0, 'io_workload': 0})
    for row in rows:
        counts['num_instances'] += row.servers
        counts[f'num_vm_{row.vm_state}'] += row.servers
        counts[f'num_task_{row.task_state}'] += row.servers
        counts[f'num_proj_{row.project_id}'] += row.servers
        # As in Nova, a server may count twice: for its state and for its task.
        counts['io_workload'] += row.servers * (
            (row.vm_state == 'building') + (row.task_state in _BUSY_TASKS))
    return dict(counts)


def of_images(
    rows: Iterable[tuple[str, str, int]]
) -> dict[str, dict[str, dict[str, int]]]:
    """Return the image properties of servers, as a statistic.

    If they are too long, only the values of the most servers are included.

    :param rows: property, value, and number of servers with it
    """
    counts: dict[str, dict[str, int]] = {}
    room = _IMAGES_MAX
    for name, value, servers in sorted(
            rows, key=lambda row: (-row[2], row[0], row[1])):
        room -= len(json.dumps([name, value, servers])) + 4
        if room < 0:
            break
        counts.setdefault(name, {})[value] = servers
    return {'image_props': counts} if counts else {}
