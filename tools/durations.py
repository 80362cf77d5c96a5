# SPDX-License-Identifier: Apache-2.0
"""How long the tests take that take long, for workers to share them evenly.

    durations.py known >stream              what tests/durations.csv says
    stestr last --subunit | durations.py learn

stestr shares tests by what they took before, which a new clone does not know.
"""

import collections
from collections.abc import Iterable
from collections.abc import Mapping
import configparser
import csv
import datetime
import pathlib
import re
import sys
from typing import Any

import subunit
import testtools

TOP = pathlib.Path(__file__).parents[1]
KNOWN = TOP / 'tests' / 'durations.csv'

#: Others are many, and chance shares them evenly.
LEAST_S = 4.0


def read() -> dict[str, float]:
    with open(KNOWN, encoding='utf-8', newline='') as lines:
        return {row['test']: float(row['seconds'])
                for row in csv.DictReader(lines)}


def known() -> None:
    """Print a stream in which each of the tests took so long."""
    begin = datetime.datetime(2000, 1, 1, tzinfo=datetime.timezone.utc)
    stream = subunit.StreamResultToBytes(sys.stdout.buffer)
    for test, seconds in read().items():
        end = begin + datetime.timedelta(seconds=seconds)
        stream.status(test_id=test, test_status='inprogress', timestamp=begin)
        stream.status(test_id=test, test_status='success', timestamp=end)


class _Taken(testtools.StreamResult):
    """What the tests of a stream took, in seconds by their names.

    What a worker waits for before a test, such as the fixtures of its class,
    counts as that test's.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[str, float] = {}
        #: Where each worker came to the end of a test.
        self._ends: dict[str, datetime.datetime] = {}
        self._begins: dict[str, datetime.datetime] = {}

    def status(
        self, test_id: str | None = None, test_status: str | None = None,
        test_tags: Iterable[str] | None = None,
        timestamp: datetime.datetime | None = None, **_: Any,
    ) -> None:
        if test_id is None or test_status is None or timestamp is None:
            return
        if test_status == 'inprogress':
            self._begins[test_id] = timestamp
        elif test_id in self._begins:
            begin = self._begins.pop(test_id)
            for worker in test_tags or ():
                begin = self._ends.get(worker, begin)
                self._ends[worker] = timestamp
            self.seconds[test_id] = round(
                (timestamp - begin).total_seconds(), 1)


def learn() -> None:
    """Note what the tests of a stream took."""
    taken = _Taken()
    taken.startTestRun()
    subunit.ByteStreamToStreamResult(
        sys.stdin.buffer, non_subunit_name='output').run(taken)
    taken.stopTestRun()
    seconds = _worth_knowing({**read(), **taken.seconds})
    with open(KNOWN, 'w', encoding='utf-8', newline='') as lines:
        writer = csv.writer(lines, lineterminator='\n')
        writer.writerow(['test', 'seconds'])
        writer.writerows(sorted(seconds.items()))


def _worth_knowing(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return those that take long, alone or as a group that one worker runs.

    Of a group all are needed: stestr takes one that it knows in part for as
    short as that part.
    """
    config = configparser.RawConfigParser()
    config.read(TOP / '.stestr.conf')
    is_grouped = re.compile(config['DEFAULT']['group_regex'])
    groups: dict[str, list[str]] = collections.defaultdict(list)
    for test in seconds:
        found = is_grouped.match(test)
        groups[found[0] if found else test].append(test)
    return {
        test: seconds[test] for group in groups.values()
        if sum(seconds[each] for each in group) >= LEAST_S for test in group}


if __name__ == '__main__':
    {'known': known, 'learn': learn}[sys.argv[1]]()
