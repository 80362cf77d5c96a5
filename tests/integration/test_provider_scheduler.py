# SPDX-License-Identifier: Apache-2.0
"""A scheduler that keeps no hosts, with all databases on PostgreSQL."""

from tests.functional import test_provider_scheduler as stories
from tests.integration import base
from tests.integration import servers


class TestProviderScheduler(stories.TestProviderScheduler, base.TestCase):

    def setUp(self):
        self.database_url = self.url
        super().setUp()

    def url(self, name):
        if not hasattr(self, 'part'):
            self.part = self.part_of(servers.PostgreSQL)
        return self.part.url(name)
