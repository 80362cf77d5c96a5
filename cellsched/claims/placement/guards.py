# SPDX-License-Identifier: Apache-2.0
"""Guards, without which Placement may give more than there is.

Placement repeats a write of allocations itself when it lost a provider to
another request, in the same transaction, and takes the rows of its first
attempt for what the consumer held before. So the second one passes whatever is
left: those who race for the last room get it all.

What prevents it is a write that cannot be repeated. A guard is a consumer that
holds one unit of a provider that is its own. Each write of ours says that its
guard holds that unit (again), before anything else and with the generation
that the guard had. Placement counts up the generations of providers in the
order of the request. If it loses one after that of the guard's, the repetition
has counted up the guard's already and meets its own change; it fails, as often
as Placement repeats it, and nothing is done. If the guard's own is lost, then
another write had the same guard: the guard is a consumer of another generation
now, and the write is refused for that.

For the same reason a write with a guard is done at most once, and never after
the guard was used again. So whoever does not know whether one was done uses
its guard for nothing, and then reads what has come of it.

Any two processes may use the same guard; one of them has to repeat.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
from random import Random
import threading
import zlib

from cellsched.claims.placement import messages
from cellsched.claims.placement.server import PlacementServer
from cellsched.claims import remote
from cellsched.clock import Clock

#: The resource class of which guards hold a unit, and of which others may
#: hold one for a moment.
RESOURCE_CLASS = 'CUSTOM_CELLSCHED_GUARD'
TOTAL = 1000

#: The type of guards as consumers.
CONSUMER_TYPE = 'CELLSCHED_GUARD'

#: Seconds for which a provider counts as contended after somebody lost it.
_CONTENDED_S = 10.0

#: What Placement says where the guard was not what it lost.
_PROVIDER_LOST = 'Inventory and/or allocations changed'


class Guard:
    """A guard; used by one thread of this process at a time."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.provider = messages.guard_uuid('provider', number)
        self.consumer = messages.guard_uuid('consumer', number)
        #: Its generation, as far as it is known.
        self.generation: int | None = None
        #: Whether a write with this generation may still be done.
        self.pending = False


