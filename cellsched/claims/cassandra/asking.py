# SPDX-License-Identifier: Apache-2.0
"""Asking the server until it answers, and writing rows of consumers."""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
from random import Random
from typing import Any
from typing import NoReturn
from typing import Protocol

from cellsched.claims.cassandra import records
from cellsched.claims.cassandra import requests
from cellsched.claims import remote
from cellsched.clock import Clock
from cellsched import exception


class CassandraSender(Protocol):
    """A way to a server, or to a model of one."""

    def send(self, request: Any) -> Any:
        """Return the answer.

        :raises cellsched.claims.remote.NotSent: it is not done
        :raises cellsched.claims.remote.OutcomeUnknown: it may be done
        """


class Asking:
    """Asks what may be asked again.

    :param patience_s: seconds for which a call waits for a server that does
        not answer, and for others whom it meets
    :param place: says where the server is, without passwords
    """

    def __init__(
        self, client: CassandraSender, clock: Clock,
        random: Random, patience_s: float, place: str,
    ) -> None:
        self.client = client
        self.clock = clock
        self.random = random
        self._patience_s = patience_s
        self._place = place

    def attempts(self) -> Iterator[int]:
        return remote.attempts(self.clock, self.random, self._patience_s)

    def name(self) -> str:
        """Return a name that nothing has had before."""
        return f'{self.random.getrandbits(120):030x}'

    def unreachable(self, reason: object) -> NoReturn:
        raise exception.DatabaseUnreachable(
            schema='claims', url=self._place,
            reason=str(reason) or 'it does not answer in time')

    def ask(self, request: Any) -> Any:
        """Return the answer to a request that may be made twice."""
        return self.ask_all([request])[0]

    def ask_all(self, asked: Sequence[Any]) -> list[Any]:
        """Return the answers to requests that may be made twice."""
        answers: list[Any] = [_UNKNOWN] * len(asked)
        for _ in self.attempts():
            left = [number for number, answer in enumerate(answers)
                    if isinstance(answer, Exception)]
            for number, answer in zip(left, self.try_all(
                    [asked[number] for number in left])):
                answers[number] = answer
            failed = [answer for answer in answers
                      if isinstance(answer, Exception)]
            if not failed:
                return answers
        self.unreachable(failed[0])

    def try_all(self, asked: Sequence[Any]) -> list[Any]:
        """Return answers, or what is raised instead of each."""
        if not asked:
            return []
        try:
            if len(asked) == 1:
                return [self.client.send(asked[0])]
            answers: list[Any] = self.client.send(requests.Together(asked))
            return answers
        except (remote.NotSent, remote.OutcomeUnknown) as exc:
            return [exc] * len(asked)

    # Consumers.

    def read(self, consumer: str) -> records.Record | None:
        return self.read_all([consumer])[consumer]

    def read_all(
        self, consumers: Iterable[str]
    ) -> dict[str, records.Record | None]:
        names = list(dict.fromkeys(consumers))
        rows = self.ask_all([requests.ReadConsumer(name) for name in names])
        return {name: None if row is None
                else records.Record.parse(name, row)
                for name, row in zip(names, rows)}

    def write(
        self, seen: records.Record, record: records.Record | None
    ) -> records.Record | None:
        """Write a row in the place of one that was seen.

        :param record: None if the row is to go
        :returns: the row that was written, or the one that was seen if that
            is gone; None if the row was another one meanwhile
        """
        return self.write_all([(seen, record)])[0]

    def write_all(
        self,
        pairs: Sequence[tuple[records.Record, records.Record | None]],
    ) -> list[records.Record | None]:
        """Write rows, each as :meth:`write` does."""
        new = [None if record is None else dataclasses.replace(
            record, version=self.name()) for _, record in pairs]
        answers = self._ask_twice([
            requests.WriteConsumer(seen.consumer, seen.version, versioned(row))
            for (seen, _), row in zip(pairs, new)])
        return [(row or seen) if applied else None for applied, row, (seen, _)
                in zip(answers, new, pairs)]

    def insert_all(
        self, rows: Sequence[records.Record]
    ) -> list[records.Record | None]:
        """Insert rows where there are none; return those that are there.

        What is returned for a row that was inserted is that row, with its
        version.
        """
        new = [dataclasses.replace(row, version=self.name()) for row in rows]
        written = self._ask_twice([
            requests.WriteConsumer(row.consumer, None, versioned(row))
            for row in new])
        answers: list[records.Record | None] = list(new)
        others = {row.consumer: number for number, (row, applied)
                  in enumerate(zip(new, written)) if not applied}
        for name, found in self.read_all(others).items():
            answers[others[name]] = found
        return answers

    def _ask_twice(
        self, writes: Sequence[requests.WriteConsumer]
    ) -> list[bool]:
        """Return which of some writes were done.

        One whose outcome is unknown is made again: it has no effect on a row
        that it has changed, or that somebody else has.
        """
        answers = self.try_all(writes)
        doubtful = [number for number, answer in enumerate(answers)
                    if isinstance(answer, Exception)]
        if doubtful:
            again = self.ask_all([writes[number] for number in doubtful])
            for number, answer in zip(doubtful, again):
                answers[number] = answer
        # Of those the refusal may come from their own first time.
        unclear = [number for number in doubtful
                   if not answers[number].applied]
        found = self.ask_all([requests.ReadConsumer(writes[number].consumer)
                              for number in unclear])
        applied = [answer.applied for answer in answers]
        for number, row in zip(unclear, found):
            wanted = writes[number].row
            applied[number] = (
                row is None if wanted is None
                else row is not None and row.version == wanted.version)
        return applied


def versioned(record: records.Record | None) -> requests.Versioned | None:
    """Return a row as it is written."""
    return None if record is None else requests.Versioned(
        record.version, record.body())


_UNKNOWN = remote.OutcomeUnknown()
