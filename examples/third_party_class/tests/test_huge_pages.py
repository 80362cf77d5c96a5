# SPDX-License-Identifier: Apache-2.0
"""Tests of the huge pages resource class."""

import unittest

from cellsched.testing import builders
from cellsched.testing.suite import resource_classes
from third_party_class import huge_pages


class TestHugePages(resource_classes.ResourceClassSuite, unittest.TestCase):

    plugin = huge_pages.HugePages
    name = 'CUSTOM_HUGE_PAGES_MB'

    def test_amount_is_rounded_up_to_whole_pages(self):
        for requested, charged in (1, 1024), (1024, 1024), (1025, 2048):
            request = builders.request(extra_specs={
                f'resources:{self.name}': str(requested)})

            self.assertEqual(charged, request.resources()[self.name])
