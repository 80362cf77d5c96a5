# SPDX-License-Identifier: Apache-2.0
"""One attempt to place the instances of a request."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
from typing import Any

from cellsched.clock import Clock
from cellsched.hosts.table import HostTable
from cellsched.hosts.table import PendingAllocation
from cellsched.scheduler.selection.selector import Selector

#: Seconds to wait for pending claims of other requests.
PENDING_S = 10.0


@dataclasses.dataclass(eq=False, kw_only=True)
class Attempt:
    """The hosts that are selected for a request, and their reservation.

    :ivar places: the host and alternates of each instance; empty if an
        instance has no host
    :ivar allocations: the reservations in the table
    :ivar doubtful: the allocations of other requests that the selection
        counted although they may be rolled back; None if it did not ask
    :ivar selector: the selection, while the claim store chooses one of its
        alternatives
    :ivar error: the error of the selection, or of the claims
    """

    places: list[list[Any]] = dataclasses.field(default_factory=list)
    allocations: Sequence[PendingAllocation] = ()
    doubtful: list[PendingAllocation] | None = None
    selector: Selector | None = None
    error: BaseException | None = None

    def choose_other(
        self, table: HostTable, selector: Selector, number: int,
        alternates: int, full: Iterable[str] = (),
    ) -> None:
        """Replace a single selected host by an alternative; reserve that one.

        :param number: the position of the alternative
        :param alternates: the maximum number of alternates
        :param full: names of other hosts that are no alternates
        """
        selector.choose_other(number, full)
        self.places = selector.selections(alternates)
        table.rollback(self.allocations)
        self.allocations = table.reserve(selector.hosts)

    def undo(self, table: HostTable) -> None:
        """Roll back the reservation; the hosts are not claimed."""
        allocations, self.allocations = self.allocations, ()
        table.rollback(allocations)
        self.end(table)

    def end(self, table: HostTable) -> None:
        """Make the columns of the view available to other requests."""
        selector, self.selector = self.selector, None
        if selector is not None:
            table.reuse(selector.hosts)

    def await_claims(
        self, table: HostTable, clock: Clock, timeout_s: float = PENDING_S
    ) -> None:
        """Wait until each doubtful allocation is confirmed or rolled back.

        :param timeout_s: seconds to wait, at most :data:`PENDING_S`
        """
        events = []

        def watcher() -> Callable[[], None]:
            events.append(clock.event())
            return events[-1].set

        table.watch(self.doubtful or (), watcher)
        deadline = clock.monotonic() + min(timeout_s, PENDING_S)
        for event in events:
            event.wait(max(deadline - clock.monotonic(), 0))
