# SPDX-License-Identifier: Apache-2.0
"""Servers of claim stores, and failures of requests to them.

A claim store sends requests through a client; see
:mod:`cellsched.claims.remote`. Here the server is an in-memory model with the
same answers, and the client lets other activities run before each request.
The claim store is that of the product.
"""

from collections.abc import Callable
import random
from typing import Any
from typing import NamedTuple
from typing import Protocol

from cellsched.claims import base as claims_base
from cellsched.claims import cassandra
from cellsched.claims import etcd
from cellsched.claims import placement
from cellsched.claims import remote
from cellsched import clock
from cellsched.simulator import processes
from cellsched.simulator.servers import cassandra as cassandra_server
from cellsched.simulator.servers import etcd as etcd_server
from cellsched.simulator.servers import placement as placement_server
from cellsched.simulator import stores


class ServerModel(Protocol):
    """The part of a server that a claim store uses."""

    def answer(self, request: Any) -> Any:
        """Execute a request atomically, and return the answer."""


class ClaimServerKind(NamedTuple):
    """A kind of claim store with a server.

    :param model: makes an empty server
    :param store: makes a store from a client, a clock and a random source
    :param is_exact: whether usage equals the sum of allocations at every
        moment, and not only when no request is running
    """

    model: Callable[[], ServerModel]
    store: Callable[[Any, clock.Clock, random.Random], claims_base.ClaimStore]
    is_exact: bool


#: The name of the server in some stores.
_URL = 'simulated'


class DirectClient:
    """A client without failures."""

    url = _URL

    def __init__(self, model: ServerModel) -> None:
        self._model = model

    def send(self, request: Any) -> Any:
        return self._model.answer(request)


class ClaimServer:
    """The server of a claim store, and delayed requests to it.

    :param chance: random source for the delays
    """

    def __init__(self, kind: ClaimServerKind, chance: random.Random) -> None:
        self._kind = kind
        self._random = chance
        self._model = kind.model()
        self._late: list[Any] = []
        self.is_exact = kind.is_exact
        self.direct().sync()

    def store_of(
        self, process: processes.Process, seed: int
    ) -> claims_base.ClaimStore:
        """Return the store of a process; requests may fail."""
        return self._kind.store(
            ClaimServerClient(self, process), process.clock,
            random.Random(f'{seed} {process.name} {process.lives}'))

    def direct(self) -> claims_base.ClaimStore:
        """Return a store whose requests never fail."""
        return self._kind.store(
            DirectClient(self._model), clock.Clock(), random.Random(0))

    def send(self, request: Any, fate: stores.Fate) -> Any:
        """Return the answer to a request with this fate.

        :raises remote.NotSent: the fate is that it is not sent
        :raises remote.OutcomeUnknown: the fate is that no answer arrives
        """
        if fate is stores.Fate.NOT_SENT:
            raise remote.NotSent(fate.value)
        while self._late and self._random.random() < 0.3:
            self.arrive()
        if fate is stores.Fate.LATE:
            self._late.append(request)
        if fate in (stores.Fate.LOST, stores.Fate.LATE):
            raise remote.OutcomeUnknown(fate.value)
        answer = self._model.answer(request)
        if fate is stores.Fate.TWICE:
            answer = self._model.answer(request)
        if fate is stores.Fate.UNANSWERED:
            raise remote.OutcomeUnknown(fate.value)
        return answer

    def arrive(self) -> None:
        """Execute one of the delayed requests."""
        self._model.answer(self._late.pop(
            self._random.randrange(len(self._late))))

    def settle(self) -> None:
        """Execute all delayed requests."""
        while self._late:
            self.arrive()


class ClaimServerClient:
    """The client of a process, whose requests may fail."""

    url = _URL

    def __init__(self, server: ClaimServer, gate: stores.Gate) -> None:
        self._server = server
        self._gate = gate

    def send(self, request: Any) -> Any:
        fate = self._gate.ask_server(str(request))
        try:
            return self._server.send(request, fate)
        finally:
            self._gate.finished(None)


#: The claim stores with a model of their server.
KINDS = {
    'cassandra': ClaimServerKind(
        cassandra_server.CassandraModel, cassandra.CassandraClaims, False),
    'etcd': ClaimServerKind(etcd_server.EtcdModel, etcd.EtcdClaims, False),
    'placement': ClaimServerKind(
        placement_server.PlacementModel, placement.PlacementClaims, False),
}
