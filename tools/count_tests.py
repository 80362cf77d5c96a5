# SPDX-License-Identifier: Apache-2.0
"""Count the tests of a subunit stream.

    count_tests.py NAME STATUS SKIPS <stream

Prints ``NAME passed failed skipped`` and adds the reasons of skips to the file
SKIPS. A run whose exit STATUS says that it failed has one failure at least.
"""

import sys

import subunit
import testtools


def main(name: str, status: str, skips: str) -> None:
    summary = testtools.StreamSummary()
    summary.startTestRun()
    subunit.ByteStreamToStreamResult(
        sys.stdin.buffer, non_subunit_name='output').run(summary)
    summary.stopTestRun()
    failed = len(summary.errors) + len(summary.unexpectedSuccesses)
    passed = summary.testsRun - failed - len(summary.skipped)
    if status != '0':
        failed = failed or 1
    with open(skips, 'a', encoding='utf-8') as output:
        for case, reason in summary.skipped:
            output.write(f'  {case.id()}: {reason.strip()}\n')
    print(name, passed, failed, len(summary.skipped))


if __name__ == '__main__':
    main(*sys.argv[1:])
