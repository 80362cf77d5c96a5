# SPDX-License-Identifier: Apache-2.0
"""The parts that the services of a process share."""

from collections.abc import Callable
import functools
import random as random_

from futurist import ThreadPoolExecutor
from oslo_config import cfg
from oslo_utils import uuidutils

from cellsched.cells import discovery
from cellsched.cells import versions as cell_versions
from cellsched.claims import base as claims_base
from cellsched import clock as clock_
from cellsched.compute import instance_locks
from cellsched.conf import enabled
from cellsched.db import cell as cell_schema
from cellsched.db import session
from cellsched.embedding import parts
from cellsched.network import base as network
from cellsched import plugins
from cellsched.rpc import transport
from cellsched.scheduler.explanation import recorder
from cellsched.virt import base as virt


class Parts(parts.ConductorParts):
    """Parts of a conductor, and those that only other services need.

    :param random: the source of chance
    """

    def __init__(
        self, conf: cfg.ConfigOpts, clock: clock_.Clock | None = None,
        random: random_.Random | None = None,
        claims: claims_base.ClaimStore | None = None,
        databases: session.Databases | None = None,
        transports: transport.Transports | None = None,
        reached: Callable[[str], None] = lambda step: None,
        new_uuid: Callable[[], str] = uuidutils.generate_uuid,
    ) -> None:
        super().__init__(
            conf, clock, claims, databases, transports, reached, new_uuid)
        self.random = random or random_.Random()

    def lowest_compute(self) -> cell_versions.Lowest:
        return cell_versions.lowest(self)

    @functools.cached_property
    def cell_database(self) -> session.Database:
        """The database of this process's own cell."""
        return self.open_database('database', cell_schema.SCHEMA.name)

    @functools.cached_property
    def senders(self) -> ThreadPoolExecutor:
        """Threads that send, for who does not wait for a broker for long."""
        return ThreadPoolExecutor(self.conf.executor_thread_pool_size)

    @functools.cached_property
    def discovery(self) -> discovery.Discovery:
        return discovery.Discovery(
            self.database, self.cells, self.targets, self.clock)

    @functools.cached_property
    def decisions(self) -> recorder.Recorder:
        """Keeps what schedulers of this process decide."""
        return recorder.Recorder(
            self.database, self.clock, self.conf.scheduler.decision_retention)

    @functools.cached_property
    def driver(self) -> virt.ComputeDriver:
        """The virtualisation driver of this host."""
        return enabled.make(
            self.conf, plugins.VIRT, virt.ComputeDriver, self.conf, self.clock)

    @functools.cached_property
    def network(self) -> network.NetworkAPI:
        """The network plug-in of this process's own cell."""
        return enabled.make(
            self.conf, plugins.NETWORKS, network.NetworkAPI, self.conf)

    @functools.cached_property
    def instance_locks(self) -> instance_locks.Semaphores:
        """What keeps threads of this host's agent off the same instance."""
        return instance_locks.Semaphores(self.clock)

    def close(self) -> None:
        if 'builders' in self.__dict__:
            self.builders.shutdown()
        if 'decisions' in self.__dict__:
            # They go before the database does.
            self.decisions.close()
        if 'senders' in self.__dict__:
            self.senders.shutdown(wait=False)
        super().close()
