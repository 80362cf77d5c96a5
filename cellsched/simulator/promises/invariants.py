# SPDX-License-Identifier: Apache-2.0
"""Invariants after each step, and at the end of a run.

It is read past the services, from the databases, the claim store and the
virtualisation drivers.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import functools
from typing import Any
from typing import NamedTuple

from cellsched.claims import base as claims_base
from cellsched.claims import listing
from cellsched.db.cell import states
from cellsched.hardware import units
from cellsched import migrations
from cellsched.simulator.promises import harness
from cellsched.simulator.promises import machines
from cellsched.simulator.promises import stores
from cellsched.simulator.promises.workload import UserBatch
from cellsched.simulator.promises.workload import Workload

_ROWS = ('select uuid, vm_state, task_state, host, deleted, display_name, '
         'node, build_attempts from instances')
_CELLS = ('select m.instance_uuid, c.database_connection, m.queued_for_delete '
          'from instance_mappings m '
          'left join cell_mappings c on c.id = m.cell_id')
_REQUESTS = 'select instance_uuid from build_requests'
_MESSAGES = 'select instance_uuid from build_casts'
_FAULTS = 'select distinct instance_uuid from instance_faults'
_ALLOCATIONS = ('select consumer, provider, resource_class, amount '
                'from allocations')
_INVENTORIES = ('select provider, resource_class, capacity, used '
                'from inventories')


class Violation(Exception):
    """An invariant is violated.

    :param promise: the number of the invariant
    """

    def __init__(self, promise: str, what: str) -> None:
        super().__init__(f'{promise}: {what}')
        self.promise = promise


def _name(url: str | None) -> str:
    return (url or 'none').rpartition('/')[2]


class _Row(NamedTuple):
    state: states.State
    host: str | None
    name: str
    node: str | None
    attempts: int


class Invariants:
    """The checks of all invariants.

    :param world: the run; see ``simulation.Simulation``
    :ivar disturbed: servers whose records or guests an event has taken away;
        an audit must report each of them that is not as it should be
    """

    def __init__(self, world: Any) -> None:
        self._world = world
        self._stores: Mapping[str, stores.Store] = world.stores
        self._claims: claims_base.ClaimStore | None = world.claims
        self._machines: Mapping[str, machines.Machine] = world.machines
        #: First host names by provider.
        self._hosts: Mapping[str, str] = world.harness.hosts
        self._workload: Workload = world.workload
        self._note: Callable[[str], None] = world.note
        self.disturbed: set[str] = set()
        #: Servers that were active on a host with their guest.
        self._arrived: set[str] = set()
        #: Servers whose builds were interrupted by a new name.
        self._interrupted: set[str] = set()
        #: Hosts that were forced down; they may have guests of builds that
        #: go on elsewhere until the end.
        self._forced_down: set[str] = set()
        self._node_moved = False
        self._urls = [url for url in self._stores if 'cell' in url]
        self._rows: dict[str, dict[str, _Row]] = {
            url: {} for url in self._urls}
        self._cells: dict[str, tuple[str | None, bool]] = {}
        self._requests: set[str] = set()
        #: The attempt of each build that began last, by cell and server.
        self._begun: dict[tuple[str, str], int] = {}

    def look_at(self, store: stores.Store | None) -> None:
        """Check a changed store.

        :raises Violation: an invariant is violated
        """
        if store is None:
            self._look_at_claims()
        elif store.is_changed():
            if store.url == harness.API:
                self._look_at_requests()
            elif store.url == harness.CLAIMS:
                self._look_at_claims()
            else:
                self._look_at_cell(store)

    def _look_at_cell(self, store: stores.Store) -> None:
        before = self._rows[store.url]
        rows, gone = self._read(store)
        self._rows[store.url] = rows
        for uuid in sorted(before.keys() | rows.keys()):
            old, new = before.get(uuid), rows.get(uuid)
            was = old.state if old else None
            now = (new.state if new else
                   states.DELETED if uuid in gone else None)
            if was != now or (old and new and old.host != new.host):
                self._note(f'-> {uuid[:8]} in {_name(store.url)}: '
                           f'{now and tuple(now)} on {new and new.host}')
            if not states.is_allowed(was, now):
                raise Violation('states', f'{uuid} went from {was} to {now}')
            # An attempt of a build does not begin again.
            if old is None or new is None:
                self._begun.pop((store.url, uuid), None)
            elif old.host is None and new.host is not None:
                if self._begun.get((store.url, uuid)) == new.attempts:
                    raise Violation('attempts', f'attempt {new.attempts} of '
                                                f'{uuid} begins again')
                self._begun[store.url, uuid] = new.attempts
            if self._node_moved and new and new.node == machines.NODE:
                self.disturbed.add(uuid)
        # The audit does not report them: a conductor drops them later.
        strays = {uuid for uuid, in store.query(_MESSAGES)} - rows.keys()
        if strays:
            raise Violation('messages', f'{_name(store.url)} stores messages '
                                        f'of {sorted(strays)}, without rows')
        self._look_at_places(rows)

    def _read(self, store: stores.Store) -> tuple[dict[str, _Row], set[str]]:
        """Return the rows of a cell, and its deleted servers."""
        rows, gone = {}, set()
        for uuid, vm_state, task_state, host, deleted, *more in (
                store.query(_ROWS)):
            if deleted:
                gone.add(uuid)
            else:
                rows[uuid] = _Row(
                    states.State(vm_state, task_state), host, *more)
        return rows, gone

    def restored(self, store: stores.Store) -> None:
        """Read a cell whose database was restored from a backup."""
        before = self._rows[store.url]
        rows = self._rows[store.url] = self._read(store)[0]
        changed = {uuid for uuid in before.keys() | rows.keys()
                   if before.get(uuid) != rows.get(uuid)}
        self.disturbed |= changed
        self._workload.hidden -= changed
        for uuid in changed:
            self._begun.pop((store.url, uuid), None)

    def renamed(self, machine: machines.Machine, same_cell: bool) -> None:
        """Note that a host gets another name, perhaps in another cell."""
        if not same_cell:
            self.disturbed.update(machine.list_instances())
        # Its host is fenced. A build can go on elsewhere until it is back.
        self._interrupted.update(
            set(machine.list_instances()) - self._arrived)

    def forced_down(self, host: str) -> None:
        """Note that builds of a host can go on elsewhere, and also there."""
        self._forced_down.add(host)

    def node_moves(self) -> None:
        """Note that the movable node leaves its machine."""
        self._node_moved = True
        for rows in self._rows.values():
            self.disturbed.update(
                uuid for uuid, row in rows.items()
                if row.node == machines.NODE)
        self._look_at_claims()

    def look_at_destroyed(self, uuid: str) -> None:
        """Check that a guest may be destroyed.

        :raises Violation: its server was active, and no user deletes it
        """
        if uuid in self._arrived and uuid not in self._workload.to_delete:
            raise Violation('guests', f'the guest of {uuid} is destroyed, and '
                                      'no user deletes its server')

    def look_at_parts(self, machine: machines.Machine) -> None:
        """Check that no CPU, page or device of a machine is used twice.

        :raises Violation: several guests have one of them
        """
        guests, used = machine.list_instances(), collections.Counter[str]()
        for uuid, amounts in machine.placed().items():
            if uuid in guests:
                used.update(amounts)
        for name, total in machine.parts().items():
            if used[name] > total:
                raise Violation('parts', f'guests of {machine.conf.host} use '
                                         f'{used[name]} of {total} {name}')

    def _look_at_places(self, uuids: Iterable[str]) -> None:
        for uuid in uuids:
            if uuid in self.disturbed or uuid in self._interrupted:
                continue
            begun = [url for url, row in self._live(uuid)
                     if row.host or row.state.vm_state == 'active']
            if len(begun) > 1:
                raise Violation('S2', f'{uuid} is built in {begun}')
            mapped = self._cells.get(uuid, (None, False))[0]
            if begun and mapped not in begun:
                raise Violation('S3', f'{uuid} is built in {begun} and mapped '
                                      f'to {mapped}')
            hosts = [host for host, machine in self._machines.items()
                     if uuid in machine.list_instances()]
            if len({*hosts} - self._forced_down) > 1:
                raise Violation('S2', f'{uuid} runs on {hosts}')
            names = {name for host in hosts
                     for name in self._machines[host].names}
            for _, row in self._live(uuid):
                if row.state == states.ACTIVE and row.host is not None:
                    if row.host not in names:
                        raise Violation(
                            'guests', f'{uuid} is active on {row.host}, which '
                            'has lost its guest')
                    self._arrived.add(uuid)
        self._look_at_deleted()

    def _look_at_requests(self) -> None:
        api = self._stores[harness.API]
        cells = {uuid: (cell, bool(queued))
                 for uuid, cell, queued in api.query(_CELLS)}
        for uuid, (old, _) in self._cells.items():
            new = cells.get(uuid, (None, False))[0]
            live = dict(self._live(uuid)).get(old or '')
            if (old not in (None, new) and live is not None and live.host
                    and uuid not in self.disturbed):
                raise Violation('S3', f'{uuid} went from {old} to {new} '
                                      'while it was built')
        requests = {uuid for uuid, in api.query(_REQUESTS)}
        for uuid in cells:
            before = self._cells.get(uuid), uuid in self._requests
            after = cells[uuid], uuid in requests
            if before != after:
                cell, queued = cells[uuid]
                self._note(f'-> {uuid[:8]}: cell {_name(cell)}'
                           f'{", deleted" * queued}'
                           f'{", requested" * (uuid in requests)}')
        self._cells = cells
        self._requests = requests
        self._look_at_deleted()

    def _look_at_deleted(self) -> None:
        """Check that deleted servers stay invisible."""
        for uuid in self._workload.deleted:
            if uuid in self.disturbed:
                continue
            cell = self._cells.get(uuid, (None, False))[0]
            # The API shows servers with a request or with a row in a cell.
            if uuid not in self._requests and (
                    cell is None or uuid not in self._rows[cell]):
                self._workload.hidden.add(uuid)
            elif uuid in self._workload.hidden:
                raise Violation('S7', f'{uuid} was deleted and is back')

    def _look_at_claims(self, quiet: bool = False) -> None:
        """Check that usage fits capacity, and equals the allocations.

        :param quiet: whether no activity is running
        """
        held: collections.Counter[Any] = collections.Counter()
        for consumer, provider, name, amount in self._allocations():
            if provider == machines.NODE_ID and self._node_moved:
                self.disturbed.add(consumer)
            held[provider, name] += amount
        for provider, name, capacity, used in self._inventories():
            host = self._hosts.get(provider, provider)
            # A provider without inventory was taken out of sale. The movable
            # node keeps its claims when it has left and comes back.
            if used > capacity > 0 and provider != machines.NODE_ID:
                raise Violation('S1', f'{used} of {capacity} {name} are taken '
                                      f'on {host}')
            # A store with a server counts right in the end only.
            if used != held[provider, name] and (
                    quiet or self._world.server is None):
                raise Violation('S5', f'{used} {name} are taken on {host}, '
                                      f'and {held[provider, name]} held')

    def _live(self, uuid: str) -> list[tuple[str, _Row]]:
        return [(url, rows[uuid]) for url, rows in self._rows.items()
                if uuid in rows]

    def retried(self) -> list[str]:
        """Return the servers whose builds are on the way to a next host."""
        return sorted(
            uuid for rows in self._rows.values() for uuid, row in rows.items()
            if row.state == states.SCHEDULING and row.attempts > 1)

    # The end of a run.

    def unsettled(self) -> bool:
        """Return whether a build or a deletion is unfinished."""
        return bool(self._requests) or any(
            row.state.vm_state == 'building' or row.state.task_state
            for rows in self._rows.values() for row in rows.values())

    def check_end(self) -> None:
        """Check that every request is finished.

        :raises Violation: an invariant is violated
        """
        self._interrupted.clear()
        self._forced_down.clear()
        self._look_at_claims(quiet=True)
        for rows in self._rows.values():
            self._look_at_places(rows)
        claims = self._held()
        for uuid in sorted({*self._requests, *self._cells, *claims}):
            self._check_one(uuid, claims.get(uuid, {}))
        self._check_strays()
        self._check_parts(claims)
        for batch in self._workload.batches:
            self._check_batch(batch)
        self._check_nodes()

    def _check_one(self, uuid: str, claims: Mapping[str, Any]) -> None:
        """Check one server; an audit may report a disturbed one instead."""
        try:
            self._check_fate(uuid, claims)
        except Violation:
            # A stopped process may have transferred the claims of a server.
            server = next((each for each in self.disturbed
                           if migrations.consumer(each) == uuid), uuid)
            if server not in self.disturbed or not self._is_reported(
                    server, claims):
                raise

    def _is_reported(self, uuid: str, claims: Iterable[str]) -> bool:
        """Return whether an audit reports a server, its claims or its host."""
        nodes = [
            node for url, row in self._live(uuid) if row.host
            for node, in self._stores[url].query(
                'select uuid from compute_nodes where deleted = 0 '
                f"and host = '{row.host}'")]
        return not self._audited.isdisjoint((uuid, *claims, *nodes))

    @functools.cached_property
    def _audited(self) -> set[str]:
        found: set[str] = self._world.operator.audit()
        return found

    def _check_fate(self, uuid: str, claims: Mapping[str, Any]) -> None:
        if uuid in self._requests:
            raise Violation('L1', f'{uuid} is requested still')
        cell, queued = self._cells.get(uuid, (None, True))
        live = self._live(uuid)
        if uuid in self._workload.deleted or queued:
            if live:
                raise Violation('S7', f'{uuid} was deleted and is in {live}')
            if claims:
                raise Violation('S4', f'claims of {uuid} are left: {claims}')
        elif len(live) != 1:
            raise Violation('S2', f'{uuid} ended in {live}')
        elif live[0][0] != cell:
            raise Violation('S3', f'{uuid} is in {live} and mapped to {cell}')
        else:
            self._check_server(uuid, *live[0], claims)

    def _check_server(
        self, uuid: str, url: str, row: _Row, claims: Mapping[str, Any]
    ) -> None:
        if row.state == states.ACTIVE and url != harness.CELL0:
            hosts = [self._names(provider) for provider in claims]
            if len(hosts) != 1 or row.host not in hosts[0]:
                raise Violation('S4', f'{uuid} is on {row.host} and holds '
                                      f'claims on {hosts}')
            flavor = self._stores[url].query(
                'select vcpus, memory_mb, root_gb from instances '
                f"where uuid = '{uuid}' and deleted = 0")[0]
            taken = [each for claim in claims.values()
                     for _, each in sorted(units.plain(claim).items())]
            if taken != [flavor[2], flavor[1], flavor[0]]:
                raise Violation('S4', f'{uuid} holds {claims}, not {flavor}')
            if not any(uuid in machine.list_instances()
                       for machine in self._machines.values()
                       if row.host in machine.names):
                raise Violation('S2', f'{uuid} does not run on {row.host}')
        elif row.state == states.ERROR:
            if claims:
                raise Violation('S4', f'{uuid} is in ERROR and holds {claims}')
            if (uuid,) not in self._stores[url].query(_FAULTS):
                raise Violation('S13', f'{uuid} is in ERROR without a fault')
        else:
            raise Violation('L1', f'{uuid} in {url} ended as {row}')
        name = self._workload.names.get(uuid, row.name)
        if name not in ('maybe', row.name) and uuid not in self.disturbed:
            raise Violation('rename', f'{uuid} is {row.name!r}, not {name!r}')

    def _check_parts(
        self, claims: Mapping[str, Mapping[str, Mapping[str, int]]]
    ) -> None:
        """Check that servers have the CPUs, pages and devices of their claims.

        All others are free.
        """
        for machine in self._machines.values():
            self.look_at_parts(machine)
            placed = machine.placed()
            for uuid in sorted({*placed, *machine.list_instances()}
                               - self.disturbed):
                named: dict[str, int] = {}
                for claim in claims.get(uuid, {}).values():
                    named |= units.named(claim)
                if named != placed.get(uuid, {}):
                    raise Violation('parts', f'{uuid} has {placed.get(uuid)} '
                                             f'and holds {named}')

    def _names(self, provider: str) -> set[str]:
        """Return the names of the host that has a provider now."""
        for host_id, host in self._hosts.items():
            machine = self._machines[host]
            if provider in machine.providers(host_id):
                return machine.names
        if provider != machines.NODE_ID:
            return set()
        return {name for machine in self._machines.values()
                if machine.node is not None for name in machine.names}

    def _check_nodes(self) -> None:
        """Check that each node is for sale once, and only where it is.

        No host is selected that is down.
        """
        for_sale = {provider for provider, _, capacity, _
                    in self._inventories() if capacity}
        for host_id, host in self._hosts.items():
            providers = for_sale & self._machines[host].providers(host_id)
            if len(providers) > 1:
                raise Violation('nodes', f'the node of {host} is for sale as '
                                         f'{sorted(providers)}')
        # A host without a machine in its cell is down: nothing reports it.
        up = any(
            url == machine.conf.database.connection and host in machine.names
            for machine in self._machines.values() for url in self._urls
            for host, in self._stores[url].query(
                'select n.host from compute_nodes n '
                'join services s on s.host = n.host where s.deleted = 0 '
                'and n.deleted = 0 and not s.forced_down '
                f"and n.uuid = '{machines.NODE_ID}'"))
        if not self._node_moved or not up or self._names(machines.NODE_ID):
            return
        if machines.NODE_ID in for_sale - self._audited:
            raise Violation('nodes', 'a node is for sale, and no machine has '
                                     'it')

    def _check_strays(self) -> None:
        """Check that no record exists of a server that was not accepted."""
        rows = {uuid for rows in self._rows.values() for uuid in rows}
        runs = {uuid for machine in self._machines.values()
                for uuid in machine.list_instances()}
        active = {uuid for rows in self._rows.values()
                  for uuid, row in rows.items() if row.host}
        if rows - self._cells.keys():
            raise Violation('S3', f'{rows} have rows and no mapping')
        differ, held = runs ^ active, self._held()
        if differ - self.disturbed or not all(
                self._is_reported(uuid, held.get(uuid, ()))
                for uuid in differ):
            raise Violation('S4', f'{sorted(runs)} run, {sorted(active)} are '
                                  'to run')

    def _check_batch(self, batch: UserBatch) -> None:
        lost = [uuid for uuid in batch.uuids if uuid not in self._cells]
        if lost:
            raise Violation('S2', f'{lost} were accepted, and have no record')
        built = deleted = 0
        if not self.disturbed.isdisjoint(batch.uuids):
            return
        for uuid in batch.uuids:
            live = [url for url, _ in self._live(uuid) if url != harness.CELL0]
            built += bool(live)
            deleted += self._cells[uuid][1]
        alone = not self._workload.retried.isdisjoint(batch.uuids)
        if 0 < built < batch.min_count - deleted and not alone:
            raise Violation('S10', f'of {batch} {built} were built')

    def _inventories(self) -> list[tuple[Any, ...]]:
        """Return provider, class, capacity and usage."""
        if self._claims is None:
            return self._stores[harness.CLAIMS].query(_INVENTORIES)
        return [(each.provider, name, each.capacity.get(name, 0),
                 each.used.get(name, 0))
                for each in self._claims.usages().usages
                for name in {**each.used, **each.capacity}]

    def _allocations(self) -> list[tuple[Any, ...]]:
        """Return consumer, provider, class and amount."""
        if self._claims is None:
            return self._stores[harness.CLAIMS].query(_ALLOCATIONS)
        return [
            (consumer, claim.provider, name, amount)
            for page in listing.pages(self._claims, 1000)
            for consumer, claims in self._claims.claims_of(page).items()
            for claim in claims for name, amount in claim.resources.items()]

    def _held(self) -> dict[str, dict[str, dict[str, int]]]:
        """Return the amounts of each consumer on each provider."""
        held: dict[str, dict[str, dict[str, int]]] = {}
        for consumer, provider, name, amount in self._allocations():
            amounts = held.setdefault(consumer, {}).setdefault(provider, {})
            amounts[name] = amounts.get(name, 0) + amount
        return held
