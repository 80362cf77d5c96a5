# SPDX-License-Identifier: Apache-2.0
"""The contract of a source of hosts."""

import abc
from collections.abc import Iterable
from collections.abc import Sequence

from cellsched.context import RequestContext
from cellsched import exception
from cellsched.hosts import document
from cellsched.hosts.table import HostTable
from cellsched.hosts.table import PendingAllocation
from cellsched import objects


class HostSource(abc.ABC):
    """Keeps a host table as a deployment is, by what changed.

    A scheduler decides on :attr:`table`, and asks the source for nothing but
    what is here, so that whoever knows of hosts may be one: the databases of
    this project are, and in another package those of Nova with its Placement.

    All methods may be called by several threads at a time. To read may block;
    what is told, noted or looked up from memory must not. A part of the
    deployment that does not answer must keep what was last known of it, must
    hold up no other part, and must be named in :attr:`silent`.

    :ivar table: the hosts, as they were read last. It is one for the life of
        the source, and what is read is written to it in batches
    :ivar silent: cells that did not answer when they were last asked, by
        identity, sorted
    """

    table: HostTable
    silent: Sequence[str] = ()

    @abc.abstractmethod
    def follow(self, context: RequestContext) -> bool:
        """Make sure that the table is as new as a request may expect.

        Each request calls it first. It must wait for the first reading. It
        should wait for no other, where somebody calls :meth:`refresh` all the
        time; if nobody does, it must read what changed.

        :returns: whether the table was read just now
        """

    @abc.abstractmethod
    def refresh(
        self, context: RequestContext, since: float | None = None
    ) -> bool:
        """Bring the table up to date; costs what changed.

        A request for which there is no host calls it, and decides once more.

        :param since: a monotonic time; do nothing if it was read after that
        :returns: whether it was read now
        """

    @abc.abstractmethod
    def reload(self, providers: Sequence[str]) -> None:
        """Set what is taken of these providers to what the store says by now.

        A scheduler calls it when a claim of them was refused.
        """

    @abc.abstractmethod
    def confirm(
        self, allocations: Iterable[PendingAllocation], claimed: bool = True
    ) -> None:
        """Count what was chosen, from now on.

        :param allocations: as they were noted in the table
        :param claimed: whether the claim store has it; if not, it must count
            for a time
        """

    @abc.abstractmethod
    def snapshot(
        self, context: RequestContext
    ) -> document.HostDocument:
        """Return the hosts as they are now, with the names of cells."""

    def reported_nodes(self, instances: Iterable[str]) -> dict[str, str]:
        """Return the nodes of instances, of those whose place is known.

        Nothing need be known besides what the claim store says.
        """
        return {}

    def mass_outage_error(self) -> exception.HostStateUncertain | None:
        """Return why it cannot be told whether hosts are up, if so."""
        return None

    def extend(self) -> bool:
        """Have hosts read that were left out only for their number.

        :returns: whether there are any, so that it is to be decided again
        """
        return False

    def left_out(self) -> tuple[()]:
        """Return that no host was left out."""
        return ()

    # What callers tell of; a source that reads it by itself need not listen.

    def tell_aggregates(
        self, aggregates: Iterable[objects.Aggregate]
    ) -> None:
        """Hear that there are these aggregates."""

    def forget_aggregate(self, number: int) -> None:
        """Hear that there is no aggregate of this id any more."""

    def tell_instances(
        self, host: str, instances: Iterable[str], complete: bool
    ) -> None:
        """Hear which instances a host says that it has.

        :param complete: whether it has no others
        """

    def forget_instance(self, instance: str) -> None:
        """Hear that an instance has gone."""
