# SPDX-License-Identifier: Apache-2.0
"""Pages of servers, while the last server of a page changes."""

from tests.functional import base


class TestPages(base.TestCase):

    def pages(self, key, way, change):
        """Page through all servers by their uuids.

        :param change: changes the server ``last`` when it ends a page
        """
        seen, marker = [], None
        while page := self.world.api.servers.list(
                base.ADMIN, None, [key], [way], limit=1,
                marker=marker).servers:
            marker = page[0].uuid
            seen.append(marker)
            if marker == self.last:
                change(marker)
                self.last = None
        return seen

    def check(self, key, way, change):
        self.deploy({'cell1': ['a1'], 'cell2': ['b1']})
        unchanged = {each.uuid for each in self.built(min_count=6)}
        [self.last] = self.unheard().servers.create(
            base.USER, 'a-first', 'small')

        seen = self.pages(key, way, change)

        self.assertEqual(set(), unchanged - set(seen))
        self.assertEqual(len(set(seen)), len(seen))

    def test_renamed_marker_skips_no_server(self):
        self.check('display_name', 'asc', lambda uuid:
                   self.world.api.servers.update(base.USER, uuid, 'zzz'))

    def test_changed_marker_repeats_no_server(self):
        self.check('created_at', 'desc', lambda uuid:
                   self.world.api.servers.update(base.USER, uuid, 'web'))

    def test_deleted_marker_skips_no_server(self):
        self.check('display_name', 'asc', lambda uuid:
                   self.world.api.servers.delete(base.USER, uuid))
