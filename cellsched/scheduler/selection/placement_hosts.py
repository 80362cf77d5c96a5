# SPDX-License-Identifier: Apache-2.0
"""The hosts that are chosen among, as the placer needs them."""

from collections.abc import Iterable
from collections.abc import Sequence
from typing import Protocol

from cellsched.context import RequestContext
from cellsched import exception
from cellsched.hosts.table import HostTable
from cellsched.hosts.table import PendingAllocation
from cellsched.scheduler.decision import candidates


class PlacementHosts(Protocol):
    """A table of hosts, and what else there is to know of them.

    A :class:`cellsched.host_manager.source.HostSource` is such, and so are the
    hosts that are read for one request.
    """

    @property
    def table(self) -> HostTable:
        """The hosts, as they were read last."""

    @property
    def silent(self) -> Sequence[str]:
        """Cells that did not answer when they were last asked."""

    def follow(self, context: RequestContext) -> bool:
        """Make sure that the table is as new as a request may expect.

        :returns: whether the table was read just now
        """

    def refresh(
        self, context: RequestContext, since: float | None = None
    ) -> bool:
        """Bring the table up to date.

        :param since: a monotonic time; unless it was read after that
        :returns: whether it was read now
        """

    def extend(self) -> bool:
        """Have hosts read that were left out only for their number.

        :returns: whether there are any, so that it is to be decided again
        """

    def left_out(self) -> Sequence[candidates.Rejection]:
        """Return why hosts are not in the table that the deployment has."""

    def reload(self, providers: Sequence[str]) -> None:
        """Set what is taken of these providers to what the store says."""

    def confirm(
        self, allocations: Iterable[PendingAllocation], claimed: bool = True
    ) -> None:
        """Count what was chosen, from now on.

        :param claimed: whether the claim store has it; if not, it counts for
            a time
        """

    def reported_nodes(self, instances: Iterable[str]) -> dict[str, str]:
        """Return the nodes of instances, of those that a host told of."""

    def mass_outage_error(self) -> exception.HostStateUncertain | None:
        """Return why it cannot be told whether hosts are up, if so."""
