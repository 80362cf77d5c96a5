# SPDX-License-Identifier: Apache-2.0
"""The partitions of providers: claims' rows and counters, changed together.

The changes of one provider in a call are combined in one request.
"""

from collections.abc import Iterable
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
    UNKNOWN = 'rows may have been inserted'


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
        #: The counters that led to REFUSED; None for an unknown provider.
        self.figures: requests.Figures | None = None
        self.error: Exception | None = None
        self._takes = [json.loads(row.resources) for row in self.inserted]
        self._gives = [json.loads(row.resources) for row in self.deleted]
        #: Any other change deletes rows. Its repetition changes nothing once
        #: these do not exist.
        self.needs_room = bool(self.inserted) and not self.deleted

    def added(self, slots: Slots) -> dict[int, int]:
        """Return the amounts to add, by column."""
        added = slots.amounts(self._takes)
        for number, amount in slots.amounts(self._gives, -1).items():
            added[number] = added.get(number, 0) + amount
        return added

    def fits(
        self, slots: Slots, used: Sequence[int | None]
    ) -> dict[int, int] | None:
        """Return upper bounds on the used amounts; None if it does not fit."""
        if not self.needs_room:
            return {}
        if not all(name in slots.classes and slots.classes[name].admits(amount)
                   for resources in self._takes
                   for name, amount in resources.items()):
            return None
        taken = slots.amounts(self._takes)
        bounds = {slot.number: slot.capacity
                  for slot in slots.classes.values() if slot.number in taken}
        is_full = any((used[number] or 0) + amount > bounds[number]
                      for number, amount in taken.items())
        return None if is_full else bounds


class _Batch:
    """The entries of one provider that one request applies."""

    def __init__(self, figures: requests.Figures) -> None:
        self.entries: list[Entry] = []
        self.figures = figures
        self._slots = Slots.of(figures)
        self._used = [*figures.used]
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
                    self._used[number] = (self._used[number] or 0) + amount
                    self._added[number] = (
                        self._added.get(number, 0) + amount)
        return unfit

    def would_fit(self, entry: Entry) -> bool:
        """Return whether an entry fits without the others."""
        return entry.fits(self._slots, self.figures.used) is not None

    def request(self, adds: bool) -> requests.ChangeProvider:
        """Return the request.

        :param adds: whether the server supports addition under a condition
        """
        change = requests.ChangeProvider(
            self.figures.provider, {'inventory': self.figures.inventory},
            added={**self._counts(), **{
                requests.USED[number]: amount
                for number, amount in sorted(self._added.items()) if amount}},
            bounds={
                requests.USED[number]: most - self._added.get(number, 0)
                for number, most in sorted(self._bounds.items())},
            inserted=tuple([row for entry in self.entries
                            for row in entry.inserted]),
            deleted=tuple([row for entry in self.entries
                           for row in entry.deleted]))
        return change if adds else change.compared(self.figures)

    def after(self) -> requests.Figures:
        """Return the counters after the request."""
        counts, before = self._counts(), self.figures
        return requests.Figures(
            before.provider, before.inventory,
            before.generation + counts['generation'],
            (before.consumers or 0) + counts['consumers'],
            (before.open or 0) + counts['open'], tuple(self._used))

    def _counts(self) -> dict[str, int]:
        """Return the amounts to add to the counters of rows."""
        rows = [(row, sign) for entry in self.entries
                for sign, some in ((1, entry.inserted), (-1, entry.deleted))
                for row in some]
        return {'generation': 1, 'consumers': sum([sign for _, sign in rows]),
                'open': sum([sign for row, sign in rows if row.several])}


