# SPDX-License-Identifier: Apache-2.0
"""Requests that are repeated until there is an answer, and consumers' rows."""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
from random import Random
from typing import Any
from typing import NoReturn
from typing import Protocol

from oslo_log import log

from cellsched.claims.cassandra import records
from cellsched.claims.cassandra import requests
from cellsched.claims import remote
from cellsched.clock import Clock
from cellsched import exception

LOG = log.getLogger(__name__)

#: Reason of a call that lost to other clients until its timeout.
CONTENDED = 'other clients change the same rows'


class CassandraSender(Protocol):
    """A connection to a server, or to a model of one."""

    def send(self, request: Any) -> Any:
        """Return the answer to one of :mod:`.requests`.

        :raises cellsched.claims.remote.NotSent: the request was not executed
        :raises cellsched.claims.remote.OutcomeUnknown: the request may have
            been executed
        """


class Session:
    """Repeats requests that may be repeated.

    :param retry_timeout_s: seconds for which a call is repeated
    :param place: URL of the server without passwords, for error messages
    """

    def __init__(
        self, client: CassandraSender, clock: Clock,
        random: Random, retry_timeout_s: float, place: str,
    ) -> None:
        self.client = client
        self.clock = clock
        self.random = random
        self._retry_timeout_s = retry_timeout_s
        self._place = place
        self._reported: set[str] = set()

    def attempts(self) -> Iterator[int]:
        """Yield numbers of attempts, as :func:`.remote.attempts` does."""
        return remote.attempts(self.clock, self.random, self._retry_timeout_s)

    def name(self) -> str:
        """Return a new unique name, of an attempt or a version."""
        return f'{self.random.getrandbits(120):030x}'

    def unreachable(self, reason: object) -> NoReturn:
        raise exception.DatabaseUnreachable(
            schema='claims', url=self._place,
            reason=str(reason) or 'it does not answer in time')

    def ask(self, request: Any) -> Any:
        """Return the answer to an idempotent request.

        :raises cellsched.exception.DatabaseUnreachable: there is none in time
        """
        return self.ask_all([request])[0]

    def ask_all(self, asked: Sequence[Any]) -> list[Any]:
        """Return the answers to idempotent requests, in their order.

        Only requests without an answer are repeated.

        :raises cellsched.exception.DatabaseUnreachable: some have none in
            time
        """
        answers: list[Any] = [_UNKNOWN] * len(asked)
        for _ in self.attempts():
            unanswered = [number for number, answer in enumerate(answers)
                          if isinstance(answer, Exception)]
            for number, answer in zip(unanswered, self.try_all(
                    [asked[number] for number in unanswered])):
                answers[number] = answer
            failed = [answer for answer in answers
                      if isinstance(answer, Exception)]
            if not failed:
                return answers
        self.unreachable(failed[0])

    def try_all(self, asked: Sequence[Any]) -> list[Any]:
        """Send requests once; return an answer or an error for each."""
        if not asked:
            return []
        try:
            if len(asked) == 1:
                return [self.client.send(asked[0])]
            answers: list[Any] = self.client.send(requests.Together(asked))
            return answers
        except (remote.NotSent, remote.OutcomeUnknown) as exc:
            return [exc] * len(asked)

    @contextlib.contextmanager
    def announced(self, consumers: Iterable[str]) -> Iterator[None]:
        """Note operations on consumers until they end without an error.

        If this process stops, :meth:`.recovery.ConsumerRecovery.sweep` of
        another one finds them by their notes.
        """
        bucket = int(self.clock.timestamp() // requests.BUCKET_S)
        names = list(dict.fromkeys(consumers))
        self.try_all([requests.Announce(bucket, name) for name in names])
        try:
            yield
        except exception.DatabaseError:
            raise
        except exception.CellschedException:
            # A refusal, after which nothing remains.
            self._forget(bucket, names)
            raise
        self._forget(bucket, names)

    def _forget(self, bucket: int, names: Iterable[str]) -> None:
        self.try_all([requests.Announce(bucket, name, is_over=True)
                      for name in names])

    # Consumers.

    def read(self, consumer: str) -> records.Record | None:
        return self.read_all([consumer])[consumer]

    def read_all(
        self, consumers: Iterable[str]
    ) -> dict[str, records.Record | None]:
        """Return the row of each consumer; None if there is none."""
        names = list(dict.fromkeys(consumers))
        rows = self.ask_all([requests.ReadConsumer(name) for name in names])
        found = {name: None if row is None
                 else records.Record.parse(name, row)
                 for name, row in zip(names, rows)}
        for record in found.values():
            if record is not None and record.unreadable:
                self.report(record.unreadable)
        return found

    def report(self, problem: str) -> None:
        """Log an unreadable record, once."""
        if problem not in self._reported:
            self._reported.add(problem)
            LOG.error('In the claim store, %s', problem)

    def write(
        self, seen: records.Record, record: records.Record | None
    ) -> records.Record | None:
        """Replace a consumer's row if it still has the version read before.

        :param record: None to delete the row
        :returns: the row that was written, or the deleted one; None if
            another client has changed the row
        """
        return self.write_all([(seen, record)])[0]

    def write_all(
        self,
        pairs: Sequence[tuple[records.Record, records.Record | None]],
    ) -> list[records.Record | None]:
        """Replace rows, each as :meth:`write` does."""
        new = [None if record is None else dataclasses.replace(
            record, version=self.name()) for _, record in pairs]
        answers = self._write_twice([
            requests.WriteConsumer(seen.consumer, seen.version, versioned(row))
            for (seen, _), row in zip(pairs, new)])
        return [(row or seen) if applied else None for applied, row, (seen, _)
                in zip(answers, new, pairs)]

    def insert_all(
        self, rows: Sequence[records.Record]
    ) -> list[records.Record | None]:
        """Insert rows of consumers that have none.

        :returns: the row of each consumer afterwards: the inserted one with
            its version, or that of another client; None if that is deleted
            meanwhile
        """
        answers: list[Any] = [_UNKNOWN] * len(rows)
        for _ in self.attempts():
            # Each try has a version of its own. A try that arrives after the
            # row was deleted inserts a version that no later write expects.
            unanswered = [number for number, answer in enumerate(answers)
                          if isinstance(answer, Exception)]
            new = [dataclasses.replace(rows[number], version=self.name())
                   for number in unanswered]
            for number, row, answer in zip(unanswered, new, self.try_all([
                    requests.WriteConsumer(row.consumer, None, versioned(row))
                    for row in new])):
                answers[number] = row if _applied(answer) else answer
            failed = [answer for answer in answers
                      if isinstance(answer, Exception)]
            if not failed:
                break
        else:
            self.unreachable(failed[0])
        # A refused row may be that of an earlier try of this call.
        refused = {rows[number].consumer: number
                   for number, answer in enumerate(answers)
                   if isinstance(answer, requests.Written)}
        for name, found in self.read_all(refused).items():
            answers[refused[name]] = found
        return answers

    def _write_twice(
        self, writes: Sequence[requests.WriteConsumer]
    ) -> list[bool]:
        """Return which of some writes of existing rows were applied."""
        # 1. Send all of them. Repeat those of unknown outcome: a repetition
        #    has no effect on a row that the first one has changed.
        answers = self.try_all(writes)
        repeated = [number for number, answer in enumerate(answers)
                    if isinstance(answer, Exception)]
        if repeated:
            again = self.ask_all([writes[number] for number in repeated])
            for number, answer in zip(repeated, again):
                answers[number] = answer
        # 2. A write is refused if it was applied before: by the first try, or
        #    because the driver or a coordinator repeated it. The version of
        #    the row shows it.
        refused = [
            number for number, answer in enumerate(answers)
            if not answer.applied and (
                number in repeated or writes[number].row is not None)]
        found = self.ask_all([requests.ReadConsumer(writes[number].consumer)
                              for number in refused])
        applied = [answer.applied for answer in answers]
        for number, row in zip(refused, found):
            written = writes[number].row
            applied[number] = (
                row is None if written is None
                else row is not None and row.version == written.version)
        return applied


def _applied(answer: Any) -> bool:
    return isinstance(answer, requests.Written) and answer.applied


def versioned(record: records.Record | None) -> requests.VersionedRow | None:
    """Return a row as it is written."""
    return None if record is None else requests.VersionedRow(
        record.version, record.body())


_UNKNOWN = remote.OutcomeUnknown()
