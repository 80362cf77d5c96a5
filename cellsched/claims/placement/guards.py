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

from cellsched.claims.coordination import ContentionLock
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
        #: Whether a write with this generation may still be executed, and
        #: the consumers of that write.
        self.pending = False
        self.consumers: frozenset[str] = frozenset()


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
    :param wait_s: seconds to wait for a free guard
    :param locks: the lock of contended providers; with it, each process uses
        guards of its own
    """

    def __init__(
        self, server: PlacementServer, owners: messages.Owners,
        clock: Clock, random: Random, count: int, wait_s: float,
        locks: ContentionLock | None = None,
    ) -> None:
        self._locks = locks or ContentionLock(clock)
        #: Guards with an unresolved write, in use or not.
        self._pending: dict[Guard, None] = {}
        self._server = server
        self._owners = owners
        self._clock = clock
        self._count = count
        self._wait_s = wait_s
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

        Guards with an unresolved write come last: Placement may not answer a
        request with them, although it answers other requests.

        :param providers: providers of the allocations to write
        :raises remote.NotSent: no guard is free in time
        """
        preferred = self._guard_of(providers)
        with self._place():
            with self._lock:
                is_contended = self._contended.get(
                    preferred, 0) > self._clock.monotonic()
                guard = (is_contended and self._free_guard(preferred)
                         or self._free_guard() or self._free[-1])
                self._free.remove(guard)
            held = HeldGuard(guard)
            try:
                yield held
            finally:
                self._give_back(held.guard)

    @contextlib.contextmanager
    def _place(self) -> Iterator[None]:
        """Wait for a free guard, which only this thread may take then."""
        if not self._idle.acquire(timeout=self._wait_s):
            raise remote.NotSent('all guards wait for an answer')
        try:
            yield
        finally:
            self._idle.release()

    def _give_back(self, guard: Guard) -> None:
        with self._lock:
            self._free.append(guard)
            if guard.pending:
                self._pending[guard] = None
            else:
                self._pending.pop(guard, None)

    def lost(self, held: HeldGuard, providers: Iterable[str]) -> None:
        """Note a conflict at these providers.

        The guard is exchanged for that of the providers, unless its own write
        is unresolved.
        """
        preferred = self._guard_of(providers)
        with self._lock:
            if held.guard.pending:
                other = None
            elif self._locks.is_enabled:
                # Another process may use the same guard.
                other = self._free_guard()
            else:
                self._contended[preferred] = (
                    self._clock.monotonic() + _CONTENDED_S)
                other = self._free_guard(preferred)
            if other is not None:
                self._free.remove(other)
                self._free.insert(0, held.guard)
                held.guard = other

    def _guard_of(self, providers: Iterable[str]) -> int:
        return zlib.crc32(min(providers, default='').encode()) % self._count

    def _free_guard(self, number: int | None = None) -> Guard | None:
        """Return a free guard without an unresolved write, if there is one.

        :param number: of the guard; None for the guard used last
        """
        return next((
            each for each in reversed(self._free)
            if not each.pending and number in (None, each.number)), None)

    def settle_all(self, consumers: Iterable[str] | None = None) -> None:
        """Resolve the writes without an answer.

        :param consumers: only writes of these are resolved; None for all
        :raises remote.NotSent: Placement does not answer
        :raises remote.OutcomeUnknown: Placement does not answer, or another
            thread resolves the write
        """
        # Without the lock: a write that is pending for this thread is visible
        # to it, and most calls find none.
        if not self._pending:
            return
        only = None if consumers is None else frozenset(consumers)
        with self._lock:
            due = [guard for guard in self._pending
                   if guard.pending and (
                       only is None or not only.isdisjoint(guard.consumers))]
        # A guard is taken like one for a new write, so no other thread uses it
        # while Placement answers. One in use belongs to a thread that resolves
        # its write itself.
        for guard in due:
            with self._place():
                with self._lock:
                    if guard not in self._pending:
                        continue
                    if guard not in self._free:
                        raise remote.OutcomeUnknown(
                            'an earlier request has no answer')
                    self._free.remove(guard)
                try:
                    self.settle(guard)
                finally:
                    self._give_back(guard)

    def settle(self, guard: Guard) -> bool:
        """Make sure that no earlier write with a guard is executed later.

        :returns: whether there was an unresolved write
        :raises remote.NotSent: Placement does not answer
        :raises remote.OutcomeUnknown: Placement does not answer, or the write
            had a conflict
        """
        if not guard.pending:
            return False
        # 1. An empty write with the known generation of the guard. If it
        #    succeeds, the earlier write was not executed, and fails later.
        before = guard.generation
        if messages.checked(self._write(guard, {}), 409).is_done:
            return True
        # 2. After a conflict, read the generation. If it is a new one, the
        #    earlier write was executed or fails later. If it is the old one,
        #    the write can still be executed.
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
        if self.is_of_provider(answer):
            self._locks.note_conflict({
                provider for body in bodies.values()
                for provider in body['allocations']})
        elif answer.is_conflict:
            guard.generation = None
        return answer

    @staticmethod
    def is_of_provider(answer: messages.PlacementAnswer) -> bool:
        """Return whether a conflict is one at a provider of a claim."""
        return answer.is_conflict and _PROVIDER_LOST in answer.detail

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
        if bodies:
            guard.consumers = frozenset(bodies)
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
        has = server.read_or_create(
            guard.provider, f'cellsched-guard-{guard.number}', '/inventories')
        if not has['inventories']:
            server.set_inventories(
                guard.provider, has['resource_provider_generation'],
                {RESOURCE_CLASS: {'total': TOTAL}})
        for generation in (None, 0):
            messages.checked(server.set_allocations(
                {guard.consumer: self._body(guard, generation)}), 409)
            holds = server.holding(guard.consumer)
            if holds is not None:
                return holds
        raise remote.OutcomeUnknown('another process creates the same guard')

    def _body(self, guard: Guard, generation: int | None) -> messages.Body:
        return self._owners.body(
            {guard.provider: {RESOURCE_CLASS: 1}}, generation,
            consumer_type=CONSUMER_TYPE)
