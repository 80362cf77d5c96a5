# SPDX-License-Identifier: Apache-2.0
"""AggregateImagePropertiesIsolation."""

import hypothesis
from hypothesis import strategies as st

from cellsched.filters import aggregate_image_properties_isolation
from cellsched.testing import builders
from cellsched.testing.suite import filters
from tests.unit import base
from tests.unit.filters import agreeing
from tests.unit import strategies

NAMESPACE = 'aggregate_image_properties_isolation_namespace'
SEPARATOR = 'aggregate_image_properties_isolation_separator'


class TestAggregateImagePropertiesIsolation(
        agreeing.Agreeing, filters.FilterSuite, base.TestCase):

    plugin = (aggregate_image_properties_isolation
              .AggregateImagePropertiesIsolation)

    def make_requests(self):
        return [builders.request(), builders.request(image={'os': 'linux'})]

    def assertPasses(self, expected, image, *metadata, **options):
        """Check one host in aggregates with this metadata."""
        aggregates = tuple(
            builders.aggregate(number, **each)
            for number, each in enumerate(metadata, 1))
        self.assertKeeps(
            [expected], builders.hosts(aggregates=[aggregates]),
            builders.request(image=image), **options)

    def test_image_property_must_be_among_values_of_aggregates(self):
        for expected, image, *metadata in (
                (True, {}, {'os': 'linux'}),
                (True, None, {'os': 'linux'}),
                (True, {'os': 'linux'}),
                (True, {'os': 'linux'}, {}),
                (True, {'os': 'linux'}, {'os': 'linux'}),
                (False, {'os': 'linux'}, {'os': 'windows'}),
                (False, {'os': 'linux'}, {'os': ''}),
                (True, {'os': 'linux'}, {'os': 'windows, linux'}),
                (True, {'os': 'linux'}, {'os': 'windows'}, {'os': 'linux'}),
                (True, {'arch': 'arm'}, {'os': 'linux'}),
                (True, {'hw_architecture': 'AMD64'},
                 {'hw_architecture': 'x86_64'}),
                (True, {'hw_architecture': 'amd64'},
                 {'hw_architecture': 'amd64'}),
                (False, {'hw_architecture': 'x86_64'},
                 {'hw_architecture': 'amd64'}),
                (True, {'os_type': 'Linux'}, {'os_type': 'linux'}),
                (False, {'os': 'Linux'}, {'os': 'linux'}),
                (True, {'hw_boot_menu': 'true'}, {'hw_boot_menu': 'true'}),
                (True, {'hw_boot_menu': 'yes'}, {'hw_boot_menu': 'True'}),
                (True, {'hw_boot_menu': 'false'}, {'hw_boot_menu': 'True'}),
                (True, {'hw_cpu_sockets': '02'}, {'hw_cpu_sockets': '2'}),
                (True, {'hw_cpu_sockets': '0'}, {'hw_cpu_sockets': '0'}),
                (False, {'os': 'linux', 'arch': 'arm'},
                 {'os': 'linux'}, {'arch': 'x86_64'}),
                (True, {'hw_cpu_sockets': 2}, {'hw_cpu_sockets': '2'}),
                (False, {'hw_cpu_sockets': 2}, {'hw_cpu_sockets': '1'}),
                (True, {'hw_boot_menu': True}, {'hw_boot_menu': 'True'}),
                (False, {'hw_boot_menu': True}, {'hw_boot_menu': 'yes'}),
                (True, {'hw_boot_menu': False}, {'hw_boot_menu': 'True'}),
                (True, {'hw_cpu_sockets': 0}, {'hw_cpu_sockets': '1'}),
                (True, {'os': ''}, {'os': 'linux'}),
                (True, {'os': []}, {'os': 'linux'}),
                (False, {'os': float('nan')}, {'os': 'linux'}),
                (False, {'os': 'x' * 1_000_000}, {'os': 'linux'}),
                (True, {'__class__': 'a'}, {'__class__': 'a'})):
            with self.subTest(image=str(image)[:80], metadata=metadata):
                self.assertPasses(expected, image, *metadata)

    def test_namespace_restricts_the_keys(self):
        for expected, metadata in (
                (True, {'os': 'windows'}), (True, {'aOS': 'windows'}),
                (False, {'a.os': 'windows'}), (True, {'a.os': 'linux'})):
            with self.subTest(metadata=metadata):
                self.assertPasses(
                    expected,
                    {'os': 'linux', 'a.os': 'linux', 'aOS': 'linux'},
                    metadata, **{NAMESPACE: 'a'})

    def test_separator_ends_the_namespace(self):
        for expected, separator in ((False, '_'), (True, '.')):
            self.assertPasses(
                expected, {'a_os': 'linux'}, {'a_os': 'windows'},
                **{NAMESPACE: 'a', SEPARATOR: separator})

    def test_separator_without_namespace_is_ignored(self):
        self.assertPasses(False, {'os': 'linux'}, {'os': 'windows'},
                          **{SEPARATOR: 'x'})

    def test_runs_on_rebuild(self):
        self.assertTrue(self.plugin.run_on_rebuild)

    @hypothesis.given(
        hosts=strategies.hosts({
            'os': st.sampled_from(['a', 'b', 'a, b', '']),
            'size': st.sampled_from(['1', '2', 'True'])}),
        image=st.dictionaries(
            st.sampled_from(['os', 'size', 'availability_zone', 'x']),
            st.sampled_from(['a', 'b', 1, True, False, 0, None, 'zone1'])))
    def test_column_verdict_equals_row_verdicts(self, hosts, image):
        def passes(host, request):
            for each in host.aggregates:
                for key in each.metadata:
                    values = [value.strip() for other in host.aggregates
                              if key in other.metadata
                              for value in other.metadata[key].split(',')]
                    if image.get(key) and str(image[key]) not in values:
                        return False
            return True

        self.assertAgrees(passes, hosts, builders.request(image=image))