class Ledger:
    """Changes providers; threads may share it.

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
        if not entries:
            return
        #: Counters read during this call; only these can refuse an entry.
        fresh: dict[str, requests.Figures | None] = {}
        due = [*entries]
        for number in self._session.attempts():
            # A lock takes longer than most writes, so that only a call that
            # was disturbed waits for one.
            with self._locks.held([
                    entry.provider for entry in entries] if number else ()):
                repeats = True
                while due and repeats:
                    repeats = self._proceed(due, fresh)
                    due = [entry for entry in due
                           if entry.outcome is EntryOutcome.OPEN]
            if not due:
                break
        if len(self._known) > _REMEMBERED_MAX:
            for name in [*self._known][:-_REMEMBERED_MAX]:
                self._known.pop(name, None)
        if due:
            self._session.unreachable(due[0].error or CONTENDED)

    def known(self, provider: str) -> requests.Figures | None:
        """Return the last known counters of a provider, if there are any."""
        return self._known.get(provider)

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
            self._known.pop(name, None)
            found[name] = None
            if isinstance(answer, requests.Figures):
                self._known[name] = found[name] = answer
        return found

    def try_change(
        self, change: requests.ChangeProvider,
        figures: requests.Figures | None,
    ) -> bool:
        """Send a change once; return whether it was applied.

        :param figures: the counters that it was made from
        """
        if figures is not None and not self.adds:
            change = change.compared(figures)
        [answer] = self._session.try_all([change])
        return not isinstance(answer, Exception) and answer.applied

    def _proceed(
        self, entries: Sequence[Entry],
        fresh: dict[str, requests.Figures | None],
    ) -> bool:
        """Send one round of requests; return whether to repeat at once."""
        by_provider: dict[str, list[Entry]] = {}
        for entry in entries:
            by_provider.setdefault(entry.provider, []).append(entry)
        batches: list[_Batch] = []
        unread: list[str] = []
        for provider, waiting in by_provider.items():
            batch = self._compose(provider, waiting, fresh)
            if batch is not None:
                batches.append(batch)
            elif provider not in fresh:
                unread.append(provider)
        changes = [batch.request(self.adds) for batch in batches]
        answers = self._session.try_all([*changes, *(
            requests.ReadFigures(name, serial=False) for name in unread)])
        must_wait = False
        for batch, change, answer in zip(batches, changes, answers):
            must_wait |= self._settle(batch, change, answer, fresh)
        for provider, answer in zip(unread, answers[len(changes):]):
            if isinstance(answer, Exception):
                must_wait = True
                for entry in by_provider[provider]:
                    entry.error = answer
            else:
                fresh[provider] = answer
        return bool(answers) and not must_wait

    def _compose(
        self, provider: str, entries: Sequence[Entry],
        fresh: dict[str, requests.Figures | None],
    ) -> _Batch | None:
        """Return a provider's batch; None if no entry of it is to be sent.

        If the counters are not fresh then, they must be read first.
        """
        is_fresh = provider in fresh
        figures = fresh[provider] if is_fresh else self._known.get(provider)
        if figures is None:
            for entry in entries if is_fresh else ():
                entry.outcome = (EntryOutcome.GONE if entry.deleted
                                 else EntryOutcome.REFUSED)
            return None
        # After a conflict, the known counters are most likely outdated.
        if not is_fresh and self._locks.is_contended(provider):
            return None
        batch = _Batch(figures)
        unfit = batch.include(entries)
        if unfit and not is_fresh:
            return None
        for entry in unfit:
            # Retried in the next round if only this round lacks capacity.
            if batch.entries and batch.would_fit(entry):
                continue
            entry.outcome = EntryOutcome.REFUSED
            entry.figures = figures
            self._known[provider] = figures
        return batch if batch.entries else None

    def _settle(
        self, batch: _Batch, change: requests.ChangeProvider, answer: Any,
        fresh: dict[str, requests.Figures | None],
    ) -> bool:
        """Set outcomes from an answer.

        :returns: whether the next round must wait: the request was not sent,
            or another client writes the provider
        """
        provider, entries = change.provider, batch.entries
        fresh.pop(provider, None)
        self._known.pop(provider, None)
        if isinstance(answer, Exception):
            for entry in entries:
                entry.error = answer
                if entry.needs_room and not isinstance(
                        answer, remote.NotSent):
                    entry.outcome = EntryOutcome.UNKNOWN
            return any(entry.outcome is EntryOutcome.OPEN
                       for entry in entries)
        if answer.applied:
            self._known[provider] = batch.after()
            for entry in entries:
                entry.outcome = EntryOutcome.DONE
            return False
        self._locks.note_conflict([provider])
        if answer.figures is not None:
            fresh[provider] = answer.figures
            _find_outcomes(entries, answer.rows)
            if not _meets(answer.figures, change):
                return not self.adds
        elif not self._look(provider, entries, fresh):
            return True
        return all(entry.outcome is EntryOutcome.OPEN for entry in entries)

    def _look(
        self, provider: str, entries: Sequence[Entry],
        fresh: dict[str, requests.Figures | None],
    ) -> bool:
        """Read the outcomes of a refused request without counters.

        :returns: False if the rows cannot be read
        """
        keys = tuple(row.key for entry in entries
                     for row in (*entry.inserted, *entry.deleted))
        figures, rows = self._session.try_all([
            requests.ReadFigures(provider),
            requests.ReadClaims(provider, keys)])
        if isinstance(figures, Exception) or isinstance(rows, Exception):
            return False
        fresh[provider] = figures
        _find_outcomes(entries, rows)
        return True


def _find_outcomes(
    entries: Sequence[Entry], rows: Iterable[requests.ClaimRow]
) -> None:
    """Set outcomes from the provider's rows after a refused request.

    The server may refuse a request that it has applied: after a conflict of
    two requests it repeats one that was already complete.
    """
    existing = {row.key: row for row in rows}
    for entry in entries:
        if entry.inserted and all(
                existing.get(row.key) == row for row in entry.inserted):
            # Only this process inserts rows of this attempt.
            entry.outcome = EntryOutcome.DONE
        elif any(row.key in existing for row in entry.inserted) or any(
                existing.get(row.key) != row for row in entry.deleted):
            entry.outcome = EntryOutcome.GONE


def _meets(
    figures: requests.Figures, change: requests.ChangeProvider
) -> bool:
    """Return whether counters satisfy the conditions of a request."""
    columns = figures.columns()
    return all(columns[name] == value
               for name, value in change.equal.items()) and all(
        (columns[name] or 0) <= most for name, most in change.bounds.items())
