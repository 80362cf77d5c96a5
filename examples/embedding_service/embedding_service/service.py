# SPDX-License-Identifier: Apache-2.0
"""The service: orders of machines, and their ways to their fates."""

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

#: Seconds between two looks at what became of machines.
FOLLOW_S = 0.2

#: States of a server in which a machine has come to its fate.
_FATES = ('ACTIVE', 'ERROR')


class MachineService:
    """Has machines built, each to one fate, whatever is killed meanwhile.

    A machine is kept here before cellsched hears of it, under the uuid that
    it has there too. So whoever starts after a crash repeats what may not
    have been done: to accept and to run again changes nothing that was done.

    :param conductor: is used, and closed by who made it
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
        """Go on with what was begun, and look after it from now on."""
        for machine in self._store.list_all(machines.ORDERED):
            self._accept(machine)
        # Each has a thread, for none may wait for another.
        for function, spacing_s in [
                *self._conductor.periodic, (self.follow, FOLLOW_S)]:
            thread = threading.Thread(
                target=self._repeat, args=(function, spacing_s))
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Finish what was begun, and do nothing more."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def order(
        self, owner: str, names: Iterable[str], cpus: int, memory_mb: int
    ) -> list[str]:
        """Order machines; return their uuids when they are being built."""
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
                # It was accepted, so it is taken up by a periodic function.
                LOG.exception('Machine %s is built later', machine.name)
        return [machine.uuid for machine in ordered]

    def follow(self) -> None:
        """Keep what became of machines since they were ordered."""
        for machine in self._store.list_all(machines.ORDERED):
            try:
                server = self._conductor.get(_context(machine), machine.uuid)
            except exception.InstanceNotFound:
                # It is kept here first, and accepted in a moment.
                LOG.debug('Machine %s is not accepted yet', machine.name)
                continue
            if server.status in _FATES:
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
                # A database or a broker may be away for a while.
                LOG.exception('%s failed; it is called again', function)


def _context(machine: machines.Machine) -> context.RequestContext:
    return context.RequestContext(
        project_id=machine.owner, user_id=machine.owner)
