# SPDX-License-Identifier: Apache-2.0
"""Tests of the filter and the weigher for licensed software.

They run through ``RowFilter`` and ``RowWeigher``, as in the scheduler.
"""

import unittest

from cellsched.filters import base as filters
from cellsched import plugins
from cellsched.testing import builders
from cellsched.weighers import base as weighers
from third_party_filter import licences

DATABASE = builders.request(extra_specs={'licence:product': 'database'})


def licensed(products, **metadata):
    """Return aggregates of a host with a licence for these products."""
    return (builders.aggregate(1, ssd='true'),
            builders.aggregate(2, licence_products=products, **metadata))


class TestLicenceFilter(unittest.TestCase):

    def kept(self, hosts, request=DATABASE):
        filter_ = filters.RowFilter(licences.LicenceFilter())
        return filter_.keep(hosts, request).tolist()

    def test_entry_point_has_the_name_of_the_class(self):
        self.assertIs(licences.LicenceFilter,
                      plugins.load(plugins.FILTERS, 'LicenceFilter'))

    def test_host_needs_a_licence_for_the_product(self):
        hosts = builders.hosts(aggregates=[
            (), licensed('word'), licensed('word, database')])

        self.assertEqual([False, False, True], self.kept(hosts))

    def test_flavor_without_a_product_keeps_every_host(self):
        hosts = builders.hosts(aggregates=[(), licensed('database')])

        self.assertEqual([True, True], self.kept(hosts, builders.request()))

    def test_licence_limits_the_servers_of_a_host(self):
        hosts = builders.hosts(
            aggregates=licensed('database', licence_servers='2'),
            num_instances=[0, 1, 2])

        self.assertEqual([True, True, False], self.kept(hosts))

    def test_limit_that_is_not_a_number_raises_an_error(self):
        hosts = builders.hosts(
            aggregates=[licensed('database', licence_servers='many')])

        self.assertRaisesRegex(ValueError, 'many', self.kept, hosts)


class TestUnlicensedWeigher(unittest.TestCase):

    def scores(self, request):
        weigher = weighers.RowWeigher(licences.UnlicensedWeigher())
        hosts = builders.hosts(aggregates=[(), licensed('database')])
        return weigher.score(hosts, request).tolist()

    def test_entry_point_has_the_name_of_the_class(self):
        self.assertIs(licences.UnlicensedWeigher,
                      plugins.load(plugins.WEIGHERS, 'UnlicensedWeigher'))

    def test_host_without_a_licence_is_better(self):
        self.assertEqual([1, 0], self.scores(builders.request()))

    def test_server_with_a_product_scores_all_hosts_equally(self):
        self.assertEqual([0, 0], self.scores(DATABASE))
