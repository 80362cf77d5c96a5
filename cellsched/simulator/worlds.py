# SPDX-License-Identifier: Apache-2.0
"""A world of processes in which nothing happens by itself."""

from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

from cellsched.simulator import clocks
from cellsched.simulator import network
from cellsched.simulator import processes
from cellsched.simulator import stores


class World:
    """Processes, and what they share; nobody waits and nothing fails.

    :param stores_: databases by their URLs
    """

    def __init__(
        self, stores_: Mapping[str, stores.Store], seed: int = 0
    ) -> None:
        self.stores = stores_
        self.seed = seed
        #: Seconds that passed.
        self.now = 0.0
        #: The clock of database servers, which is right.
        self.clock = clocks.SimulatedClock(lambda: self.now, self.wait)
        self.network = network.Network()
        self.processes: dict[str, processes.Process] = {}

    def add(
        self, name: str, make: Callable[..., Any], conf: Any
    ) -> processes.Process:
        """Add a process, which is to be started."""
        made = processes.Process(name, make, conf, self)
        self.processes[name] = made
        return made

    def claims_of(self, process: processes.Process) -> Any:
        """Return the claim store of a process, None for the configured."""
        return None

    def pause(self, what: str) -> None:
        """Let others go on before something is done."""

    def wait(
        self, awaited: Callable[[], bool], patience_s: float | None
    ) -> bool:
        """Let others go on until something is so; return whether it is.

        :param patience_s: how long to wait at most; None for ever
        """
        if patience_s is None:
            raise AssertionError('nobody else is here to be waited for')
        self.now += patience_s
        return awaited()

    def post(self, letter: network.Letter) -> None:
        """Take a message to its broker."""
        self.network.letters.append(letter)

    def strike(
        self, process: processes.Process, store: stores.Store, writes: bool
    ) -> str | None:
        """Return how a transaction goes wrong; see ``stores.Gate.ask``."""
        return None

    def strike_server(self) -> stores.Fate:
        """Return what becomes of a request; see ``stores.Gate.ask_server``."""
        return stores.Fate.ANSWERED

    def look_at(self, store: stores.Store | None) -> None:
        """Look whether what changed may be so."""
