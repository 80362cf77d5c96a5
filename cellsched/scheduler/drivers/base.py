# SPDX-License-Identifier: Apache-2.0
"""The contract of a scheduler driver."""

import abc
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from random import Random
from typing import Any
from typing import ClassVar
from typing import Protocol

from oslo_config import cfg

from cellsched.cells.discovery import Discovery
from cellsched.cells import gather
from cellsched.cells import registry
from cellsched.claims import base as claims_base
from cellsched.clock import Clock
from cellsched.context import RequestContext
from cellsched.db import session
from cellsched import exception
from cellsched.network import base as network_base
from cellsched import objects
from cellsched.observability.metrics import Metrics
from cellsched.scheduler.explanation import decision_record
from cellsched.scheduler import recording


class SchedulerParts(Protocol):
    """The parts of a process that a scheduler driver uses.

    Each part is created on first use, and closed by the process.
    """

    @property
    def clock(self) -> Clock:
        """The clock of the process."""

    @property
    def random(self) -> Random:
        """The random number generator."""

    @property
    def database(self) -> session.Database:
        """The API database."""

    @property
    def cells(self) -> registry.CellRegistry:
        """The cells of the deployment."""

    @property
    def gatherer(self) -> gather.Gatherer:
        """Queries all cells in parallel."""

    @property
    def discovery(self) -> Discovery:
        """Maps new hosts to their cells."""

    @property
    def claims(self) -> claims_base.ClaimStore:
        """The claim store."""

    @property
    def network(self) -> network_base.NetworkAPI:
        """The network plug-in."""

    @property
    def decisions(self) -> decision_record.Recorder:
        """Stores the decisions."""

    @property
    def recorder(self) -> recording.Recorder | None:
        """Records decisions to files; None if that is off."""

    @property
    def metrics(self) -> Metrics:
        """Records metrics."""


class SchedulerDriver(abc.ABC):
    """Selects hosts and claims them.

    Several threads may call a driver at the same time.
    """

    #: The configuration group of the options of :meth:`opts`.
    group: ClassVar[str] = 'scheduler'

    #: Scheduler hints that requests may have; None for any. Users write hints,
    #: so an unknown one is a user's error.
    hints: frozenset[str] | None = None

    #: Requirements that this driver supports, named as in
    #: :attr:`cellsched.filters.base.Filter.reads`. A request with any other
    #: requirement is refused before it reaches the driver. None if the driver
    #: checks this itself, from what its stages declare.
    reads: frozenset[str] | None = frozenset()

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        """Return the options that this driver reads, none by default."""
        return []

    def __init__(self, conf: cfg.ConfigOpts, parts: SchedulerParts) -> None:
        self.conf = conf
        self.parts = parts

    def periodic(self) -> Sequence[tuple[Callable[[], None], float]]:
        """Return the periodic tasks of this driver, none by default.

        Each is a pair of a function and the seconds between its calls.
        """
        return []

    def state(self) -> Mapping[str, Any]:
        """Return what a report on the process says about this driver.

        A mapping of titles to values that JSON has; empty by default. Called
        in a thread of its own, and must not block.
        """
        return {}

    def unready(self) -> str:
        """Return why this driver takes no requests; empty if it does.

        Must not block.
        """
        return ''

    def update_aggregates(
        self, aggregates: Iterable[objects.Aggregate]
    ) -> None:
        """Apply updates of aggregates; does nothing by default.

        Every scheduler receives this and the following calls, from services
        outside this project.
        """

    def delete_aggregate(self, aggregate: int) -> None:
        """Remove an aggregate, by id."""

    def update_instances(
        self, host: str, instances: Iterable[str], complete: bool
    ) -> None:
        """Record the instances that a host reports.

        :param instances: uuids
        :param complete: whether the host has no other instances
        """

    def delete_instance(self, host: str, instance: str) -> None:
        """Record that an instance is no longer on a host.

        The driver must release the instance's claim there, because the host
        may not manage claims.
        """

    @abc.abstractmethod
    def select_destinations(
        self, context: RequestContext, request: objects.RequestSpec,
        instance_uuids: Sequence[str], alternates: int, claim: bool = True,
    ) -> list[list[objects.Selection]]:
        """Select and claim a host for each instance, all of them or none.

        Return one list for each instance, in order: the claimed host, then up
        to ``alternates`` unclaimed hosts of the same cell that were not
        selected for any instance of the request.

        The call is idempotent: for instances whose claims exist, it must
        return the same hosts and claim nothing more.

        :param claim: False for callers that do not manage claims: nothing is
            claimed, and the selection should be counted until the hosts report
            it
        :raises cellsched.exception.NoValidHost: with the reasons; no claim
            remains. ``placed`` is the number of instances that fit.
        :raises cellsched.exception.HostStateUncertain: another scheduler may
            decide otherwise; no claim remains
        """

    def plan(
        self, context: RequestContext, request: objects.RequestSpec,
        instance_uuids: Sequence[str], alternates: int,
    ) -> tuple[list[list[objects.Selection]], decision_record.Decision]:
        """Decide as :meth:`select_destinations` does, and claim nothing.

        This is for ``cellsched plan``. A driver without it refuses the
        command.

        :returns: the hosts and the record of the decision; if the instances
            do not all fit, no hosts, and the record has the reason
        :raises cellsched.exception.ConfigurationInvalid: the driver cannot
            plan
        """
        raise exception.ConfigurationInvalid(
            field='[scheduler] driver',
            problem=f'the driver {type(self).__name__} cannot plan',
            expected='a driver with the method plan')
