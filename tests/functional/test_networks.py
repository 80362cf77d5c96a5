# SPDX-License-Identifier: Apache-2.0
"""Networks of servers, from their builds to their deletions."""

import json

from cellsched.standalone import deployment
from tests.functional import base

#: The largest host comes first.
LARGE = 65536


def host(name, memory_mb=16384, **behaviour):
    return deployment.DeployedHost(
        name, memory_mb=memory_mb, behaviour=behaviour)


class TestNetworks(base.TestCase):

    def deploy(self, *hosts, **options):
        self.path = self.temporary_directory() / 'networks'
        super().deploy(
            {'cell1': hosts},
            DEFAULT={'network_driver': 'fake'},
            conductor={'network_sweep_interval': 1},
            fake_network={'records': self.path, **options})

    def records(self, uuid):
        """Return what was done for a server: call and host."""
        return [
            (each['call'], each['host'])
            for each in map(json.loads, self.path.read_text().splitlines())
            if each['instance'] == uuid]

    def assertNetworksMatch(self):
        """The active servers, and no others, have networks on their hosts."""
        network = self.world.agents['a1'].parts.network

        def check():
            expected = {
                found.uuid: {found.host} for found in map(
                    self.get, self.listed()) if found.status == 'ACTIVE'}
            self.assertEqual(expected, network.allocated())

        self.soon(check)

    def test_servers_have_networks_until_deleted(self):
        self.deploy(host('a1'), host('a2'))
        built = self.built(min_count=4)
        self.assertNetworksMatch()

        for found in built[:2]:
            self.delete(found.uuid)
        self.gone(*(found.uuid for found in built[:2]))

        self.assertNetworksMatch()

    def test_retried_build_keeps_its_networks(self):
        self.deploy(host('a1', LARGE, fail_builds=1), host('a2'))

        [found] = self.built()

        self.assertEqual(('ACTIVE', 'a2'), (found.status, found.host))
        self.assertEqual(
            [('allocate', 'a1'), ('cleanup', 'a1'), ('setup', 'a2')],
            self.records(found.uuid))
        self.assertNetworksMatch()

    def test_server_deleted_during_its_build_has_no_networks(self):
        self.deploy(host('a1', fail_builds=1))
        go_on = self.driver('a1').hold_builds()
        [uuid] = self.create()
        self.until(lambda: self.get(uuid).task_state == 'spawning',
                   'the build has begun')

        self.delete(uuid)
        go_on.set()

        self.gone(uuid)
        self.assertNetworksMatch()

    def test_unreleased_ports_are_deallocated_later(self):
        self.deploy(host('a1'), fail_deallocations=1)
        [found] = self.built()

        self.delete(found.uuid)
        self.gone(found.uuid)

        self.assertNetworksMatch()
