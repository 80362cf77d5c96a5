# SPDX-License-Identifier: Apache-2.0
"""Requests of Nova's conductor for a server with a host."""

from cellsched.migrations import consumers
from tests.integration.nova import base
from tests.integration import processes


class Moves(base.TestCase):

    def setUp(self):
        super().setUp()
        self.uuids = base.new(1)
        [self.host] = base.hosts(self.selected(self.uuids))

    def test_migrated_server_gets_another_host(self):
        found = self.selected(self.uuids, ignore_hosts=[self.host])

        self.assertNotEqual((self.host,), base.hosts(found))

    def test_migrated_server_gets_the_requested_host(self):
        target = 'c2-a' if self.host != 'c2-a' else 'c2-b'

        found = self.selected(self.uuids, alternates=False,
                              destination={'host': target, 'node': target})

        self.assertEqual((target,), base.hosts(found))

    def test_resized_server_claims_its_new_size(self):
        self.selected(self.uuids, flavor={**base.SMALL, 'vcpus': 4})

        taken = [claim.resources['VCPU'] for name in consumers(self.uuids)
                 for claim in self.world.held_by(name)]
        self.assertEqual([base.SMALL['vcpus'], 4], taken)

    def test_claim_of_a_deleted_server_is_released(self):
        self.selected(self.uuids, ignore_hosts=[self.host])

        self.assertIsNone(self.called(
            'delete_instance_info', host_name=self.host,
            instance_uuid=self.uuids[0]))

        processes.wait_until(
            lambda: not self.world.held_by(self.uuids[0]),
            'its claim to be released')

    def test_failed_build_gets_another_host_each_time(self):
        for pin in (None, 'pike'):
            uuids, tried, providers = base.new(1), [], []
            for _ in range(3):
                host = self.host_of(self.selected(
                    uuids, pin, objects=pin is None, alternates=False,
                    retry={'num_attempts': len(tried), 'hosts': [
                        [each, each] for each in tried]}))

                self.assertNotIn(host, tried)
                # The server has one claim, on the new host.
                [provider] = [claim.provider for name in consumers(uuids)
                              for claim in self.world.held_by(name)]
                self.assertNotIn(provider, providers)
                tried.append(host)
                providers.append(provider)

    def test_rebuild_stays_on_the_host_without_a_claim(self):
        before = self.world.held_by(self.uuids[0])
        wishes = {'force_hosts': [self.host], 'force_nodes': [self.host],
                  'scheduler_hints': {'_nova_check_type': ['rebuild']}}

        [[selection]] = self.selected(self.uuids, alternates=False, **wishes)

        self.assertEqual((self.host, 'null', None), tuple(
            selection['fields'][name] for name in (
                'service_host', 'allocation_request',
                'allocation_request_version')))
        for pin in base.OLDER:
            self.assertEqual(self.host, self.host_of(self.selected(
                self.uuids, pin, objects=False, alternates=False, **wishes)))
        self.assertEqual(before, self.world.held_by(self.uuids[0]))

    @staticmethod
    def host_of(answer):
        [selection] = answer
        return (selection['host'] if isinstance(selection, dict)
                else selection[0]['fields']['service_host'])
