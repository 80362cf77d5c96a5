# SPDX-License-Identifier: Apache-2.0
"""The contract of a source of hosts."""

import abc
from collections.abc import Iterable
from collections.abc import Sequence
import math
from typing import Any

from cellsched.context import RequestContext
from cellsched import exception
from cellsched.hosts import document
from cellsched.hosts.table import HostTable
from cellsched.hosts.table import PendingAllocation
from cellsched import objects


class HostSource(abc.ABC):
    """Keeps a host table consistent with a deployment.

    A scheduler decides on :attr:`table` and calls only these methods. Any
    system that knows hosts can be a source: this project reads its own
    databases, for all requests or for one, and another package reads those of
    Nova and Placement.

    Methods are called by several threads at the same time. Reading may block;
    updates, confirmations and lookups in memory must not. If a part of the
    deployment does not answer, the source must keep its last known state, must
    not delay other parts, and must name the part in :attr:`silent`.

    :ivar table: the hosts as last read. The object is the same for the life of
        the source; changes are written to it in batches
    :ivar silent: cells that did not answer the last query, by identity, sorted
    """

    table: HostTable
    silent: Sequence[str] = ()

    @abc.abstractmethod
    def follow(self, context: RequestContext) -> bool:
        """Make sure that the table is recent enough for a request.

        Each request calls this first. It must wait for the first read, and, up
        to a deadline, for what operators have set before the request. It
        should wait for no other read if a background thread calls
        :meth:`refresh`; if none does, it must read the changes.

        :returns: whether the table was read by this call
        """

    @abc.abstractmethod
    def refresh(
        self, context: RequestContext, since: float | None = None
    ) -> bool:
        """Refresh the table; the cost is proportional to the changes.

        A request that finds no host calls this and decides again.

        :param since: a monotonic time; skip the refresh if the table was read
            after it
        :returns: whether the table was read by this call
        """

    @abc.abstractmethod
    def reload(self, providers: Sequence[str]) -> None:
        """Set the usage of these providers that the claim store has now.

        A scheduler calls this after a claim was refused.
        """

    @abc.abstractmethod
    def confirm(
        self, allocations: Iterable[PendingAllocation], claimed: bool = True
    ) -> None:
        """Count allocations from now on.

        :param allocations: as reserved in the table
        :param claimed: whether they are in the claim store; if not, they must
            expire
        """

    def read_at(self) -> float | None:
        """Return when the table was last read, in seconds since the epoch.

        None if it was not read. By default the source does not know, and
        answers with infinity.
        """
        return math.inf

    @abc.abstractmethod
    def snapshot(self, context: RequestContext) -> document.HostDocument:
        """Return the current hosts, with the names of cells."""

    def reported_nodes(self, instances: Iterable[str]) -> dict[str, str]:
        """Return the nodes of instances whose location is known.

        The source may know nothing beyond what the claim store has.
        """
        return {}

    def mass_outage_error(self) -> exception.HostStateUncertain | None:
        """Return an error if the state of hosts is uncertain, else None."""
        return None

    def extend(self) -> bool:
        """Read the hosts that were left out because of their number.

        :returns: whether there are any, so that the decision is made again
        """
        return False

    def left_out(self) -> Sequence[Any]:
        """Return the reasons why known hosts are not in the table.

        Each is a :class:`cellsched.scheduler.decision.pipeline.Rejection`.
        """
        return ()

    # Updates by callers; optional if the source reads the same facts.

    def tell_aggregates(self, aggregates: Iterable[objects.Aggregate]) -> None:
        """Apply updates of aggregates."""

    def forget_aggregate(self, number: int) -> None:
        """Remove an aggregate, by id."""

    def tell_instances(
        self, host: str, instances: Iterable[str], complete: bool
    ) -> None:
        """Record the instances that a host reports.

        :param complete: whether the host has no other instances
        """

    def forget_instance(self, instance: str) -> None:
        """Remove an instance."""
