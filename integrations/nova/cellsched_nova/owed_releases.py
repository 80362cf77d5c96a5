# SPDX-License-Identifier: Apache-2.0
"""Claims that nobody has a use for, and that Placement was not told of."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import threading

from oslo_log import log

from cellsched.claims import base

LOG = log.getLogger(__name__)

#: Seconds between attempts to release.
_SPACING_S = 1.0

_Holding = dict[str, dict[str, int]]


class OwedReleases:
    """Releases claims as soon as Placement answers again.

    A claim of unknown outcome may be held by an instance whose request was
    refused, and one that could not be released is. An instance that somebody
    claimed for anew meanwhile, or that is on a host, keeps what it holds.

    :param store: the product's claim store
    :param reported_nodes: returns the compute nodes of those instances that
        are on one
    """

    def __init__(
        self, store: base.ClaimStore,
        reported_nodes: Callable[[Iterable[str]], Mapping[str, str]],
    ) -> None:
        self._store = store
        self._reported_nodes = reported_nodes
        # By instance, what it may hold in vain.
        self._owed: dict[str, _Holding] = {}
        self._lock = threading.Lock()
        # Of those who release, as that takes long.
        self._turn = threading.Lock()
        self._due = threading.Event()
        self._stopping = threading.Event()

    def add(self, claims: Iterable[base.Claim]) -> None:
        """Learn of claims that are to be released; never blocks for long."""
        held = _held(claims)
        LOG.warning('Instances %s: their claims are released when Placement '
                    'answers', ', '.join(held))
        with self._lock:
            self._owed |= held
        self._due.set()

    def pay(self, instances: Iterable[str] | None = None) -> None:
        """Release what is owed; may block.

        :param instances: those alone; None for all
        :raises cellsched.exception.DatabaseUnreachable: Placement does not
            answer
        """
        wanted = None if instances is None else set(instances)
        if not self._due_of(wanted):
            return
        with self._turn:
            due = self._due_of(wanted)
            if not due:
                return
            # What is not done by now is not done any more after this.
            self._store.release(())
            held = {instance: _held(claims)[instance] for instance, claims
                    in self._store.held(due).items()}
            placed = self._reported_nodes(held)
            vain = [instance for instance, holds in held.items()
                    if holds == due[instance] and instance not in placed]
            if vain:
                self._store.release(vain)
                LOG.info('Instances %s: their claims are released',
                         ', '.join(vain))
            with self._lock:
                for instance in due:
                    del self._owed[instance]

    def start(self) -> None:
        """Have what is owed released by a thread."""
        def work() -> None:
            while True:
                self._due.wait()
                if self._stopping.is_set():
                    return
                self._due.clear()
                try:
                    self.pay()
                except Exception as exc:
                    # Nobody else hears of it, and the next attempt may do.
                    LOG.warning('Claims cannot be released yet: %s', exc)
                    self._stopping.wait(_SPACING_S)
                    self._due.set()

        self._stopping.clear()
        threading.Thread(
            target=work, name='owed releases', daemon=True).start()

    def stop(self) -> None:
        """Have nothing released any more, and tell what is not."""
        self._stopping.set()
        self._due.set()
        with self._lock:
            if self._owed:
                LOG.error('Instances %s: their claims were not released, and '
                          'stay', ', '.join(self._owed))

    def _due_of(self, wanted: set[str] | None) -> dict[str, _Holding]:
        with self._lock:
            return {instance: holds for instance, holds in self._owed.items()
                    if wanted is None or instance in wanted}


def _held(claims: Iterable[base.Claim]) -> dict[str, _Holding]:
    """Return what claims hold, by instance, provider and resource class."""
    found: dict[str, _Holding] = {}
    for claim in claims:
        found.setdefault(claim.consumer, {})[claim.provider] = dict(
            claim.resources)
    return found
