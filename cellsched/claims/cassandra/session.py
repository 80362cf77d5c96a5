# SPDX-License-Identifier: Apache-2.0
"""Requests that are repeated until there is an answer, and consumers' rows."""

from collections.abc import Callable
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

        :raises cellsched.exception.DatabaseUnreachable: some have none in
            time
        """
        return self._repeat(len(asked), asked.__getitem__)

    def _repeat(self, count: int, make: Callable[[int], Any]) -> list[Any]:
        """Return the answers to requests.

        Only requests without an answer are repeated.

        :param make: makes the request of a number, for each try
        """
        answers: list[Any] = [_UNKNOWN] * count
        pending = [*range(count)]
        for _ in self.attempts() if pending else ():
            for number, answer in zip(pending, self.try_all(
                    [make(number) for number in pending])):
                answers[number] = answer
            pending = [number for number in pending
                       if isinstance(answers[number], Exception)]
            if not pending:
                break
        else:
            if pending:
                self.unreachable(answers[pending[0]])
        return answers

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
        self, consumers: Iterable[str], serial: bool = True
    ) -> dict[str, records.Record | None]:
        """Return the row of each consumer; None if there is none.

        :param serial: see :class:`.requests.ReadConsumer`
        """
        names = list(dict.fromkeys(consumers))
        rows = self.ask_all([
            requests.ReadConsumer(name, serial) for name in names])
        found: dict[str, records.Record | None] = dict.fromkeys(names)
        for name, row in zip(names, rows):
            if row is not None:
                found[name] = record = records.Record.parse(name, row)
                if record.unreadable:
                    self.report(record.unreadable)
        return found

    def report(self, problem: str) -> None:
        """Log an unreadable record, once."""
        if problem not in self._reported:
            self._reported.add(problem)
            LOG.error('In the claim store, %s', problem)

    def write(
        self, seen: records.Record | None, record: records.Record | None
    ) -> records.Record | None:
        """Write a row as :meth:`write_all` does."""
        return self.write_all([(seen, record)])[0]

    def write_all(
        self, pairs: Sequence[
            tuple[records.Record | None, records.Record | None]],
    ) -> list[records.Record | None]:
        """Write consumers' rows that still have the version read before.

        :param pairs: the row that was read, or None if there is none; and the
            new row, or None to delete it
        :returns: of each the row that was written, or the deleted one; None if
            another client has changed the row
        """
        # Each try has a version of its own. A late try that inserts a row
        # again after its deletion has a version that no later write expects.
        tries: list[list[records.Record]] = [[] for _ in pairs]

        def make(number: int) -> requests.WriteConsumer:
            seen, new = pairs[number]
            if new is None:
                assert seen is not None
                return requests.WriteConsumer(
                    seen.consumer, seen.version, None)
            new = dataclasses.replace(new, version=self.name())
            tries[number].append(new)
            return requests.WriteConsumer(
                new.consumer, seen.version if seen else None,
                requests.VersionedRow(new.version, new.body()))

        answers = self._repeat(len(pairs), make)
        written = [(new and tried[-1]) or seen if answer else None
                   for (seen, new), tried, answer
                   in zip(pairs, tries, answers)]
        # A write is refused if it was applied before: by an earlier try, or
        # because the driver or a coordinator repeated it. The version of the
        # row shows it.
        refused = {row.consumer: number
                   for number, pair in enumerate(pairs) for row in pair
                   if row is not None and not answers[number]}
        for name, found in self.read_all(refused).items():
            number = refused[name]
            if found is None:
                written[number] = None if tries[number] else pairs[number][0]
            else:
                written[number] = next(
                    (each for each in tries[number]
                     if each.version == found.version), None)
        return written


_UNKNOWN = remote.OutcomeUnknown()
