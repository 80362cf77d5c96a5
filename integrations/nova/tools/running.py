# SPDX-License-Identifier: Apache-2.0
"""Run tests of Nova's, with its scheduler or with ours; Nova's python does.

``running.py list MODULE…`` prints the tests of modules. ``running.py
nova|ours FILE`` reads names of tests and appends what became of each to a
file, a line of JSON for each test, as soon as it is over.
"""

import importlib
import json
import os
import sys
import time
import traceback
import unittest

from nova import monkey_patch

monkey_patch.patch()

from oslo_config import cfg  # noqa: E402

#: Seconds for which hosts are decided on as they were read.
REFRESH_INTERVAL_S = float(os.environ.get('CELLSCHED_REFRESH_INTERVAL', 0))

#: Characters of the end of a traceback that are kept.
_TOLD_MAX = 3000


class Outcomes(unittest.TestResult):
    """Writes what became of each test."""

    def __init__(self, stream):
        super().__init__()
        self._stream = stream
        self._began = 0.0
        self._worst = {}

    def startTest(self, test):
        super().startTest(test)
        self._began = time.monotonic()
        self._worst = {'outcome': 'passed'}

    def stopTest(self, test):
        super().stopTest(test)
        json.dump({'test': test.id(), **self._worst,
                   'seconds': round(time.monotonic() - self._began, 2)},
                  self._stream)
        self._stream.write('\n')
        self._stream.flush()

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._worst = {'outcome': 'skipped', 'why': reason}

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self._worst = {'outcome': 'passed'}

    def addFailure(self, test, err):
        self._fail(err)

    def addError(self, test, err):
        self._fail(err)

    def addUnexpectedSuccess(self, test):
        self._worst = {'outcome': 'failed', 'why': 'unexpected success'}

    def _fail(self, err):
        why = ''.join(traceback.format_exception(*err))
        said = '\n'.join(line for line in why.splitlines()
                         if '[cellsched' in line)
        self._worst = {'outcome': 'failed', 'why': why[-_TOLD_MAX:],
                       'said': said[-_TOLD_MAX:]}


def install_scheduler():
    """Have Nova's services run the manager of this project."""
    # Nova's tests forbid to ask for the machine, which NumPy does when it is
    # imported.
    from cellsched_nova import manager
    from cellsched_nova import options

    # Tests write to Placement and read what came of it at once, and have no
    # place for records. What is set in the configuration they undo.
    cfg.set_defaults(options.OPTS, refresh_interval=REFRESH_INTERVAL_S,
                     decision_retention=0)
    options.register_opts(manager.CONF)
    manager.install_manager()


def tests_in(suite):
    """Yield the tests of a suite, however deep they are."""
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from tests_in(each)
        else:
            yield each


def load(modules):
    return tests_in(unittest.defaultTestLoader.loadTestsFromNames(modules))


def test_of(name):
    """Return a test by its whole name.

    The loader would call what a decorator made of a method.
    """
    path, _, method = name.rpartition('.')
    module, _, kind = path.rpartition('.')
    return getattr(importlib.import_module(module), kind)(method)


def main(arguments):
    what, *names = arguments
    if what == 'list':
        for test in load(names):
            print(test.id())
        return 0
    if what == 'ours':
        install_scheduler()
    wanted, results = names
    with open(wanted) as stream:
        tests = stream.read().split()
    with open(results, 'a') as stream:
        outcomes = Outcomes(stream)
        for name in tests:
            test_of(name).run(outcomes)
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
