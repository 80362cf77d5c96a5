# SPDX-License-Identifier: Apache-2.0
"""The parts that any process may need."""

import abc
from collections.abc import Callable
import functools
from random import Random
from typing import TYPE_CHECKING

from oslo_config import cfg
from oslo_utils import uuidutils

from cellsched.clock import Clock
from cellsched.db import session
from cellsched import exception

if TYPE_CHECKING:
    from cellsched.claims import base as claims_base
    from cellsched.network import base as network_base
    from cellsched.rpc import compute as compute_rpc
    from cellsched.rpc.compute_cap import ComputeCap
    from cellsched.rpc.compute_cap import Lowest
    from cellsched.rpc import transport


class ProcessParts(abc.ABC):
    """Clock, databases, transports, plug-ins and clients of a process.

    To be made after a process has forked. What is handed over is used as it
    is, and closed by who handed it over. Several in one process share
    nothing.

    :param clock: tells the time
    :param claims: the claim store, in place of the one configured
    :param databases: opens databases
    :param transports: opens transports
    :param reached: is told what step of a task was done, by its name
    :param new_uuid: makes names that nobody else has
    """

    def __init__(
        self, conf: cfg.ConfigOpts, clock: Clock | None = None,
        claims: 'claims_base.ClaimStore | None' = None,
        databases: session.Databases | None = None,
        transports: 'transport.Transports | None' = None,
        reached: Callable[[str], None] = lambda step: None,
        new_uuid: Callable[[], str] = uuidutils.generate_uuid,
    ) -> None:
        self.conf = conf
        self.clock = clock or Clock()
        self.databases = databases or session.Databases(self.clock)
        self.reached = reached
        self.new_uuid = new_uuid
        self._own_claims: claims_base.ClaimStore | None = None
        if claims is not None:
            self.claims = claims
        if transports is not None:
            self.transports = transports
        if self.messages:
            # What is wrong with their options is said at once.
            self.check_messages()

    #: Whether what the process does begins or ends with messages.
    messages = True

    def check_messages(self) -> None:
        """Make sure that messages can be sent, as far as options say.

        :raises cellsched.exception.ConfigurationInvalid: they cannot
        """
        self.compute_cap, self.transports  # noqa: B018

    @abc.abstractmethod
    def lowest_compute(self) -> 'Lowest':
        """Return the lowest version of compute services that are called."""

    @functools.cached_property
    def random(self) -> Random:
        """The source of chance."""
        return Random()

    @functools.cached_property
    def transports(self) -> 'transport.Transports':
        """Transports, each of them opened once."""
        from cellsched.rpc import transport

        return transport.Transports(self.conf, at_once=self.messages)

    @functools.cached_property
    def compute_cap(self) -> 'ComputeCap':
        """The newest version of messages that agents may be sent."""
        from cellsched.rpc.compute_cap import ComputeCap

        return ComputeCap(
            self.conf.upgrade_levels.compute, self.lowest_compute,
            make_lock=self.clock.lock)

    @functools.cached_property
    def compute(self) -> 'compute_rpc.ComputeAPIs':
        """The clients of agents."""
        from cellsched.rpc import compute as compute_rpc

        return compute_rpc.ComputeAPIs(
            self.conf.conductor.send_retries, self.compute_cap)

    @functools.cached_property
    def claims(self) -> 'claims_base.ClaimStore':
        """The claim store."""
        from cellsched.claims import load

        self._own_claims = load(self.conf, self)
        return self._own_claims

    @functools.cached_property
    def network(self) -> 'network_base.NetworkAPI':
        """The network plug-in of this process's own cell."""
        from cellsched.conf import enabled
        from cellsched.network import base as network
        from cellsched import plugins

        return enabled.make(
            self.conf, plugins.NETWORKS, network.NetworkAPI, self.conf)

    def close(self) -> None:
        """Close what was opened here; waits for what was begun."""
        if 'transports' in self.__dict__:
            self.transports.close()
        if self._own_claims is not None:
            self._own_claims.close()
        self.databases.close()

    def open_database(self, group: str, schema: str) -> session.Database:
        """Return the database that a group of options names.

        :raises cellsched.exception.ConfigurationInvalid: it names none
        """
        url = self.conf[group].connection
        if not url:
            raise exception.ConfigurationInvalid(
                field=f'[{group}] connection',
                expected=f'the SQLAlchemy URL of the {schema} database; it '
                         'is not set')
        return self.databases.get(
            url, schema, session.engine_options(self.conf, group))
