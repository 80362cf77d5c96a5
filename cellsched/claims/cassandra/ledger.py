# SPDX-License-Identifier: Apache-2.0
"""Providers: their claims' rows and figures, changed in one step.

What several threads want of a provider at a time is one request.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import enum
import json
from typing import Any
import zlib

from cellsched import batching
from cellsched.claims.cassandra import requests
from cellsched.claims.cassandra.session import Session
from cellsched.claims.cassandra.slots import parse
from cellsched.claims.cassandra.slots import Slots
from cellsched.claims import remote

#: Rows that one request changes at most, but for those of one entry.
ROWS_MAX = 200

#: Providers whose figures are remembered, and threads that change them.
_REMEMBERED_MAX = 10000
_LANES = 64


class EntryOutcome(enum.Enum):
    """The fate of an entry."""

    OPEN = 'nothing yet'
    DONE = 'done'
    REFUSED = 'no room'
    GONE = 'a row to be inserted is there, or one to be deleted is not'
    UNKNOWN = 'it may be done'
    FAILED = 'not done, for the server does not answer'


class Entry:
    """A change of one provider's rows, to be done whole or not at all.

    :param inserted: rows; there must be room for them, unless as many others
        are deleted
    :param deleted: rows
    """

    def __init__(
        self, provider: str, inserted: Iterable[requests.ClaimRow] = (),
        deleted: Iterable[requests.ClaimRow] = (),
    ) -> None:
        self.provider = provider
        self.inserted = tuple(inserted)
        self.deleted = tuple(deleted)
        self.outcome = EntryOutcome.OPEN
        #: Whether the server was asked for it, and may have done it.
        self.asked = False
        #: Those by which it was refused; None if the provider has none.
        self.figures: requests.Figures | None = None
        self.error: Exception | None = None
        self._takes = [json.loads(row.resources) for row in self.inserted]
        self._gives = [json.loads(row.resources) for row in self.deleted]
        self._needs_room = bool(self.inserted) and not self.deleted

    def added(self, slots: Slots) -> dict[int, int]:
        """Return what it adds, by column."""
        added = slots.amounts(self._takes)
        for number, amount in slots.amounts(self._gives, -1).items():
            added[number] = added.get(number, 0) + amount
        return added

    def fits(
        self, slots: Slots, used: Mapping[int, int]
    ) -> dict[int, int] | None:
        """Return bounds on what is used after it, or None without room."""
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
    """Entries of one provider that are made one request."""

    def __init__(self, figures: requests.Figures, adds: bool) -> None:
        self.entries: list[Entry] = []
        self.figures = figures
        self._adds = adds
        self._slots = parse(figures.inventory)
        self._used = {number: amount or 0
                      for number, amount in enumerate(figures.used)}
        self._added: dict[int, int] = {}
        self._bounds: dict[int, int] = {}
        self._keys: set[tuple[str, str]] = set()

    def include(self, entries: Sequence[Entry]) -> list[Entry]:
        """Take in those that fit; return those that have no room."""
        unfit = []
        # What gives room comes first.
        for entry in sorted(entries, key=lambda each: bool(each.inserted)):
            keys = {row.key for row in entry.inserted + entry.deleted}
            bounds = entry.fits(self._slots, self._used)
            if bounds is None:
                unfit.append(entry)
            elif not keys & self._keys and (
                    not self.entries
                    or len(keys) + len(self._keys) <= ROWS_MAX):
                # Two that delete the same row would count it twice.
                self._keys |= keys
                self.entries.append(entry)
                self._bounds.update(bounds)
                for number, amount in entry.added(self._slots).items():
                    self._used[number] += amount
                    self._added[number] = (
                        self._added.get(number, 0) + amount)
        return unfit

    def would_fit(self, entry: Entry) -> bool:
        """Return whether one alone would have room."""
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
    """Return the figures that a change makes of others."""
    used = list(figures.used)
    for number, amount in change.added:
        used[number] = (used[number] or 0) + amount
    return requests.Figures(
        figures.provider, figures.inventory, figures.generation + 1,
        figures.consumers + change.consumers, figures.open + change.open,
        tuple(used))


class Ledger:
    """Changes providers, for many threads at a time.

    :param adds: whether the server adds to a column under a condition; where
        it does not, figures are compared and set
    """

    def __init__(self, session: Session, adds: bool | None) -> None:
        self._session = session
        self.adds = adds
        self._known: dict[str, requests.Figures] = {}
        self._lanes = [
            batching.GroupCommit(self._work, make_lock=session.clock.lock)
            for _ in range(_LANES)]

    def do(self, entries: Sequence[Entry]) -> None:
        """Have entries done; what became of each is in it.

        :raises cellsched.exception.DatabaseUnreachable: nothing became of one
        """
        if len(entries) == 1:
            lane = zlib.crc32(entries[0].provider.encode()) % _LANES
            self._lanes[lane].do(entries[0])
        else:
            self._work(entries)
        for entry in entries:
            if entry.outcome is EntryOutcome.FAILED:
                self._session.unreachable(entry.error)

    def _work(self, entries: Sequence[Entry]) -> None:
        """Do entries; each has an outcome then, and nothing is raised."""
        work = _Work(self._session, self._known, bool(self.adds))
        for _ in self._session.attempts():
            while work.proceed([entry for entry in entries
                                if entry.outcome is EntryOutcome.OPEN]):
                pass
            if all(entry.outcome is not EntryOutcome.OPEN
                   for entry in entries):
                break
        for entry in entries:
            if entry.outcome is EntryOutcome.OPEN:
                entry.outcome = EntryOutcome.FAILED
        while len(self._known) > _REMEMBERED_MAX:
            self._known.pop(next(iter(self._known)), None)


class _Work:
    """Entries on their way, and what was seen of their providers since."""

    def __init__(
        self, session: Session, known: dict[str, requests.Figures],
        adds: bool,
    ) -> None:
        self._session = session
        self._known = known
        self._adds = adds
        #: Read since the entries were made, so that they can be refused by it.
        self._fresh: dict[str, requests.Figures | None] = {}

    def proceed(self, entries: Sequence[Entry]) -> bool:
        """Make one round of requests; return whether to go on at once."""
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
        lost = False
        for batch, request, answer in zip(batches, asked, answers):
            lost |= self._settle(batch, request, answer)
        for provider, answer in zip(unread, answers[len(asked):]):
            if isinstance(answer, Exception):
                lost = True
                for entry in by_provider[provider]:
                    entry.error = answer
            else:
                self._fresh[provider] = answer
        return bool(answers) and not lost

    def _compose(
        self, provider: str, entries: Sequence[Entry]
    ) -> _Batch | None:
        """Return what is to be asked for, or None to read figures first."""
        fresh = provider in self._fresh
        figures = (self._fresh[provider] if fresh
                   else self._known.get(provider))
        if figures is None:
            if not fresh:
                return None
            for entry in entries:
                entry.outcome = (EntryOutcome.GONE if entry.deleted
                                 else EntryOutcome.REFUSED)
            return _Batch(_nothing(provider), self._adds)
        batch = _Batch(figures, self._adds)
        unfit = batch.include(entries)
        if unfit and not fresh:
            return None
        for entry in unfit:
            # What has no room beside the others of this round is tried again.
            if batch.entries and batch.would_fit(entry):
                continue
            # It may be what was done that leaves no room.
            if not entry.asked or self._look(provider, [entry]):
                if entry.outcome is EntryOutcome.OPEN:
                    entry.outcome = EntryOutcome.REFUSED
                    entry.figures = figures
        return batch

    def _settle(
        self, batch: _Batch, request: requests.ChangeProvider, answer: Any
    ) -> bool:
        """Note what became of a request; return whether others won."""
        provider, entries = request.provider, batch.entries
        for entry in entries:
            entry.asked = True
        self._fresh.pop(provider, None)
        self._known.pop(provider, None)
        if isinstance(answer, Exception):
            sent = not isinstance(answer, remote.NotSent)
            for entry in entries:
                entry.error = answer
                if sent:
                    entry.outcome = EntryOutcome.UNKNOWN
            return not sent
        if answer.applied:
            self._known[provider] = after(batch.figures, request)
            for entry in entries:
                entry.outcome = EntryOutcome.DONE
            return False
        figures = answer.figures
        if figures is not None and not _meets(figures, request):
            self._fresh[provider] = figures
            return not self._adds
        return not self._look(provider, entries) or all(
            entry.outcome is EntryOutcome.OPEN for entry in entries)

    def _look(self, provider: str, entries: Sequence[Entry]) -> bool:
        """Find the rows that a request was refused for; return if it could.

        The server may say so of one that it did: where two were in each
        other's way, it makes an attempt anew that was done already.
        """
        keys = tuple(row.key for entry in entries
                     for row in (*entry.inserted, *entry.deleted))
        figures, rows = self._session.try_all([
            requests.ReadFigures(provider),
            requests.ReadClaims(provider, keys)])
        if isinstance(figures, Exception) or isinstance(rows, Exception):
            return False
        self._fresh[provider] = figures
        there = {row.key: row for row in rows}
        for entry in entries:
            if entry.inserted and all(
                    there.get(row.key) == row for row in entry.inserted):
                # Nobody else has a row of this attempt to insert.
                entry.outcome = EntryOutcome.DONE
            elif any(row.key in there for row in entry.inserted) or any(
                    there.get(row.key) != row for row in entry.deleted):
                entry.outcome = EntryOutcome.GONE
        return True


def _meets(
    figures: requests.Figures, request: requests.ChangeProvider
) -> bool:
    """Return whether figures are none to refuse a request for."""
    return (figures.inventory == request.inventory
            and (request.seen is None
                 or request.seen.generation == figures.generation)
            and all((figures.used[number] or 0) <= most
                    for number, most in request.bounds))


def _nothing(provider: str) -> requests.Figures:
    return requests.Figures(
        provider, Slots({}, 0).text, 0, 0, 0,
        (None,) * requests.SLOTS)
