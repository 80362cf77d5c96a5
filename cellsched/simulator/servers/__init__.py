# SPDX-License-Identifier: Apache-2.0
"""Claim stores of production on models of their servers.

A claim store sends requests through a client; see
:mod:`cellsched.claims.remote`. Here the server is a model, which answers the
requests of its store like the server, one at a time.
"""

from collections.abc import Callable
import random
from typing import Any
from typing import NamedTuple

from cellsched.claims import base as claims_base
from cellsched.claims import cassandra as cassandra_store
from cellsched.claims import etcd as etcd_store
from cellsched.claims import placement as placement_store
from cellsched import clock
from cellsched.simulator.servers import base
from cellsched.simulator.servers import cassandra
from cellsched.simulator.servers import etcd
from cellsched.simulator.servers import placement


class DirectClient:
    """A client without failures."""

    #: The name of the server in some stores.
    url = 'simulated'

    def __init__(self, model: Any) -> None:
        self._model = model

    def send(self, request: Any) -> Any:
        return self._model.answer(request)


class ClaimServerKind(NamedTuple):
    """A kind of claim store with a server.

    :param model: makes an empty server
    :param store: makes a store from a client, a clock and a random source
    """

    model: type[base.ServerModel]
    store: Callable[..., claims_base.ClaimStore]

    def direct(
        self, model: Any = None, own_clock: clock.Clock | None = None
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
        cassandra.CassandraModel, cassandra_store.CassandraClaims),
    'etcd': ClaimServerKind(etcd.EtcdModel, etcd_store.EtcdClaims),
    'placement': ClaimServerKind(
        placement.PlacementModel, placement_store.PlacementClaims),
}
