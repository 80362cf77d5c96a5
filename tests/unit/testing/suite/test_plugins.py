# SPDX-License-Identifier: Apache-2.0
"""The hosts and requests that every plug-in is asked about."""

import importlib
import sys

from cellsched.filters import instance_hints
from cellsched.filters.resources import RamFilter
from cellsched.testing.suite import filters
from cellsched.testing.suite import weighers
from cellsched.weighers.resources import RAMWeigher
from tests.unit import base
from tests.unit.testing.suite import runner

_UNSAFE_MODULE = '''
from cellsched.filters import all_hosts
import pickle

class Unsafe(all_hosts.AllHostsFilter):
    """Does nothing, unsafely."""
'''


class TestColumnPluginSuite(filters.FilterSuite, base.TestCase):

    plugin = instance_hints.DifferentHostFilter

    def test_hosts_differ(self):
        hosts = self.make_hosts(10)

        for name in ('num_instances', 'free_ram_mb', 'service_disabled',
                     'availability_zone', 'available:VCPU'):
            self.assertGreater(len(set(hosts[name].tolist())), 1, name)

    def test_a_request_gives_every_hint_of_the_filter(self):
        self.assertEqual(
            [False, True], [bool(request.hint('different_host'))
                            for request in self.make_requests()])

    def test_error_for_a_missing_column_names_the_builder(self):
        """A filter's keep() and shortfall(), and a weigher's score()."""
        def read(self, hosts, request):
            return hosts['inlet_celsius'] < 30

        for suite, kind, method in (
                (filters.FilterSuite, RamFilter, 'keep'),
                (filters.FilterSuite, RamFilter, 'shortfall'),
                (weighers.WeigherSuite, RAMWeigher, 'score')):
            texts = runner.texts(suite, type(kind.__name__, (kind,), {
                '__doc__': 'Reads a column.', method: read}))
            named = [text for text in texts.values()
                     if "The host table has no column 'inlet_celsius'" in text]

            self.assertTrue(named)
            for text in named:
                self.assertIn('builders.hosts(columns=…)', text)

    def test_module_with_pickle_is_detected(self):
        directory = self.temporary_directory()
        (directory / 'unsafe_plugin.py').write_text(_UNSAFE_MODULE)
        sys.path.insert(0, str(directory))
        self.addCleanup(sys.path.remove, str(directory))
        self.addCleanup(sys.modules.pop, 'unsafe_plugin', None)
        module = importlib.import_module('unsafe_plugin')

        self.assertIn('test_module_runs_no_stored_objects',
                      runner.failures(filters.FilterSuite, module.Unsafe))
