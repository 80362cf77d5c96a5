# SPDX-License-Identifier: Apache-2.0
"""What Nova's conductor asks for a server that has a host already."""

from cellsched.migrations import consumers
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

        taken = [claim.resources['VCPU'] for name in consumers(self.uuids)
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

    def test_build_that_fails_gets_another_host_each_time(self):
        for pin in (None, 'pike'):
            uuids, tried, providers = base.new(1), [], []
            for _ in range(3):
                host = self.host_of(self.selected(
                    uuids, pin, objects=pin is None, alternates=False,
                    retry={'num_attempts': len(tried), 'hosts': [
                        [each, each] for each in tried]}))

                self.assertNotIn(host, tried)
                # It holds that one and no other.
                [provider] = [claim.provider for name in consumers(uuids)
                              for claim in self.world.held_by(name)]
                self.assertNotIn(provider, providers)
                tried.append(host)
                providers.append(provider)

    def test_server_gets_another_image_where_it_is_and_claims_nothing(self):
        before = self.world.held_by(self.uuids[0])
        wishes = {'force_hosts': [self.host], 'force_nodes': [self.host],
                  'scheduler_hints': {'_nova_check_type': ['rebuild']}}

        [[told]] = self.selected(self.uuids, alternates=False, **wishes)

        self.assertEqual((self.host, 'null', None), tuple(
            told['fields'][name] for name in (
                'service_host', 'allocation_request',
                'allocation_request_version')))
        for pin in base.OLDER:
            self.assertEqual(self.host, self.host_of(self.selected(
                self.uuids, pin, objects=False, alternates=False, **wishes)))
        self.assertEqual(before, self.world.held_by(self.uuids[0]))

    @staticmethod
    def host_of(answer):
        [told] = answer
        return (told['host'] if isinstance(told, dict)
                else told[0]['fields']['service_host'])
