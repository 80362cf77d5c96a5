# SPDX-License-Identifier: Apache-2.0
"""The hosts to select from, as the placer uses them."""

from collections.abc import Iterable
from collections.abc import Sequence
from typing import Protocol

from cellsched.context import RequestContext
from cellsched import exception
from cellsched.hosts.table import HostTable
from cellsched.hosts.table import PendingAllocation
from cellsched.scheduler.decision import pipeline


class PlacementHosts(Protocol):
    """A host table and its source.

    Implemented by :class:`cellsched.host_manager.source.HostSource`, and by
    the hosts that are read for one request.
    """

    @property
    def table(self) -> HostTable:
        """The hosts as last read."""

    @property
    def silent(self) -> Sequence[str]:
        """Cells that did not answer the last query."""

    def follow(self, context: RequestContext) -> bool:
        """Make sure that the table is recent enough for a request.

        :returns: whether the table was read by this call
        """

    def refresh(
        self, context: RequestContext, since: float | None = None
    ) -> bool:
        """Refresh the table.

        :param since: a monotonic time; skip the refresh if the table was read
            after it
        :returns: whether the table was read by this call
        """

    def extend(self) -> bool:
        """Read the hosts that were left out because of their number.

        :returns: whether there are any, so that the decision is made again
        """

    def left_out(self) -> Sequence[pipeline.Rejection]:
        """Return the reasons why known hosts are not in the table."""

    def reload(self, providers: Sequence[str]) -> None:
        """Set the usage of these providers that the claim store has now."""

    def confirm(
        self, allocations: Iterable[PendingAllocation], claimed: bool = True
    ) -> None:
        """Count allocations from now on.

        :param claimed: whether they are in the claim store; if not, they
            expire
        """

    def reported_nodes(self, instances: Iterable[str]) -> dict[str, str]:
        """Return the nodes of instances that a host has reported."""

    def mass_outage_error(self) -> exception.HostStateUncertain | None:
        """Return an error if the state of hosts is uncertain, else None."""
