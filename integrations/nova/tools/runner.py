# SPDX-License-Identifier: Apache-2.0
"""Run tests of Nova with its scheduler or with this one, in Nova's python.

``runner.py list MODULE…`` prints the tests of modules. ``runner.py nova|ours
TESTS RESULTS`` reads names of tests from a file, and appends the result of
each test to another file, a line of JSON as soon as the test ends.
"""

import importlib
import json
import sys
import time
import traceback
import unittest

from nova import monkey_patch

monkey_patch.patch()

from nova import objects as nova_objects  # noqa: E402
from oslo_config import cfg  # noqa: E402

#: Number of last characters of a traceback in the results.
_LOGGED_MAX = 3000


class Outcomes(unittest.TestResult):
    """Writes the result of each test."""

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
        logged = '\n'.join(line for line in why.splitlines()
                           if '[cellsched' in line)
        self._worst = {'outcome': 'failed', 'why': why[-_LOGGED_MAX:],
                       'logged': logged[-_LOGGED_MAX:]}


def install_scheduler():
    """Make Nova's services use the manager of this project."""
    # NumPy reads the machine type during its import. Nova's tests forbid this
    # read, so the import must come first.
    from cellsched_nova import manager
    from cellsched_nova import options

    # Tests have no database for records. They reset overrides, but not
    # defaults.
    cfg.set_defaults(options.OPTS, decision_retention=0)
    options.register_opts(manager.CONF)
    manager.install_manager()
    show_hosts_to_mocks()


def show_hosts_to_mocks():
    """Show the hosts that columns decide on to the mocks of Nova's tests.

    Tests replace ``host_passes`` of Nova's filters of hardware, to check
    which hosts Nova asks about. The filters on columns decide as before.
    """
    # See install_scheduler.
    from cellsched.filters import numa_topology
    from cellsched.filters import pci_passthrough
    from nova.scheduler.filters import numa_topology_filter
    from nova.scheduler.filters import pci_passthrough_filter

    for ours, novas in (
            (numa_topology.NUMATopologyFilter,
             numa_topology_filter.NUMATopologyFilter),
            (pci_passthrough.PciPassthroughFilter,
             pci_passthrough_filter.PciPassthroughFilter)):
        ours.keep = _shown(ours.applies, ours.keep, novas)
        # Nova asks about each request, and about the hosts that remain.
        ours.applies = _always
        ours.by_row = True


def _always(plugin, request):
    return True


def _shown(applies, keep, novas):
    """Return the method of a filter that also calls Nova's mock."""
    # See install_scheduler.
    from cellsched.hosts import state

    def shown(plugin, hosts, request):
        replaced = vars(novas)['host_passes']
        if hasattr(replaced, 'call_count'):
            spec = nova_objects.RequestSpec.obj_from_primitive(
                request.obj_to_primitive())
            effect, replaced.side_effect = replaced.side_effect, None
            for place in range(len(hosts)):
                replaced(state.HostState(hosts, place), spec)
            replaced.side_effect = effect
        return keep(plugin, hosts, request) if applies(
            plugin, request) else None

    return shown


def tests_in(suite):
    """Yield the tests of a suite and of its nested suites."""
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from tests_in(each)
        else:
            yield each


def load(modules):
    return tests_in(unittest.defaultTestLoader.loadTestsFromNames(modules))


def test_of(name):
    """Return a test by its full name.

    The loader fails for methods that some decorators replace.
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
    listed, results = names
    with open(listed) as stream:
        tests = stream.read().split()
    with open(results, 'a') as stream:
        outcomes = Outcomes(stream)
        for name in tests:
            test_of(name).run(outcomes)
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
