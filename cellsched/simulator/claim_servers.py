# SPDX-License-Identifier: Apache-2.0
"""Servers of claim stores, and how requests to them go wrong.

A store asks its server through a client; see :mod:`cellsched.claims.remote`.
Here the server is a model of it, which answers as it does and keeps all in
memory, and the client one that hands the baton on before each request. The
store itself, and with it all that it sends, is the product's.
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
    """A server, as far as a store uses it."""

    def answer(self, request: Any) -> Any:
        """Do what is asked, all at once, and return the answer."""


class ClaimServerKind(NamedTuple):
    """A kind of claim stores that have a server.

    :param model: makes an empty server
    :param store: makes a store of a client, a clock and a source of chance
    :param is_exact: whether what is taken is what is held at every moment,
        and not only when nobody is at work
    """

    model: Callable[[], ServerModel]
    store: Callable[[Any, clock.Clock, random.Random],
                    claims_base.ClaimStore]
    is_exact: bool


#: What some stores call their server by.
_URL = 'simulated'


class DirectClient:
    """A client to which nothing happens."""

    url = _URL

    def __init__(self, model: ServerModel) -> None:
        self._model = model

    def send(self, request: Any) -> Any:
        return self._model.answer(request)


class ClaimServer:
    """The server of a claim store, and requests that come to it late.

    :param chance: says when those come
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
        """Return the store of a process, whose client may fail."""
        return self._kind.store(
            ClaimServerClient(self, process), process.clock,
            random.Random(f'{seed} {process.name} {process.lives}'))

    def direct(self) -> claims_base.ClaimStore:
        """Return a store that looks past everything that can fail."""
        return self._kind.store(
            DirectClient(self._model), clock.Clock(), random.Random(0))

    def send(self, request: Any, fate: stores.Fate) -> Any:
        """Return what a client hears of a request.

        :raises remote.NotSent: as its fate is
        :raises remote.OutcomeUnknown: likewise
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
        """Do one of the requests that are late, whoever waits for it."""
        self._model.answer(self._late.pop(
            self._random.randrange(len(self._late))))

    def settle(self) -> None:
        """Do all that is late: nothing is lost on its way any longer."""
        while self._late:
            self.arrive()


class ClaimServerClient:
    """A process's client of a server."""

    url = _URL

    def __init__(self, server: ClaimServer, gate: stores.Gate) -> None:
        self._server = server
        self._gate = gate

    def send(self, request: Any) -> Any:
        fate = self._gate.ask_server(str(request))
        try:
            return self._server.send(request, fate)
        finally:
            self._gate.left(None)


#: The claim stores that have a model of their server.
KINDS = {
    'cassandra': ClaimServerKind(
        cassandra_server.CassandraModel, cassandra.CassandraClaims, False),
    'etcd': ClaimServerKind(etcd_server.EtcdModel, etcd.EtcdClaims, False),
    'placement': ClaimServerKind(
        placement_server.PlacementModel, placement.PlacementClaims, False),
}
