# SPDX-License-Identifier: Apache-2.0
"""Claims that nobody has a use for, and that Placement was not told of."""

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
_Holding = dict[str, dict[str, int]]

#: All that an instance held since it held nothing, or what it has beside.
_Owed = _Holding | Addition

#: Returns where instances are, and whether all cells have answered.
Places = Callable[[Iterable[str]], tuple[Mapping[str, cells.Place], bool]]

_NOWHERE = cells.Place(None, None, False)


class DeferredReleases:
    """Releases claims as soon as Placement answers again.

    A claim of unknown outcome may be held by an instance whose request was
    refused, and one that could not be released is. An instance that somebody
    claimed for anew meanwhile, or that is on that host, keeps what it holds.

    What an instance holds is read first, then where it is, and then it is
    released by the generation that it had at first. Who claims for it anew
    does so while Nova does something to it, and with another generation. So
    that is not released, also where it is as much on the same host.

    :param store: the product's claim store
    :param holdings: of the same Placement
    """

    def __init__(
        self, store: base.ClaimStore, holdings: Allocations,
        places: Places,
    ) -> None:
        self._store = store
        self._holdings = holdings
        self._places = places
        # By instance, what it may hold in vain.
        self._owed: dict[str, _Owed] = {}
        self._lock = threading.Lock()
        # Of those who release, as that takes long.
        self._turn = threading.Lock()
        self._due = threading.Event()
        self._stopping = threading.Event()

    def add(
        self, claims: Iterable[base.Claim],
        added: Iterable[Addition] = (),
    ) -> None:
        """Learn of claims that are to be released; never blocks for long.

        :param claims: of instances that hold nothing else
        :param added: of instances that do
        """
        owed: dict[str, _Owed] = {**_held(claims)}
        owed |= {addition.instance: addition for addition in added}
        LOG.warning('Instances %s: their claims are released when Placement '
                    'answers', ', '.join(owed))
        with self._lock:
            self._owed |= owed
        self._due.set()

    def pay(self, instances: Iterable[str] | None = None) -> bool:
        """Release what is owed; may block.

        :param instances: those alone, for who is to claim for them, and does
            it as nobody else does; None for all
        :returns: False where some are to be looked at again
        :raises cellsched.exception.DatabaseUnreachable: Placement does not
            answer
        """
        wanted = None if instances is None else set(instances)
        if not self._due_of(wanted):
            return True
        with self._turn:
            due = self._due_of(wanted)
            if not due:
                return True
            # What is not done by now is not done any more after this.
            self._store.release(())
            try:
                return self._pay(due, wanted is None)
            except (remote.NotSent, remote.OutcomeUnknown) as exc:
                report_client.give_up(str(exc))

    def _pay(self, due: Mapping[str, _Owed], is_careful: bool) -> bool:
        """Release what is owed by the generation that it has.

        :param is_careful: whether others may claim for the instances
        """
        held = self._holdings.read(due)
        places, is_complete = self._places(due)
        left = []
        for instance, owed in due.items():
            place = places.get(instance)
            if is_careful and (not is_complete if place is None
                               else place.is_changing):
                left.append(instance)
                continue
            if not self._release(instance, owed, held.get(instance),
                                 place or _NOWHERE):
                left.append(instance)
                continue
            with self._lock:
                if self._owed.get(instance) is owed:
                    del self._owed[instance]
        return not left

    def _release(
        self, instance: str, owed: _Owed, held: messages.Holding | None,
        place: cells.Place,
    ) -> bool:
        """Return whether an instance holds nothing in vain any more."""
        is_addition = isinstance(owed, Addition)
        if place.host is not None and (place.node is None or place.node in (
                owed.resources if is_addition else owed)):
            return True
        if is_addition:
            is_done = self._holdings.take_off(owed, held)
        elif held is None or held.allocations != owed:
            return True
        else:
            is_done = self._holdings.release(instance, held)
        if is_done:
            LOG.info('Instances %s: their claims are released', instance)
        return is_done

    def start(self) -> None:
        """Have what is owed released by a thread."""
        def work() -> None:
            while True:
                self._due.wait()
                if self._stopping.is_set():
                    return
                self._due.clear()
                try:
                    is_done = self.pay()
                except Exception as exc:
                    # Nobody else hears of it, and the next attempt may do.
                    LOG.warning('Claims cannot be released yet: %s', exc)
                    is_done = False
                if not is_done:
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

    def _due_of(self, wanted: set[str] | None) -> dict[str, _Owed]:
        with self._lock:
            return {instance: owed for instance, owed in self._owed.items()
                    if wanted is None or instance in wanted}


def _held(claims: Iterable[base.Claim]) -> dict[str, _Holding]:
    """Return what claims hold, by instance, provider and resource class."""
    found: dict[str, _Holding] = {}
    for claim in claims:
        found.setdefault(claim.consumer, {})[claim.provider] = dict(
            claim.resources)
    return found
