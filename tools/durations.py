# SPDX-License-Identifier: Apache-2.0
"""How long the tests take that take long, for workers to share them evenly.

    durations.py known >stream              what tests/durations.csv says
    stestr last --subunit | durations.py learn

stestr shares tests by what they took before, which a new clone does not know.
"""

import csv
import datetime
import pathlib
import sys

import subunit
import testtools

KNOWN = pathlib.Path(__file__).parents[1] / 'tests' / 'durations.csv'

#: Others are many, and chance shares them evenly.
LEAST_S = 4


def read() -> dict[str, int]:
    with open(KNOWN, encoding='utf-8', newline='') as lines:
        return {row['test']: int(row['seconds'])
                for row in csv.DictReader(lines)}


def known() -> None:
    """Print a stream in which each of the tests took so long."""
    begin = datetime.datetime(2000, 1, 1, tzinfo=datetime.timezone.utc)
    stream = subunit.StreamResultToBytes(sys.stdout.buffer)
    for test, seconds in read().items():
        end = begin + datetime.timedelta(seconds=seconds)
        stream.status(test_id=test, test_status='inprogress', timestamp=begin)
        stream.status(test_id=test, test_status='success', timestamp=end)


def learn() -> None:
    """Note what the tests of a stream took."""
    taken = read()

    def note(case: testtools.testresult.real.TestRecord) -> None:
        begin, end = case.timestamps
        if begin and end:
            taken[case.id] = round((end - begin).total_seconds())

    result = testtools.StreamToTestRecord(note)
    result.startTestRun()
    subunit.ByteStreamToStreamResult(
        sys.stdin.buffer, non_subunit_name='output').run(result)
    result.stopTestRun()
    with open(KNOWN, 'w', encoding='utf-8', newline='') as lines:
        writer = csv.writer(lines, lineterminator='\n')
        writer.writerow(['test', 'seconds'])
        writer.writerows(
            row for row in sorted(taken.items()) if row[1] >= LEAST_S)


if __name__ == '__main__':
    {'known': known, 'learn': learn}[sys.argv[1]]()
