# SPDX-License-Identifier: Apache-2.0
"""The partitions of providers: claims' rows and counters, changed together.

The changes of one provider in a call are combined in one request.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import enum
import json
from typing import Any

from cellsched.claims.cassandra import requests
from cellsched.claims.cassandra.session import CONTENDED
from cellsched.claims.cassandra.session import Session
from cellsched.claims.cassandra.slots import Slots
from cellsched.claims.coordination import ContentionLock
from cellsched.claims import remote

#: Maximum number of rows in a request of several entries.
ROWS_MAX = 200

#: Number of providers whose counters are cached.
_REMEMBERED_MAX = 10000


class EntryOutcome(enum.Enum):
    """The outcome of an entry."""

    OPEN = 'no outcome yet'
    DONE = 'done'
    REFUSED = 'not enough capacity'
    GONE = 'an inserted row exists already, or a deleted row does not exist'
    UNKNOWN = 'it may have been applied'


class Entry:
    """A change of one provider's rows, as a whole or not at all.

    :param inserted: rows to insert; checked for capacity unless ``deleted``
        has rows, as in a rename
    :param deleted: rows to delete
    """

    def __init__(
        self, provider: str, inserted: Iterable[requests.ClaimRow] = (),
        deleted: Iterable[requests.ClaimRow] = (),
    ) -> None:
        self.provider = provider
        self.inserted = tuple(inserted)
        self.deleted = tuple(deleted)
        self.outcome = EntryOutcome.OPEN
        #: Whether a request with it was sent, and may have been applied.
        self.is_sent = False
        #: The counters that led to REFUSED; None for an unknown provider.
        self.figures: requests.Figures | None = None
        self.error: Exception | None = None
        self._takes = [json.loads(row.resources) for row in self.inserted]
        self._gives = [json.loads(row.resources) for row in self.deleted]
        self._needs_room = bool(self.inserted) and not self.deleted

    def added(self, slots: Slots) -> dict[int, int]:
        """Return the amounts to add, by column."""
        added = slots.amounts(self._takes)
        for number, amount in slots.amounts(self._gives, -1).items():
            added[number] = added.get(number, 0) + amount
        return added

    def fits(
        self, slots: Slots, used: Mapping[int, int]
    ) -> dict[int, int] | None:
        """Return upper bounds on the used amounts; None if it does not fit."""
        if not self._needs_room:
            return {}
        for resources in self._takes:
            for name, amount in resources.items():
                slot = slots.classes.get(name)
                if slot is None or not slot.admits(amount):
                    return None
        bounds = {}
        capacities = {slot.number: slot.capacity
                      for slot in slots.classes.values()}
        for number, amount in slots.amounts(self._takes).items():
            bounds[number] = capacities[number]
            if used[number] + amount > capacities[number]:
                return None
        return bounds


class _Batch:
    """The entries of one provider that one request applies."""

    def __init__(self, figures: requests.Figures, adds: bool) -> None:
        self.entries: list[Entry] = []
        self.figures = figures
        self._adds = adds
        self._slots = Slots.of(figures)
        self._used = {number: amount or 0
                      for number, amount in enumerate(figures.used)}
        self._added: dict[int, int] = {}
        self._bounds: dict[int, int] = {}
        self._keys: set[tuple[str, str]] = set()

    def include(self, entries: Sequence[Entry]) -> list[Entry]:
        """Add the entries that fit; return those that do not."""
        unfit = []
        # Deletions first, as they free capacity.
        for entry in sorted(entries, key=lambda each: bool(each.inserted)):
            keys = {row.key for row in entry.inserted + entry.deleted}
            bounds = entry.fits(self._slots, self._used)
            if bounds is None:
                unfit.append(entry)
            elif not keys & self._keys and (
                    not self.entries
                    or len(keys) + len(self._keys) <= ROWS_MAX):
                # Two deletions of one row would be counted twice.
                self._keys |= keys
                self.entries.append(entry)
                self._bounds.update(bounds)
                for number, amount in entry.added(self._slots).items():
                    self._used[number] += amount
                    self._added[number] = (
                        self._added.get(number, 0) + amount)
        return unfit

    def would_fit(self, entry: Entry) -> bool:
        """Return whether an entry fits without the others."""
        used = {number: amount or 0
                for number, amount in enumerate(self.figures.used)}
        return entry.fits(self._slots, used) is not None

    def request(self) -> requests.ChangeProvider:
        inserted = [row for entry in self.entries for row in entry.inserted]
        deleted = [row for entry in self.entries for row in entry.deleted]
        return requests.ChangeProvider(
            self.figures.provider, self.figures.inventory,
            tuple(sorted((number, amount)
                         for number, amount in self._added.items() if amount)),
            tuple(sorted((number, most - self._added.get(number, 0))
                         for number, most in self._bounds.items())),
            len(inserted) - len(deleted),
            sum(row.several for row in inserted)
            - sum(row.several for row in deleted),
            tuple(inserted), tuple(deleted),
            None if self._adds else self.figures)


def after(
    figures: requests.Figures, change: requests.ChangeProvider
) -> requests.Figures:
    """Return the counters of a provider after a change."""
    used = list(figures.used)
    for number, amount in change.added:
        used[number] = (used[number] or 0) + amount
    return requests.Figures(
        figures.provider, figures.inventory, figures.generation + 1,
        (figures.consumers or 0) + change.consumers,
        (figures.open or 0) + change.open,
        tuple(used))


class Ledger:
    """Changes providers for many threads.

    :param adds: whether the server supports addition to a column under a
        condition; otherwise counters are compared and set. None to detect it
    :param locks: see :class:`cellsched.claims.coordination.ContentionLock`
    """

    def __init__(
        self, session: Session, adds: bool | None, locks: ContentionLock
    ) -> None:
        self._session = session
        self._adds = adds
        self._locks = locks
        self._known: dict[str, requests.Figures] = {}

    @property
    def adds(self) -> bool:
        """True if the server adds; detected in the first call."""
        if self._adds is None:
            self._adds = self._session.ask(requests.Describe()).adds
        return bool(self._adds)

    def do(self, entries: Sequence[Entry]) -> None:
        """Apply entries until each has an outcome; blocks.

        :raises cellsched.exception.DatabaseUnreachable: one has none in time
        """
        work = _Work(
            self._session, self._known, self.adds, self._locks)
        for number in self._session.attempts():
            # A lock takes longer than most writes, so that only a call that
            # was disturbed waits for one.
            with self._locks.held([
                    entry.provider for entry in entries] if number else ()):
                while work.proceed([entry for entry in entries
                                    if entry.outcome is EntryOutcome.OPEN]):
                    pass
            if all(entry.outcome is not EntryOutcome.OPEN
                   for entry in entries):
                break
        if len(self._known) > _REMEMBERED_MAX:
            for name in [*self._known][:-_REMEMBERED_MAX]:
                self._known.pop(name, None)
        for entry in entries:
            if entry.outcome is EntryOutcome.OPEN:
                self._session.unreachable(entry.error or CONTENDED)

    def known(self, provider: str) -> requests.Figures | None:
        """Return the last known counters of a provider, if there are any."""
        return self._known.get(provider)

    def read_contended(self, providers: Iterable[str]) -> None:
        """Read the counters of those providers that others write, too."""
        contended = [*filter(self._locks.is_contended, providers)]
        if contended:
            self.read(contended)

    def read(
        self, providers: Iterable[str]
    ) -> dict[str, requests.Figures | None]:
        """Return the counters of each provider at some moment of the call.

        The counters are remembered. All acknowledged changes are in them. They
        are None for an unknown provider, and if the server does not answer
        now.
        """
        found: dict[str, requests.Figures | None] = {}
        names = list(dict.fromkeys(providers))
        for name, answer in zip(names, self._session.try_all([
                requests.ReadFigures(name, serial=False) for name in names])):
            if isinstance(answer, requests.Figures):
                self._known[name] = found[name] = answer
            else:
                self._known.pop(name, None)
                found[name] = None
        return found


class _Work:
    """Entries in progress, and the counters of their providers."""

    def __init__(
        self, session: Session, known: dict[str, requests.Figures],
        adds: bool, locks: ContentionLock,
    ) -> None:
        self._session = session
        self._known = known
        self._adds = adds
        self._locks = locks
        #: Counters read during this call; only these can refuse an entry.
        self._fresh: dict[str, requests.Figures | None] = {}

    def proceed(self, entries: Sequence[Entry]) -> bool:
        """Send one round of requests; return whether to repeat at once."""
        by_provider: dict[str, list[Entry]] = {}
        for entry in entries:
            by_provider.setdefault(entry.provider, []).append(entry)
        batches: list[_Batch] = []
        unread: list[str] = []
        for provider, waiting in by_provider.items():
            batch = self._compose(provider, waiting)
            if batch is None:
                unread.append(provider)
            elif batch.entries:
                batches.append(batch)
        asked = [batch.request() for batch in batches]
        answers = self._session.try_all([
            *asked, *map(requests.ReadFigures, unread)])
        must_wait = False
        for batch, request, answer in zip(batches, asked, answers):
            must_wait |= self._settle(batch, request, answer)
        for provider, answer in zip(unread, answers[len(asked):]):
            if isinstance(answer, Exception):
                must_wait = True
                for entry in by_provider[provider]:
                    entry.error = answer
            else:
                self._fresh[provider] = answer
        return bool(answers) and not must_wait

    def _compose(
        self, provider: str, entries: Sequence[Entry]
    ) -> _Batch | None:
        """Return a provider's batch; None if counters must be read first."""
        fresh = provider in self._fresh
        if not fresh and self._locks.is_contended(provider):
            # The known counters are most likely outdated.
            return None
        figures = (self._fresh[provider] if fresh
                   else self._known.get(provider))
        if figures is None:
            if not fresh:
                return None
            for entry in entries:
                entry.outcome = (EntryOutcome.GONE if entry.deleted
                                 else EntryOutcome.REFUSED)
            return _Batch(_no_figures(provider), self._adds)
        batch = _Batch(figures, self._adds)
        unfit = batch.include(entries)
        if unfit and not fresh:
            return None
        for entry in unfit:
            # Retried in the next round if only this round lacks capacity.
            if batch.entries and batch.would_fit(entry):
                continue
            # An earlier request with the entry may have been applied.
            if not entry.is_sent or self._look(provider, [entry]):
                if entry.outcome is EntryOutcome.OPEN:
                    entry.outcome = EntryOutcome.REFUSED
                    entry.figures = figures
                    self._known[provider] = figures
        return batch

    def _settle(
        self, batch: _Batch, request: requests.ChangeProvider, answer: Any
    ) -> bool:
        """Set outcomes from an answer.

        :returns: whether the next round must wait: the request was not sent,
            or another client writes the provider
        """
        provider, entries = request.provider, batch.entries
        for entry in entries:
            entry.is_sent = True
        self._fresh.pop(provider, None)
        self._known.pop(provider, None)
        if isinstance(answer, Exception):
            may_be_applied = not isinstance(answer, remote.NotSent)
            for entry in entries:
                entry.error = answer
                if may_be_applied:
                    entry.outcome = EntryOutcome.UNKNOWN
            return not may_be_applied
        if answer.applied:
            self._known[provider] = after(batch.figures, request)
            for entry in entries:
                entry.outcome = EntryOutcome.DONE
            return False
        self._locks.note_conflict([provider])
        figures = answer.figures
        if figures is not None and not _meets(figures, request):
            self._fresh[provider] = figures
            return not self._adds
        return not self._look(provider, entries) or all(
            entry.outcome is EntryOutcome.OPEN for entry in entries)

    def _look(self, provider: str, entries: Sequence[Entry]) -> bool:
        """Set outcomes from the provider's rows after a refused request.

        The server may refuse a request that it has applied: after a conflict
        of two requests it repeats one that was already complete.

        :returns: False if the rows cannot be read
        """
        keys = tuple(row.key for entry in entries
                     for row in (*entry.inserted, *entry.deleted))
        figures, rows = self._session.try_all([
            requests.ReadFigures(provider),
            requests.ReadClaims(provider, keys)])
        if isinstance(figures, Exception) or isinstance(rows, Exception):
            return False
        self._fresh[provider] = figures
        existing = {row.key: row for row in rows}
        for entry in entries:
            if entry.inserted and all(
                    existing.get(row.key) == row for row in entry.inserted):
                # Only this process inserts rows of this attempt.
                entry.outcome = EntryOutcome.DONE
            elif any(row.key in existing for row in entry.inserted) or any(
                    existing.get(row.key) != row for row in entry.deleted):
                entry.outcome = EntryOutcome.GONE
        return True


def _meets(
    figures: requests.Figures, request: requests.ChangeProvider
) -> bool:
    """Return whether counters satisfy the conditions of a request."""
    return (figures.inventory == request.inventory
            and (request.seen is None
                 or request.seen.generation == figures.generation)
            and all((figures.used[number] or 0) <= most
                    for number, most in request.bounds))


def _no_figures(provider: str) -> requests.Figures:
    """Return the counters of an unknown provider, which has no capacity."""
    return requests.Figures(
        provider, Slots({}, 0).text, 0, 0, 0,
        (None,) * requests.SLOTS)
