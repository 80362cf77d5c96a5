# SPDX-License-Identifier: Apache-2.0
"""Components of a compute agent, and of every other service."""

from collections.abc import Callable
import functools
from random import Random
import threading
from typing import Any
from typing import TypeVar

from oslo_config import cfg
from oslo_utils import uuidutils

from cellsched import claims as claim_stores
from cellsched.claims import base as claims_base
from cellsched.claims import coordination
from cellsched.claims.coordination import ContentionLock
from cellsched.claims import listing
from cellsched.clock import Clock
from cellsched.conf import enabled
from cellsched.db import cell as cell_schema
from cellsched.db.cell import services
from cellsched.db import session
from cellsched import exception
from cellsched.network.base import NetworkAPI
from cellsched.observability.metrics import Metrics
from cellsched.observability.metrics import Reading
from cellsched.observability.monitoring import Check
from cellsched.observability import tracing
from cellsched import plugins
from cellsched.rpc.compute import ComputeAPIs
from cellsched.rpc.compute import ComputeCap
from cellsched.rpc.compute import Lowest
from cellsched.rpc.transport import Transports
from cellsched.virt.base import ComputeDriver

_Made = TypeVar('_Made')
_Components = TypeVar('_Components', bound='AgentComponents')


def run_within(function: Callable[[], None], timeout_s: float) -> None:
    """Run a function in a thread, and wait for it for a limited time."""
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    thread.join(timeout_s)


class AgentComponents:
    """Components of a compute agent. It works in one cell.

    Each component is made when it is first used. Make this object after the
    process has forked. An argument replaces a component, and is closed by the
    caller. Two objects in one process share nothing else.

    :param clock: the clock, by default the machine's
    :param claims: the claim store, by default the configured one
    :param databases: opens databases
    :param transports: opens transports
    :param reached: called with the name of each completed step of a task
    :param new_uuid: returns a new uuid
    :param messages: whether the process sends or receives messages; if so,
        their options are checked at once
    :raises cellsched.exception.ConfigurationInvalid: an option of messages
        is invalid
    """

    def __init__(
        self, conf: cfg.ConfigOpts, clock: Clock | None = None,
        claims: claims_base.ClaimStore | None = None,
        databases: session.Databases | None = None,
        transports: Transports | None = None,
        reached: Callable[[str], None] = lambda step: None,
        new_uuid: Callable[[], str] = uuidutils.generate_uuid,
        messages: bool = True,
    ) -> None:
        self.conf = conf
        self.clock = clock or Clock()
        self.databases = databases or session.Databases(self.clock)
        self.reached = reached
        self.new_uuid = new_uuid
        #: Records metrics; nothing by default.
        self.metrics = Metrics()
        self._end_traces: Callable[[], None] = lambda: None
        self._messages = messages
        self._own_claims: claims_base.ClaimStore | None = None
        if claims is not None:
            self.claims = claims
        if transports is not None:
            self.transports = transports
        if messages:
            self.check_messages()

    def check_messages(self) -> None:
        """Check the options of messages; connects to nothing.

        :raises cellsched.exception.ConfigurationInvalid: one is invalid
        """
        self.compute_cap, self.transports  # noqa: B018

    def trace(self, service: str) -> None:
        """Record spans of builds until :meth:`close`, if it is configured.

        :param service: the name of the service, such as ``scheduler``
        :raises cellsched.exception.ConfigurationInvalid: the extra is missing
        """
        self._end_traces = tracing.start(self.conf, service, run_within)

    def lowest_compute(self) -> Lowest:
        """Return the lowest version of the compute services of the cell."""
        with self.cell_database.reader() as connection:
            return Lowest(
                services.lowest_version(connection, services.COMPUTE))

    @functools.cached_property
    def random(self) -> Random:
        """The random source."""
        return Random()

    @functools.cached_property
    def locks(self) -> ContentionLock:
        """The lock of contended providers between processes."""
        return ContentionLock(
            self.clock, coordination.lock_of(self.conf, self.databases),
            lambda function: threading.Thread(
                target=function, daemon=True).start())

    @functools.cached_property
    def transports(self) -> Transports:
        """Opens transports, each of them once."""
        return Transports(self.conf, at_once=self._messages)

    @functools.cached_property
    def compute_cap(self) -> ComputeCap:
        """The newest message version that compute agents understand."""
        return ComputeCap(
            self.conf.upgrade_levels.compute, self.lowest_compute,
            make_lock=self.clock.lock)

    @functools.cached_property
    def compute(self) -> ComputeAPIs:
        """RPC clients of compute agents, by transport."""
        return ComputeAPIs(self.conf.conductor.send_retries, self.compute_cap)

    @functools.cached_property
    def claims(self) -> claims_base.ClaimStore:
        """The claim store."""
        self._own_claims = claim_stores.load(self.conf, self)
        return self._own_claims

    @functools.cached_property
    def network(self) -> NetworkAPI:
        """The network driver of the cell."""
        return enabled.make(self.conf, plugins.NETWORKS, NetworkAPI, self.conf)

    @functools.cached_property
    def driver(self) -> ComputeDriver:
        """The virtualization driver of the host."""
        return enabled.make(
            self.conf, plugins.VIRT, ComputeDriver, self.conf, self.clock)

    @functools.cached_property
    def cell_database(self) -> session.Database:
        """The database of the cell, at ``[database] connection``."""
        return self.open_database('database', cell_schema.SCHEMA.name)

    def health_checks(self, timeout_s: float) -> dict[str, Check]:
        """Return a check for each database, and for the claim store.

        :param timeout_s: the seconds that a check may take
        """
        checks: dict[str, Check] = {}
        if self.conf.database.connection:
            checks['cell database'] = lambda: ask(self.cell_database)
        checks['claim store'] = lambda: listing.probe(
            self.claims, self.conf.host)
        return checks

    def queues(self) -> list[Reading]:
        """Return the gauges of the queues of these components."""
        return []

    def close(self) -> None:
        """Close the components made here; waits for running work."""
        if 'transports' in self.__dict__:
            self.transports.close()
        if self._own_claims is not None:
            self._own_claims.close()
        self.databases.close()
        end, self._end_traces = self._end_traces, lambda: None
        end()

    def open_database(self, group: str, schema: str) -> session.Database:
        """Return the database of an option group.

        :raises cellsched.exception.ConfigurationInvalid: the group has no URL
        """
        url = self.conf[group].connection
        if not url:
            raise exception.ConfigurationInvalid(
                field=f'[{group}] connection',
                problem='it is not set',
                expected=f'the SQLAlchemy URL of the {schema} database')
        return self.databases.get(
            url, schema, session.engine_options(self.conf, group))


def ask(database: session.Database) -> str:
    """Check that a database answers."""
    database.glance('SELECT 1')
    return ''


def factory(
    components_of: Callable[[cfg.ConfigOpts], _Components]
) -> Callable[[Callable[[Any, _Components], _Made]], Callable[..., _Made]]:
    """Return a decorator that makes the second argument optional.

    :param components_of: makes the components of a call without them; they
        are closed if the call fails. Such a call may give the metrics
    """
    def decorate(
        make: Callable[[Any, _Components], _Made]
    ) -> Callable[..., _Made]:
        @functools.wraps(make)
        def made(
            conf: cfg.ConfigOpts, parts: _Components | None = None,
            metrics: Metrics | None = None,
        ) -> _Made:
            if parts is not None:
                return make(conf, parts)
            parts = components_of(conf)
            parts.metrics = metrics or parts.metrics
            try:
                return make(conf, parts)
            except BaseException:
                parts.close()
                raise
        return made
    return decorate