class HeldGuard:
    """A guard that one thread has, until it has another one."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard


class Guards:
    """The guards of a process.

    Processes that write to the same provider at the same time lose it to each
    other, which Placement finds out late, and repeats several times; of those
    that have the same guard too, it refuses all but one at once. Where nobody
    is in the way, a guard that others do not use is better, as its generation
    is known. So a provider has a guard of its own for as long as it is
    contended.

    :param count: of how many it takes one
    """

    def __init__(
        self, server: PlacementServer, owners: messages.Owners,
        clock: Clock, random: Random, count: int,
    ) -> None:
        self._server = server
        self._owners = owners
        self._clock = clock
        self._count = count
        #: By the guard of a provider, until when that is contended.
        self._contended: dict[int, float] = {}
        self._free = [Guard(number) for number in range(count)]
        # Others begin somewhere else, and use the same ones again.
        random.shuffle(self._free)
        self._lock = threading.Lock()
        self._idle = clock.semaphore(count)

    @contextlib.contextmanager
    def taken(self, providers: Iterable[str] = ()) -> Iterator[HeldGuard]:
        """Give a guard that nobody else in this process has.

        One whose write may still be done is given before others.

        :param providers: whose allocations are to be written
        """
        liked = self._guard_of(providers)
        with self._idle:
            with self._lock:
                guard = next((each for each in self._free if each.pending),
                             self._free[-1])
                if not guard.pending and (
                        self._contended.get(liked, 0) > self._now()):
                    guard = self._liked(liked) or guard
                self._free.remove(guard)
            held = HeldGuard(guard)
            try:
                yield held
            finally:
                with self._lock:
                    self._free.append(held.guard)

    def lost(self, held: HeldGuard, providers: Iterable[str]) -> None:
        """Learn that others write to these providers, too.

        Who has a guard whose write is not done, nor will be, gets theirs.
        """
        liked = self._guard_of(providers)
        with self._lock:
            self._contended[liked] = self._now() + _CONTENDED_S
            other = None if held.guard.pending else self._liked(liked)
            if other is not None:
                self._free.remove(other)
                self._free.insert(0, held.guard)
                held.guard = other

    def _guard_of(self, providers: Iterable[str]) -> int:
        return zlib.crc32(min(providers, default='').encode()) % self._count

    def _liked(self, number: int) -> Guard | None:
        """Return a guard that is free, and has nothing to settle."""
        return next((each for each in self._free
                     if each.number == number and not each.pending), None)

    def _now(self) -> float:
        return self._clock.monotonic()

    def settle_all(self) -> None:
        """Make sure that nothing that was given up is done any more.

        :raises remote.NotSent: Placement does not answer
        :raises remote.OutcomeUnknown: likewise
        """
        while True:
            with self._lock:
                pending = any(guard.pending for guard in self._free)
            if not pending:
                return
            with self.taken() as held:
                self.settle(held.guard)

    def settle(self, guard: Guard) -> bool:
        """Make sure that nothing with a guard is done any more.

        :returns: whether there was anything that might have been
        :raises remote.NotSent: Placement does not answer
        :raises remote.OutcomeUnknown: likewise, or it lost to others
        """
        if not guard.pending:
            return False
        before = guard.generation
        if self._write(guard, {}).is_done:
            return True
        self.find(guard)
        if guard.generation == before:
            raise remote.OutcomeUnknown('Placement has too much to do')
        guard.pending = False
        return True

    def write(
        self, guard: Guard, bodies: Mapping[str, messages.Body]
    ) -> messages.PlacementAnswer:
        """Say what consumers hold, of all of them or of none.

        :returns: an answer that is done, 400 or 409
        :raises remote.NotSent: it is not done, nor will be
        :raises remote.OutcomeUnknown: it may be done, or be done later, until
            the guard is settled
        """
        if guard.generation is None:
            self.find(guard)
        answer = self._write(guard, bodies)
        guard.pending = False
        if answer.is_conflict and _PROVIDER_LOST not in answer.detail:
            guard.generation = None
        return answer

    def find(self, guard: Guard) -> None:
        """Find out the generation of a guard, which is made if it is new."""
        holds = self._server.holding(guard.consumer)
        if holds is None:
            holds = self._create(guard)
        guard.generation = holds.generation

    def _write(
        self, guard: Guard, bodies: Mapping[str, messages.Body]
    ) -> messages.PlacementAnswer:
        sent = {guard.consumer: self._body(guard, guard.generation), **bodies}
        pending, guard.pending = guard.pending, True
        try:
            answer = self._server.set_allocations(sent)
        except remote.NotSent:
            guard.pending = pending
            raise
        if answer.is_done:
            assert guard.generation is not None
            guard.generation += 1
            guard.pending = False
        return answer

    def _create(self, guard: Guard) -> messages.Holding:
        """Make a guard, or what of it is not there."""
        server = self._server
        server.create_class(RESOURCE_CLASS)
        server.create_provider(
            guard.provider, f'cellsched-guard-{guard.number}')
        path = f'/resource_providers/{guard.provider}/inventories'
        has = server.read(path)
        if has is None:
            raise remote.NotSent(
                'a resource provider has a name that is for one of '
                f'cellsched: cellsched-guard-{guard.number}')
        if not has['inventories']:
            server.set_inventories(
                guard.provider, has['resource_provider_generation'],
                {RESOURCE_CLASS: {'total': TOTAL}})
        for generation in (None, 0):
            server.set_allocations(
                {guard.consumer: self._body(guard, generation)})
            holds = server.holding(guard.consumer)
            if holds is not None:
                return holds
        raise remote.OutcomeUnknown('others make the same guard')

    def _body(self, guard: Guard, generation: int | None) -> messages.Body:
        return self._owners.body(
            {guard.provider: {RESOURCE_CLASS: 1}}, generation,
            consumer_type=CONSUMER_TYPE)
