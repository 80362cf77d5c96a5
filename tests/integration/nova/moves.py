# SPDX-License-Identifier: Apache-2.0
"""What Nova's conductor asks for a server that has a host already."""

from cellsched.scheduler import moves
from tests.integration.nova import base
from tests.integration import processes


class Moves(base.TestCase):

    def setUp(self):
        super().setUp()
        self.uuids = base.new(1)
        [self.host] = base.hosts(self.selected(self.uuids))

    def test_server_that_migrates_leaves_its_host(self):
        found = self.selected(self.uuids, ignore_hosts=[self.host])

        self.assertNotEqual((self.host,), base.hosts(found))

    def test_server_that_migrates_goes_where_it_is_sent(self):
        target = 'c2-a' if self.host != 'c2-a' else 'c2-b'

        found = self.selected(self.uuids, alternates=False,
                              destination={'host': target, 'node': target})

        self.assertEqual((target,), base.hosts(found))

    def test_server_that_is_resized_takes_its_new_size(self):
        self.selected(self.uuids, flavor={**base.SMALL, 'vcpus': 4})

        taken = [claim.resources['VCPU'] for name in moves.names(self.uuids)
                 for claim in self.world.held_by(name)]
        self.assertEqual([base.SMALL['vcpus'], 4], taken)

    def test_host_that_says_that_the_server_has_gone_is_free(self):
        self.selected(self.uuids, ignore_hosts=[self.host])

        self.assertIsNone(self.called(
            'delete_instance_info', host_name=self.host,
            instance_uuid=self.uuids[0]))

        processes.wait_until(
            lambda: not self.world.held_by(self.uuids[0]),
            'its claim to be released')
