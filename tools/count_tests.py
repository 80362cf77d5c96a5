# SPDX-License-Identifier: Apache-2.0
"""Count the tests of a subunit stream.

    count_tests.py NAME STATUS SKIPS FAILURES <stream

Prints ``NAME passed failed skipped`` and adds the reasons of skips to the file
SKIPS and the ends of what failed to the file FAILURES. A run whose exit STATUS
says that it failed has one failure at least.
"""

import sys

import subunit
import testtools

# Of what a test said, the end tells why.
LINES = 40


def main(name: str, status: str, skips: str, failures: str) -> None:
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
    with open(failures, 'a', encoding='utf-8') as output:
        for case, text in summary.errors:
            output.write(f'  {case.id()}\n')
            for line in text.rstrip().splitlines()[-LINES:]:
                output.write(f'    {line}\n')
        for case in summary.unexpectedSuccesses:
            output.write(f'  {case.id()}: passed, which was not expected\n')
    print(name, passed, failed, len(summary.skipped))


if __name__ == '__main__':
    main(*sys.argv[1:])
