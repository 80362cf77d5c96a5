# SPDX-License-Identifier: Apache-2.0
"""Releases of many consumers, each of which is on its own."""

from collections.abc import Iterable
from collections.abc import Sequence

from cellsched.claims.cassandra import asking
from cellsched.claims.cassandra.ledger import Entry
from cellsched.claims.cassandra.ledger import EntryOutcome
from cellsched.claims.cassandra.ledger import Ledger
from cellsched.claims.cassandra.ledger import ROWS_MAX
from cellsched.claims.cassandra import records
from cellsched.claims.cassandra import requests
from cellsched.claims.cassandra.settling import Settling


class ConsumerReleasing:
    """Gives back what consumers hold."""

    def __init__(
        self, asks: asking.Asking, ledger: Ledger,
        settling: Settling,
    ) -> None:
        self._asks = asks
        self._ledger = ledger
        self._settling = settling

    def release(self, consumers: Iterable[str]) -> None:
        found = self._asks.read_all(consumers)
        plain = [record for record in found.values()
                 if record is not None and _is_plain(record)]
        written = self._asks.write_all([
            (record, record.replaced(
                records.GIVING if record.state == records.HELD
                else records.DROPPING)) for record in plain])
        marked = [record for record in written if record is not None]
        given = self._give_back(marked)
        self._asks.write_all([(record, None) for record in given])
        ended = {record.consumer for record in given}
        for consumer, record in found.items():
            if record is not None and consumer not in ended:
                self._release(consumer)

    def _give_back(
        self, marked: Sequence[records.Record]
    ) -> list[records.Record]:
        """Return those of whom nothing is left at any provider."""
        by_provider: dict[str, list[requests.ClaimRow]] = {}
        for record in marked:
            for provider, row in record.holding.rows(record.consumer).items():
                by_provider.setdefault(provider, []).append(row)
        size = ROWS_MAX
        entries = [
            Entry(provider, deleted=rows[start:start + size])
            for provider, rows in sorted(by_provider.items())
            for start in range(0, len(rows), size)]
        if entries:
            self._ledger.do(entries)
        left = {row.consumer for entry in entries for row in entry.deleted
                if entry.outcome is not EntryOutcome.DONE}
        return [record for record in marked if record.consumer not in left]

    def _release(self, consumer: str) -> None:
        """Release one that was met on the way of something."""
        for _ in self._asks.attempts():
            standing = self._settling.settled(consumer, patient=False)
            record = standing.record
            if record is None:
                return
            marked = self._asks.write(record, record.replaced(
                records.GIVING if record.state == records.HELD
                else records.DROPPING))
            if marked is not None:
                self._settling.undo(marked)
                return
        self._asks.unreachable('others were always in the way')


def _is_plain(record: records.Record) -> bool:
    """Return whether no other row has anything to do with it."""
    return not record.members and not record.lead and (
        record.state in (records.HELD, records.TAKING))
