# SPDX-License-Identifier: Apache-2.0
"""Claim stores of production on models of their servers.

A claim store sends requests through a client; see
:mod:`cellsched.claims.remote`. Here the server is an in-memory model with the
same answers.
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
from cellsched import clock
from cellsched.simulator.servers import cassandra as cassandra_server
from cellsched.simulator.servers import etcd as etcd_server
from cellsched.simulator.servers import placement as placement_server


class ServerModel(Protocol):
    """The part of a server that a claim store uses."""

    def answer(self, request: Any) -> Any:
        """Execute a request atomically, and return the answer."""


class DirectClient:
    """A client without failures."""

    #: The name of the server in some stores.
    url = 'simulated'

    def __init__(self, model: ServerModel) -> None:
        self._model = model

    def send(self, request: Any) -> Any:
        return self._model.answer(request)


class ClaimServerKind(NamedTuple):
    """A kind of claim store with a server.

    :param model: makes an empty server
    :param store: makes a store from a client, a clock and a random source
    """

    model: Callable[[], ServerModel]
    store: Callable[..., claims_base.ClaimStore]

    def direct(
        self, model: ServerModel | None = None,
        own_clock: clock.Clock | None = None,
    ) -> claims_base.ClaimStore:
        """Return a store whose requests take no time and never fail.

        :param model: its server; an empty one by default
        """
        made = self.store(DirectClient(model or self.model()),
                          own_clock or clock.Clock(), random.Random(0))
        if model is None:
            made.sync()
        return made


#: The claim stores with a model of their server.
KINDS = {
    'cassandra': ClaimServerKind(
        cassandra_server.CassandraModel, cassandra.CassandraClaims),
    'etcd': ClaimServerKind(etcd_server.EtcdModel, etcd.EtcdClaims),
    'placement': ClaimServerKind(
        placement_server.PlacementModel, placement.PlacementClaims),
}
