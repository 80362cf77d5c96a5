# SPDX-License-Identifier: Apache-2.0
"""The parts that any process may need."""

import abc
from collections.abc import Callable
import functools

from oslo_config import cfg
from oslo_utils import uuidutils

from cellsched import claims as claims_
from cellsched.claims import base as claims_base
from cellsched import clock as clock_
from cellsched.conf import enabled
from cellsched.db import session
from cellsched import exception
from cellsched.network import base as network
from cellsched import plugins
from cellsched.rpc import compute as compute_rpc
from cellsched.rpc import compute_cap
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
        self, conf: cfg.ConfigOpts, clock: clock_.Clock | None = None,
        claims: claims_base.ClaimStore | None = None,
        databases: session.Databases | None = None,
        transports: transport.Transports | None = None,
        reached: Callable[[str], None] = lambda step: None,
        new_uuid: Callable[[], str] = uuidutils.generate_uuid,
    ) -> None:
        self.conf = conf
        self.clock = clock or clock_.Clock()
        self.databases = databases or session.Databases(self.clock)
        self.transports = transports or transport.Transports(conf)
        self.reached = reached
        self.new_uuid = new_uuid
        self.compute_cap = compute_cap.ComputeCap(
            conf.upgrade_levels.compute, self.lowest_compute,
            make_lock=self.clock.lock)
        self.compute = compute_rpc.ComputeAPIs(
            conf.conductor.send_retries, self.compute_cap)
        if claims is not None:
            self.claims = claims

    @abc.abstractmethod
    def lowest_compute(self) -> compute_cap.Lowest:
        """Return the lowest version of compute services that are called."""

    @functools.cached_property
    def claims(self) -> claims_base.ClaimStore:
        """The claim store."""
        return claims_.load(self.conf, self)

    @functools.cached_property
    def network(self) -> network.NetworkAPI:
        """The network plug-in of this process's own cell."""
        return enabled.make(
            self.conf, plugins.NETWORKS, network.NetworkAPI, self.conf)

    def close(self) -> None:
        """Close what was opened here; waits for what was begun."""
        self.transports.close()
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
