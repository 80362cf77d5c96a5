# SPDX-License-Identifier: Apache-2.0
"""The service: orders machines and follows their builds."""

from collections.abc import Callable
from collections.abc import Iterable
import dataclasses
import logging
import threading
import uuid

from cellsched import context
from cellsched import embedding
from cellsched import exception
from cellsched import objects

from embedding_service import machines

LOG = logging.getLogger(__name__)

#: Seconds between two reads of the machines' states.
FOLLOW_S = 0.2

#: Final states of a server.
_FINAL_STATES = ('ACTIVE', 'ERROR')


class MachineService:
    """Builds machines; each reaches one final state even after a crash.

    The service stores a machine before it passes it to cellsched, with the
    same uuid. After a crash it calls ``accept`` again for every machine
    without a final state. ``accept`` and ``run`` are idempotent.

    :param conductor: the embedded conductor; the caller closes it
    """

    def __init__(
        self, store: machines.MachineStore,
        conductor: embedding.EmbeddedConductor,
    ) -> None:
        self._store = store
        self._conductor = conductor
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Resume unfinished orders and start the periodic functions."""
        for machine in self._store.list_all(machines.ORDERED):
            self._accept(machine)
        # A function must not wait for another, so each has its own thread.
        for function, spacing_s in [
                *self._conductor.periodic, (self.follow, FOLLOW_S)]:
            thread = threading.Thread(
                target=self._repeat, args=(function, spacing_s))
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Stop the periodic functions and wait for their current calls."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def order(
        self, owner: str, names: Iterable[str], cpus: int, memory_mb: int
    ) -> list[str]:
        """Order machines; return their uuids once their builds have begun."""
        ordered = [
            machines.Machine(str(uuid.uuid4()), name, owner, cpus, memory_mb)
            for name in names]
        for machine in ordered:
            self._store.save(machine)
        for machine in ordered:
            self._accept(machine)
            try:
                self._conductor.run(_context(machine), [machine.uuid])
            except Exception:
                # The machine is accepted, so a periodic function retries it.
                LOG.exception('Machine %s is built later', machine.name)
        return [machine.uuid for machine in ordered]

    def follow(self) -> None:
        """Store the final states of ordered machines."""
        for machine in self._store.list_all(machines.ORDERED):
            try:
                server = self._conductor.get(_context(machine), machine.uuid)
            except exception.InstanceNotFound:
                # order() stores a machine before it accepts it.
                LOG.debug('Machine %s is not accepted yet', machine.name)
                continue
            if server.status in _FINAL_STATES:
                self._store.save(dataclasses.replace(
                    machine, state=server.status, place=server.host,
                    reason=server.reason))

    def _accept(self, machine: machines.Machine) -> None:
        self._conductor.accept(
            _context(machine), {machine.uuid: machine.name},
            objects.RequestSpec(flavor=objects.Flavor(
                id=1, flavorid='machine', name='machine',
                vcpus=machine.cpus, memory_mb=machine.memory_mb, root_gb=1,
                extra_specs={})))

    def _repeat(
        self, function: Callable[[], None], spacing_s: float
    ) -> None:
        while not self._stopping.wait(spacing_s):
            try:
                function()
            except Exception:
                # A database or a broker may be unavailable for a while.
                LOG.exception(
                    'Periodic function %s failed; it is called again',
                    function)


def _context(machine: machines.Machine) -> context.RequestContext:
    return context.RequestContext(
        project_id=machine.owner, user_id=machine.owner)
