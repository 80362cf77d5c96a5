# SPDX-License-Identifier: Apache-2.0
"""Refusals by providers in Placement that refused a claim before."""

from collections.abc import Iterable
from collections.abc import Sequence
import contextlib

from cellsched import batching
from cellsched.claims import base
from cellsched.claims.coordination import CONTENDED_S
from cellsched.claims.placement import resource_providers
from cellsched.claims.placement.server import PlacementServer
from cellsched.claims import remote
from cellsched.clock import Clock
from cellsched import exception

#: Seconds to wait for the reads of other threads.
_TURN_S = 3.0


class _Look:
    """The providers that a thread reads, and their figures.

    :ivar figures: the inventories and the used amounts, by provider; None if
        Placement does not answer
    """

    def __init__(self, providers: Iterable[str]) -> None:
        self.providers = [*providers]
        self.figures: tuple[
            resource_providers.Inventories, dict[str, dict[str, int]]
        ] | None = None


class FullProviders:
    """The providers that refused a claim a short time ago.

    Alternatives on them are refused by what threads read together, in place of
    an attempt for each: that waits for the other writers of the provider.
    """

    def __init__(self, server: PlacementServer, clock: Clock) -> None:
        self._server = server
        self._clock = clock
        #: By provider, until when it counts as full.
        self._until: dict[str, float] = {}
        self._readers = batching.GroupCommit(
            self._read, make_lock=clock.lock, turn_s=_TURN_S)

    def note(self, provider: str) -> None:
        """Remember that a provider refused a claim."""
        now = self._clock.monotonic()
        # Threads replace the mapping, and never change it.
        self._until = {**{each: until for each, until in self._until.items()
                          if until > now}, provider: now + CONTENDED_S}

    def has(self, claims: Sequence[base.Claim]) -> bool:
        """Return whether all claims are on one provider that may be full."""
        providers = {claim.provider for claim in claims}
        return len(providers) == 1 and (
            self._until.get(providers.pop(), 0.0) > self._clock.monotonic())

    def refusals(
        self, batches: Sequence[Sequence[base.Claim]], first: int
    ) -> dict[int, exception.ClaimRefused]:
        """Return the refusals of batches on full providers, by position.

        The providers are read. If the consumers hold claims, the refusals are
        wrong. If Placement does not answer, there are none.

        :param batches: alternatives
        :param first: the position of the first batch to look at
        """
        full = [position for position in range(first, len(batches))
                if self.has(batches[position])]
        look = _Look({batches[position][0].provider: None
                      for position in full})
        with contextlib.suppress(exception.ServiceBusy):
            self._readers.do(look)
        if look.figures is None:
            return {}
        found = {position: resource_providers.judge(
            [batches[position]], *look.figures)[0] for position in full}
        room = {batches[position][0].provider
                for position, refusal in found.items() if refusal is None}
        self._until = {each: until for each, until in self._until.items()
                       if each not in room}
        return {position: refusal for position, refusal in found.items()
                if refusal is not None}

    def _read(self, looks: Sequence[_Look]) -> None:
        """Read the providers of several looks."""
        try:
            figures = resource_providers.figures(self._server, dict.fromkeys(
                each for look in looks for each in look.providers))
        except (remote.NotSent, remote.OutcomeUnknown):
            # The attempts to claim report it.
            return
        for look in looks:
            look.figures = figures
