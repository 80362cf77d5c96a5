# SPDX-License-Identifier: Apache-2.0
"""The contract of a scheduler driver."""

import abc
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from random import Random
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
from cellsched.network import base as network_base
from cellsched import objects
from cellsched.scheduler.explanation import recorder


class SchedulerParts(Protocol):
    """Parts of a process that a scheduler driver is made of.

    Each is made when it is first asked for, and closed by whoever made it.
    """

    @property
    def clock(self) -> Clock:
        """The process's clock."""

    @property
    def random(self) -> Random:
        """The source of chance."""

    @property
    def database(self) -> session.Database:
        """The API database."""

    @property
    def cells(self) -> registry.CellRegistry:
        """The cells that there are."""

    @property
    def gatherer(self) -> gather.Gatherer:
        """Asks all cells at once."""

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
    def decisions(self) -> recorder.Recorder:
        """Keeps the decisions that are made."""


class SchedulerDriver(abc.ABC):
    """Chooses hosts and claims them.

    Calls may come from several threads at a time.
    """

    #: Where the options of :meth:`opts` are registered.
    group: ClassVar[str] = 'scheduler'

    #: Scheduler hints that requests may have; None for any. Users write
    #: hints, so one that nothing reads is a mistake of theirs.
    hints: frozenset[str] | None = None

    #: Demands that this driver meets, named as in
    #: :attr:`cellsched.filters.base.Filter.reads`. A request that asks for
    #: anything else is refused before it gets here. None where the driver
    #: looks at that itself, as its stages say it.
    reads: frozenset[str] | None = frozenset()

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        """Return the options that this driver reads, none by default."""
        return []

    def __init__(
        self, conf: cfg.ConfigOpts, parts: SchedulerParts
    ) -> None:
        self.conf = conf
        self.parts = parts

    def periodic(self) -> Sequence[tuple[Callable[[], None], float]]:
        """Return what is to be done all the time, none by default.

        Pairs of a function and the seconds between its calls.
        """
        return []

    def update_aggregates(
        self, aggregates: Iterable[objects.Aggregate]
    ) -> None:
        """Hear that there are these aggregates; may be of no interest.

        This and what follows is told to every scheduler, by services that are
        not of this project.
        """

    def delete_aggregate(self, aggregate: int) -> None:
        """Hear that there is no aggregate of this id any more."""

    def update_instances(
        self, host: str, instances: Iterable[str], complete: bool
    ) -> None:
        """Hear which instances a host has.

        :param instances: uuids
        :param complete: whether it has no others
        """

    def delete_instance(self, host: str, instance: str) -> None:
        """Hear that a host does not have an instance any more.

        What the instance holds there is to be released: its host may know of
        no claims.
        """

    @abc.abstractmethod
    def select_destinations(
        self, context: RequestContext, request: objects.RequestSpec,
        instance_uuids: Sequence[str], alternates: int, claim: bool = True,
    ) -> list[list[objects.Selection]]:
        """Choose and claim a host for each instance, all of them or none.

        Must return one list for each instance, in order: the host that was
        claimed for it, then up to ``alternates`` others of the same cell that
        were not claimed and were chosen for no instance of the request.

        Asked again for instances whose claims stand, it must answer with the
        same hosts and take nothing more.

        :param claim: False for callers that know of no claims: nothing is
            claimed, and what is chosen should count for a while, until the
            hosts report it
        :raises cellsched.exception.NoValidHost: with the reasons; nothing
            stays claimed. ``placed`` says for how many there was room.
        :raises cellsched.exception.HostStateUncertain: another scheduler may
            decide otherwise; nothing stays claimed
        """
