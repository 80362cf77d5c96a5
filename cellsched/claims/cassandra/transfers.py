# SPDX-License-Identifier: Apache-2.0
"""Transfers: two consumers' rows that change with one write."""

import dataclasses

from cellsched.claims.cassandra import asking
from cellsched.claims.cassandra import records
from cellsched.claims.cassandra.settling import held
from cellsched.claims.cassandra.settling import Settling


class RowTransferring:
    """Has one consumer hold what another one held.

    The row of the source says where it goes, and that of the target where
    from; then one write to the source's decides for both.
    """

    def __init__(
        self, asks: asking.Asking, settling: Settling
    ) -> None:
        self._asks = asks
        self._settling = settling

    def transfer(self, source: str, target: str) -> bool:
        for _ in self._asks.attempts():
            standing = self._settling.settled(source)
            if standing.record is None:
                return False
            before = self._settling.settled(target).record
            if self._try(standing.record, target, before):
                return True
        self._asks.unreachable('others were always in the way')

    def _try(
        self, source: records.Record, target: str,
        before: records.Record | None,
    ) -> bool:
        if source.members:
            self._settling.tell_members(source)
        link = self._asks.name()
        moving = self._asks.write(source, held(source).replaced(
            records.MOVING, other=target, link=link))
        if moving is None:
            return False
        receiving = records.Record(
            target, records.RECEIVING,
            dataclasses.replace(
                source.holding, attempt=link, several=False),
            other=source.consumer, link=source.attempt,
            before=before.holding if before else None)
        if not self._prepare(before, receiving):
            self._asks.write(moving, held(moving))
            return False
        moved = self._asks.write(moving, moving.replaced(records.MOVED))
        if moved is None:
            # Somebody undid it, and the target is as it was once it is met.
            return False
        self._settling.finish_move(moved)
        return True

    def _prepare(
        self, before: records.Record | None, receiving: records.Record
    ) -> bool:
        if before is not None:
            if before.members:
                self._settling.tell_members(before)
            return self._asks.write(before, receiving) is not None
        [found] = self._asks.insert_all([receiving])
        return found is not None and found.attempt == receiving.attempt
