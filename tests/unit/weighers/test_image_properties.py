# SPDX-License-Identifier: Apache-2.0
"""ImagePropertiesWeigher."""

import hypothesis
from hypothesis import strategies as st
import numpy as np

from cellsched.testing import builders
from cellsched.testing.suite import weighers
from cellsched.weighers import image_properties
from tests.unit import base
from tests.unit import strategies

NAMES = ['os_distro', 'hw_machine_type', 'tags']

VALUES = ['q35', 'pc', ['a', 'b'], 1, True]

SERVERS = st.lists(st.tuples(
    st.sampled_from(NAMES), st.sampled_from([str(value) for value in VALUES]),
    st.integers(1, 9)), unique_by=lambda row: row[:2]).map(tuple)

SETTINGS = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from([-1.5, 0.0, 2.0])))


def servers(**props):
    """Return what a host tells of its servers, by property and value."""
    return tuple((name, value, count) for name, counts in props.items()
                 for value, count in counts.items())


class TestImagePropertiesWeigher(weighers.WeigherSuite, base.TestCase):

    plugin = image_properties.ImagePropertiesWeigher

    def make_requests(self):
        return [*super().make_requests(),
                builders.request(image={'os_distro': 'windows'})]

    def make_hosts(self, count):
        return builders.hosts(count, image_props=[
            servers(os_distro={'windows': row}) for row in range(count)])

    def setUp(self):
        super().setUp()
        self.hosts = builders.hosts(image_props=[
            (), servers(os_distro={'windows': 3, 'linux': 9}),
            servers(os_distro={'linux': 1}, hw_machine_type={'q35': 2}),
            servers(os_distro={'windows': 1}, hw_machine_type={'q35': 5})])
        self.request = builders.request(
            image={'os_distro': 'windows', 'hw_machine_type': 'q35'})

    def test_score_counts_each_property_in_common(self):
        self.assertScores([0, 3, 2, 6], self.hosts, self.request)

    def test_only_properties_in_the_setting_count(self):
        for setting, expected in (
                ('os_distro=1,hw_machine_type=-1', [0, 3, -2, -4]),
                ('os_distro=2.5', [0, 7.5, 0, 2.5]),
                ('os_distro=0', [0, 0, 0, 0]), ('unknown=1', [0, 0, 0, 0]),
                # The last one counts, where one is named twice.
                ('os_distro=1,os_distro=3', [0, 9, 0, 3])):
            self.assertScores(expected, self.hosts, self.request,
                              image_props_weight_setting=setting)

    def test_setting_without_a_number_is_an_error(self):
        for setting in ('os_distro', 'os_distro=', 'os_distro=x', '=1',
                        'os_distro=nan', 'os_distro=inf'):
            self.assertRaises(ValueError, builders.plugin, self.plugin,
                              image_props_weight_setting=setting)

    def test_request_without_properties_is_not_weighed(self):
        plugin = builders.plugin(self.plugin)
        for fields in ({}, {'image': None}, {'image': {}}):
            self.assertFalse(plugin.applies(builders.request(**fields)))
        self.assertTrue(plugin.applies(self.request))

    def test_default_multiplier_is_zero(self):
        plugin = builders.plugin(self.plugin)

        self.assertEqual(0.0, plugin.multiplier(self.hosts))

    def test_long_values_are_compared_up_to_255_characters(self):
        long = 'x' * 255
        hosts = builders.hosts(image_props=[servers(os_distro={long: 2}), ()])

        self.assertScores([2, 0], hosts, builders.request(
            image={'os_distro': long + 'y'}))

    def test_spellings_of_a_value_are_equal(self):
        hosts = builders.hosts(image_props=[
            servers(hw_architecture={'amd64': 2, 'x86_64': 1, 'i686': 4}),
            servers(os_distro={'Debian': 1}, hw_boot_menu={'yes': 5})])

        self.assertScores([3, 5], hosts, builders.request(image={
            'hw_architecture': 'AMD64', 'os_distro': 'debian',
            'hw_boot_menu': 'true'}))

    @hypothesis.given(
        hosts=strategies.hosts(image_props=SERVERS), setting=SETTINGS,
        image=st.dictionaries(st.sampled_from([*NAMES, 'os_type']),
                              st.sampled_from(VALUES)))
    def test_column_score_equals_row_scores(self, hosts, setting, image):
        ratios = dict(setting)

        def weigh(host, _):
            there = {(name, value): count
                     for name, value, count in host.image_props}
            return sum(
                there.get((name, str(value)), 0)
                * (ratios.get(name, 0) if ratios else 1)
                for name, value in image.items())

        request = builders.request(image=image)
        plugin = builders.plugin(self.plugin, image_props_weight_setting=[
            f'{name}={ratio}' for name, ratio in setting])
        np.testing.assert_allclose(
            strategies.scored_by_rows(weigh, hosts, request),
            strategies.scored_by_columns(plugin, hosts, request), atol=1e-12)
