# SPDX-License-Identifier: Apache-2.0
"""Releases of claims that wait until Placement answers again."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import threading

from oslo_log import log

from cellsched.claims import base
from cellsched.claims.placement import messages
from cellsched.claims import remote
from cellsched_nova.allocations import Addition
from cellsched_nova.allocations import Allocations
from cellsched_nova import cells
from cellsched_nova import report_client

LOG = log.getLogger(__name__)

#: Seconds between attempts to release.
_SPACING_S = 1.0

#: Amounts by provider and resource class.
_Amounts = dict[str, dict[str, int]]

#: All allocations of a new consumer, or an additional claim.
_Deferred = _Amounts | Addition

#: Returns the places of instances, and whether all cells answered.
Places = Callable[[Iterable[str]], tuple[Mapping[str, cells.Place], bool]]

_NOWHERE = cells.Place(None, None, False)


class DeferredReleases:
    """Releases claims as soon as Placement answers again.

    A refused request may have left a claim with an unknown outcome, or a claim
    without a successful release. A claim is kept if the instance has a newer
    claim, or is on that host.

    The allocations of an instance are read first, then its place. The release
    uses the consumer generation of the first read. A newer claim is made while
    the instance has a task state, and changes the generation, so it is never
    released, even for equal amounts on the same host.

    :param store: the product's claim store
    :param allocations: allocations in the same Placement
    """

    def __init__(
        self, store: base.ClaimStore, allocations: Allocations,
        places: Places,
    ) -> None:
        self._store = store
        self._allocations = allocations
        self._places = places
        # By instance, the claims to release.
        self._deferred: dict[str, _Deferred] = {}
        self._lock = threading.Lock()
        # Held during a release, which may take long.
        self._turn = threading.Lock()
        self._due = threading.Event()
        self._stopping = threading.Event()

    def add(
        self, claims: Iterable[base.Claim],
        added: Iterable[Addition] = (),
    ) -> None:
        """Add claims to release; never blocks for long.

        :param claims: claims of instances without other allocations
        :param added: claims of instances with other allocations
        """
        deferred: dict[str, _Deferred] = {**_amounts(claims)}
        deferred |= {addition.instance: addition for addition in added}
        LOG.warning('Claims of instances %s are released when Placement '
                    'answers', ', '.join(deferred))
        with self._lock:
            self._deferred |= deferred
        self._due.set()

    def release_due(self, instances: Iterable[str] | None = None) -> bool:
        """Release the deferred claims; may block.

        :param instances: release for these instances only, before the caller
            claims for them exclusively; None for all
        :returns: False if some claims must be tried again
        :raises cellsched.exception.DatabaseUnreachable: Placement does not
            answer
        """
        only = None if instances is None else set(instances)
        if not self._due_of(only):
            return True
        with self._turn:
            due = self._due_of(only)
            if not due:
                return True
            # Afterwards, earlier writes can no longer take effect.
            self._store.release(())
            try:
                return self._release_all(due, only is None)
            except (remote.NotSent, remote.OutcomeUnknown) as exc:
                report_client.raise_unreachable(str(exc))

    def _release_all(
        self, due: Mapping[str, _Deferred], is_careful: bool
    ) -> bool:
        """Release deferred claims by the consumer generation.

        :param is_careful: whether other processes may claim for the instances
        """
        held = self._allocations.read(due)
        places, is_complete = self._places(due)
        remaining = []
        for instance, deferred in due.items():
            place = places.get(instance)
            if is_careful and (not is_complete if place is None
                               else place.is_changing):
                remaining.append(instance)
                continue
            if not self._release_one(instance, deferred, held.get(instance),
                                     place or _NOWHERE):
                remaining.append(instance)
                continue
            with self._lock:
                if self._deferred.get(instance) is deferred:
                    del self._deferred[instance]
        return not remaining

    def _release_one(
        self, instance: str, deferred: _Deferred,
        held: messages.Holding | None, place: cells.Place,
    ) -> bool:
        """Release the claim of an instance; return whether it is done."""
        is_addition = isinstance(deferred, Addition)
        if place.host is not None and (place.node is None or place.node in (
                deferred.resources if is_addition else deferred)):
            return True
        if is_addition:
            is_done = self._allocations.remove(deferred, held)
        elif held is None or held.allocations != deferred:
            return True
        else:
            is_done = self._allocations.release(instance, held)
        if is_done:
            LOG.info('Claim of instance %s is released', instance)
        return is_done

    def start(self) -> None:
        """Start the thread that releases the deferred claims."""
        def work() -> None:
            while True:
                self._due.wait()
                if self._stopping.is_set():
                    return
                self._due.clear()
                try:
                    is_done = self.release_due()
                except Exception as exc:
                    # The thread goes on; the next attempt may work.
                    LOG.warning('Claims cannot be released yet: %s', exc)
                    is_done = False
                if not is_done:
                    self._stopping.wait(_SPACING_S)
                    self._due.set()

        self._stopping.clear()
        threading.Thread(
            target=work, name='deferred releases', daemon=True).start()

    def stop(self) -> None:
        """Stop the thread, and log the claims without a release."""
        self._stopping.set()
        self._due.set()
        with self._lock:
            if self._deferred:
                LOG.error('Claims of instances %s were not released and '
                          'remain', ', '.join(self._deferred))

    def _due_of(self, only: set[str] | None) -> dict[str, _Deferred]:
        with self._lock:
            return {instance: claims
                    for instance, claims in self._deferred.items()
                    if only is None or instance in only}


def _amounts(claims: Iterable[base.Claim]) -> dict[str, _Amounts]:
    """Return the amounts by instance, provider and resource class."""
    found: dict[str, _Amounts] = {}
    for claim in claims:
        found.setdefault(claim.consumer, {})[claim.provider] = dict(
            claim.resources)
    return found
