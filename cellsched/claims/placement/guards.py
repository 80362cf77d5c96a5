# SPDX-License-Identifier: Apache-2.0
"""Guards, which keep Placement from allocating more than the capacity.

When a write of allocations conflicts at a provider, Placement repeats it in
the same transaction. The repetition takes the rows of the first try for
allocations that the consumer held before, and skips the check of the capacity.
So concurrent writes can exceed it.

A guard makes the repetition fail. It is a consumer with one unit of its own
provider, and each write repeats this allocation first, with the guard's
generation:

1. Placement increments the generations of providers in the order of the
   request, the guard's provider first.
2. After a conflict at a later provider, the repetition finds that the
   generation of the guard's provider has changed, by the first try. It fails,
   and the whole write is rolled back.
3. A conflict at the guard's provider means that another write used the same
   guard. The generation of the guard as a consumer has changed then, and the
   write is refused.

For the same reason, a write with a guard is executed at most once, and never
after another write with the same guard. To resolve a write without an answer,
a client writes with its guard alone, and then reads the allocations.

Processes may use the same guard; one of two concurrent writes is repeated.
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

#: The resource class of guards. A guard holds one unit, and the removal of an
#: empty consumer uses another one briefly.
RESOURCE_CLASS = 'CUSTOM_CELLSCHED_GUARD'
TOTAL = 1000

#: Consumer type of guards.
CONSUMER_TYPE = 'CELLSCHED_GUARD'

#: Seconds for which a provider counts as contended after a conflict.
_CONTENDED_S = 10.0

#: Detail of a conflict at a provider other than the guard's.
_PROVIDER_LOST = 'Inventory and/or allocations changed'


class Guard:
    """A guard, used by one thread of the process at a time."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.provider = messages.guard_uuid('provider', number)
        self.consumer = messages.guard_uuid('consumer', number)
        #: Its generation, if it is known.
        self.generation: int | None = None
        #: Whether a write with this generation may still be executed.
        self.pending = False


class HeldGuard:
    """The guard of a thread, which may be exchanged."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard


class Guards:
    """The guards of a process.

    Without conflicts any guard works, and one that no other process uses is
    best, as its generation is known. Writes of several processes at the same
    provider conflict late, and Placement repeats each several times; with the
    same guard it refuses all but one early. So for some time after a conflict
    the guard is chosen by the provider.

    :param count: number of guards
    """

    def __init__(
        self, server: PlacementServer, owners: messages.Owners,
        clock: Clock, random: Random, count: int,
    ) -> None:
        self._server = server
        self._owners = owners
        self._clock = clock
        self._count = count
        #: By guard number, until when its providers count as contended.
        self._contended: dict[int, float] = {}
        self._free = [Guard(number) for number in range(count)]
        # Each process starts with other guards, and reuses the latest ones.
        random.shuffle(self._free)
        self._lock = threading.Lock()
        self._idle = clock.semaphore(count)

    @contextlib.contextmanager
    def taken(self, providers: Iterable[str] = ()) -> Iterator[HeldGuard]:
        """Yield a guard that no other thread of the process uses.

        Guards with an unresolved write come first.

        :param providers: providers of the allocations to write
        """
        preferred = self._guard_of(providers)
        with self._idle:
            with self._lock:
                guard = next((each for each in self._free if each.pending),
                             self._free[-1])
                if not guard.pending and (
                        self._contended.get(preferred, 0) > self._now()):
                    guard = self._free_guard(preferred) or guard
                self._free.remove(guard)
            held = HeldGuard(guard)
            try:
                yield held
            finally:
                with self._lock:
                    self._free.append(held.guard)

    def lost(self, held: HeldGuard, providers: Iterable[str]) -> None:
        """Note a conflict at these providers.

        The guard is exchanged for that of the providers, unless its own write
        is unresolved.
        """
        preferred = self._guard_of(providers)
        with self._lock:
            self._contended[preferred] = self._now() + _CONTENDED_S
            other = None if held.guard.pending else self._free_guard(preferred)
            if other is not None:
                self._free.remove(other)
                self._free.insert(0, held.guard)
                held.guard = other

    def _guard_of(self, providers: Iterable[str]) -> int:
        return zlib.crc32(min(providers, default='').encode()) % self._count

    def _free_guard(self, number: int) -> Guard | None:
        """Return a guard if it is free and has no unresolved write."""
        return next((each for each in self._free
                     if each.number == number and not each.pending), None)

    def _now(self) -> float:
        return self._clock.monotonic()

    def settle_all(self) -> None:
        """Resolve all writes without an answer.

        :raises remote.NotSent: Placement does not answer
        :raises remote.OutcomeUnknown: Placement does not answer
        """
        while True:
            with self._lock:
                pending = any(guard.pending for guard in self._free)
            if not pending:
                return
            with self.taken() as held:
                self.settle(held.guard)

    def settle(self, guard: Guard) -> bool:
        """Make sure that no earlier write with a guard is executed later.

        :returns: whether there was an unresolved write
        :raises remote.NotSent: Placement does not answer
        :raises remote.OutcomeUnknown: Placement does not answer, or the write
            had a conflict
        """
        if not guard.pending:
            return False
        before = guard.generation
        if self._write(guard, {}).is_done:
            return True
        self.find(guard)
        if guard.generation == before:
            raise remote.OutcomeUnknown('Placement is overloaded')
        guard.pending = False
        return True

    def write(
        self, guard: Guard, bodies: Mapping[str, messages.Body]
    ) -> messages.PlacementAnswer:
        """Set the allocations of several consumers, of all or of none.

        :returns: a successful answer, or one with the status 400 or 409
        :raises remote.NotSent: the write will not be executed
        :raises remote.OutcomeUnknown: the write may be executed, until the
            guard is used again
        """
        if guard.generation is None:
            self.find(guard)
        answer = self._write(guard, bodies)
        guard.pending = False
        if answer.is_conflict and _PROVIDER_LOST not in answer.detail:
            guard.generation = None
        return answer

    def find(self, guard: Guard) -> None:
        """Read the generation of a guard; create the guard if it is new."""
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
        """Create the missing parts of a guard."""
        server = self._server
        server.create_class(RESOURCE_CLASS)
        server.create_provider(
            guard.provider, f'cellsched-guard-{guard.number}')
        path = f'/resource_providers/{guard.provider}/inventories'
        has = server.read(path)
        if has is None:
            raise remote.NotSent(
                'a resource provider of another program has the name '
                f'cellsched-guard-{guard.number}')
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
        raise remote.OutcomeUnknown('another process creates the same guard')

    def _body(self, guard: Guard, generation: int | None) -> messages.Body:
        return self._owners.body(
            {guard.provider: {RESOURCE_CLASS: 1}}, generation,
            consumer_type=CONSUMER_TYPE)
