# SPDX-License-Identifier: Apache-2.0
"""Events of the world: renamed hosts, restored databases, moved nodes."""

from __future__ import annotations

import collections
import random
import sqlite3
from typing import Any

from cellsched import context
from cellsched import exception
from cellsched.simulator.promises import harness
from cellsched.simulator.promises import machines
from cellsched.simulator.promises import processes
from cellsched.standalone.deployment import view
from cellsched.wiring import services

_COMPUTE = 'nova-compute'

#: Refused starts after which a host gets a new name.
_REFUSALS_MAX = 4

#: Seconds from an event to the next report of an agent.
_REPORTS_S = (0.0, 0.0, 5.0)


class Operator:
    """Renames hosts, restores databases, moves nodes, and audits at the end.

    Its own requests do not fail.

    :param world: the run; see ``simulation.Simulation``
    """

    def __init__(self, world: Any, chance: random.Random) -> None:
        self._world = world
        self._random = chance
        self._quiet = processes.World(world.stores, claims=world.claims)
        self._process = self._quiet.add(
            'operator', services.api, world.harness.confs['api'])
        self._backups: dict[str, tuple[float, sqlite3.Connection]] = {}
        #: The former configurations of hosts that get another name.
        self._former: dict[str, Any] = {}
        #: How often a host was refused, and all names that it has had.
        self._refusals: collections.Counter[str] = collections.Counter()
        self._names: dict[Any, set[str]] = collections.defaultdict(set)
        self._node: machines.MovableNode | None = None
        #: The agents whose hosts were forced down.
        self._down: list[processes.Process] = []

    def _api(self) -> Any:
        self._quiet.now = self._world.now
        if self._process.service is None:
            self._process.start()
        return self._process.service

    def _machines(self) -> dict[str, processes.Process]:
        return {name: self._world.processes[name]
                for name in self._world.machines}

    def _look(self) -> None:
        for store in self._world.stores.values():
            self._world.finished(store)

    # Names.

    def rename(self) -> None:
        """Stop an agent, and start it under another name.

        The name is new, or that of another host. The agent may have the file
        of another cell.
        """
        hosts = self._machines()
        process = self._random.choice([
            process for name, process in hosts.items()
            if name not in self._former] or [None])
        if process is None:
            return
        own, driver = process.conf, process.driver
        file = self._random.choice([
            own, own, own, *(each.conf for each in hosts.values())])
        name = self._random.choice([
            f'{process.name}-renamed', f'{process.name}-renamed',
            *(each.conf.host for each in hosts.values()
              if each is not process)])
        self._world.note(f'host {own.host} becomes {name}, database '
                         f'{file.database.connection}')
        self._former[process.name] = own
        self._world.invariants.renamed(
            driver, file.database.connection == own.database.connection)
        driver.names.add(name)
        process.conf = driver.conf = view(file, {
            'DEFAULT': {'host': name, 'state_path': own.state_path}})
        self._world.kill(process)
        self._force_down(driver)

    def started(self, process: processes.Process) -> None:
        """Map a host whose agent has started; it is up again."""
        if self._former.pop(process.name, None) is None:
            return
        driver, name = process.driver, process.conf.host
        driver.names = {name}
        process.conf = driver.conf = _adopting(process.conf, False)
        api = self._api()
        try:
            api.parts.discovery.discover()
            api.services.set(
                context.admin(), name, _COMPUTE, forced_down=False)
        except exception.CellschedException as exc:
            self._world.note(f'operator: {exc}')
        self._look()

    def refused(
        self, process: processes.Process, error: exception.CellschedException
    ) -> None:
        """Have the guests of a host adopted, or give it another name."""
        if not isinstance(error, (
                exception.HostIdentityConflict, exception.HostMappingExists)):
            return
        driver = process.driver
        self._force_down(driver)
        # A name of a restored cell can be that of another host by now.
        former = self._former.setdefault(process.name, process.conf)
        self._refusals[process.name] += 1
        adopting = _adopting(process.conf, True)
        if not self._refusals[process.name] % _REFUSALS_MAX:
            name = f'{process.name}-{self._refusals[process.name]}'
            again = view(adopting, {'DEFAULT': {'host': name}})
            driver.names.add(name)
        elif process.conf.compute.adopt_guests or self._random.random() < 0.5:
            again = former
        else:
            again = adopting
        process.conf = driver.conf = again

    def _force_down(self, driver: machines.Machine) -> None:
        """Force down the host names that only this machine has."""
        elsewhere = set().union(*(
            each.driver.names for each in self._machines().values()
            if each.driver is not driver))
        self._names[driver].update(driver.names)
        for name in sorted(self._names[driver] - elsewhere):
            self._set_forced_down(name, True)
        self._look()

    def _set_forced_down(self, name: str, is_down: bool) -> None:
        try:
            self._api().services.set(
                context.admin(), name, _COMPUTE, forced_down=is_down)
        except (exception.HostMappingNotFound, exception.ServiceNotFound):
            pass  # The name is new.

    def force_down(self, process: processes.Process) -> None:
        """Force down a host whose agent is suspended, until the faults end."""
        self._world.note(f'{process.name} is forced down')
        self._world.invariants.forced_down(process.name)
        self._down.append(process)
        self._force_down(process.driver)

    # Databases.

    def restore(self) -> None:
        """Restore a cell from its backup, or make one if there is none."""
        cell = self._random.choice(list(harness.CELLS))
        store = self._world.stores[harness.database(cell)]
        if cell not in self._backups:
            self._backups[cell] = self._world.now, store.image()
            self._world.note(f'{cell} is backed up')
            return
        when, image = self._backups[cell]
        self._world.note(f'{cell} is restored from {when:.3f}')
        store.load(image)
        self._world.invariants.restored(store)
        self._report()

    def _report(self) -> None:
        when = self._world.now + self._random.choice(_REPORTS_S)
        for process in self._machines().values():
            process.report_at(when)

    # Nodes.

    def give_node(self) -> None:
        """Give the movable node to a machine, before the run."""
        self._node = machines.MovableNode()
        self._random.choice(
            list(self._machines().values())).driver.node = self._node

    def move_node(self) -> None:
        """Take the node from its machine, and perhaps give it to another."""
        holders = [each for each in self._machines().values()
                   if each.driver.node is not None]
        self._world.invariants.node_moves()
        for process in holders:
            process.driver.node = None
        self._world.note('the node leaves ' + ', '.join(
            each.name for each in holders))
        if not holders or self._random.random() < 0.6:
            process = self._random.choice(list(self._machines().values()))
            process.driver.node = self._node
            self._world.note(f'the node comes to {process.name}')
        self._report()

    # The end.

    def settle(self) -> None:
        """Have all agents report, and map what they report.

        Hosts that were forced down are up again.
        """
        for process in self._down:
            self._set_forced_down(process.conf.host, False)
        self._report()

    def audit(self) -> set[str]:
        """Return what the findings of an audit are of."""
        api = self._api()
        auditor = services.auditor(api.parts)
        report = auditor.run(settle_s=0.0)
        return {found.of for found in report.remaining}


def _adopting(conf: Any, adopts: bool) -> Any:
    """Return the configuration of an agent that adopts guests, or not."""
    return view(conf, {'compute': {'adopt_guests': adopts}})
