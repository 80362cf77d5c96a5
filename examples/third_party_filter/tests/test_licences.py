# SPDX-License-Identifier: Apache-2.0
"""Servers with licensed software.

What works by rows is asked as the scheduler asks it, through ``rows``.
"""

import unittest

from cellsched.filters import rows as filters
from cellsched import plugins
from cellsched.testing import builders
from cellsched.weighers import rows as weighers
from third_party_filter import licences

DATABASE = builders.request(extra_specs={'licence:product': 'database'})


def licensed(products, **metadata):
    """Return the aggregates of a host."""
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

    def test_server_without_the_product_may_go_anywhere(self):
        hosts = builders.hosts(aggregates=[(), licensed('database')])

        self.assertEqual([True, True], self.kept(hosts, builders.request()))

    def test_licence_may_be_for_so_many_servers(self):
        hosts = builders.hosts(
            aggregates=licensed('database', licence_servers='2'),
            num_instances=[0, 1, 2])

        self.assertEqual([True, True, False], self.kept(hosts))

    def test_number_that_is_none_is_not_overlooked(self):
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

    def test_who_needs_a_licence_likes_all_alike(self):
        self.assertEqual([0, 0], self.scores(DATABASE))
