# SPDX-License-Identifier: Apache-2.0
"""Servers with resources of child and sharing providers, on their ways."""

from cellsched.standalone import deployment
from cellsched.wiring import services
from tests.functional import base
from tests.functional import moving

GPU = {'gpu': {'inventories': {'VGPU': 2}, 'traits': ['CUSTOM_FAST']}}


class GroupsCase(moving.TestCase):

    #: Of the first host.
    behaviour = {}

    def setUp(self):
        super().setUp()
        self.start({'cell1': [
            deployment.DeployedHost('a1', memory_mb=65536, providers=GPU,
                                    behaviour=self.behaviour),
            deployment.DeployedHost('a2', providers=GPU),
            deployment.DeployedHost('a3')]})
        flavors = self.world.api.flavors
        flavors.create(base.ADMIN, 'graphics', 1, 512)
        flavors.set_extra_specs(base.ADMIN, 'graphics', {
            'resources1:VGPU': '2', 'trait1:CUSTOM_FAST': 'required'})

    def children(self):
        """Return the nodes of child providers, by uuid."""
        return {record.uuid: record.root for record
                in self.world.api.providers.list(base.ADMIN).providers
                if record.kind == 'child'}

    def assertHoldsGPUOf(self, host, uuid):
        def check():
            held = {each.provider: dict(each.resources)
                    for each in self.held(uuid)}
            node = self.provider('cell1', host)
            self.assertEqual(
                {'VCPU': 1, 'MEMORY_MB': 512}, held.pop(node, None))
            self.assertEqual(1, len(held))
            [(child, taken)] = held.items()
            self.assertEqual({'VGPU': 2}, taken)
            self.assertEqual(node, self.children()[child])
        self.soon(check)

    def assertMovesEnded(self, uuid):
        """The records of moves have ended, which follows their claims."""
        self.soon(lambda: self.assertEqual(
            {'done'}, set(self.statuses(uuid))))

    def assertAuditIsClean(self):
        auditor = services.auditor(self.world.api.parts)
        self.soon(lambda: self.assertEqual(
            [], auditor.run(settle_s=0).remaining))


class TestMovesOfGroups(GroupsCase):

    def test_migrated_server_gives_back_its_device_and_has_another(self):
        [server] = self.built(flavor='graphics')
        self.assertHoldsGPUOf('a1', server.uuid)

        for host in ('a2', 'a1'):
            self.moves.migrate(base.ADMIN, server.uuid)

            self.assertHoldsGPUOf(host, server.uuid)
            self.assertMovesEnded(server.uuid)
        [second] = self.built(flavor='graphics')
        self.assertEqual(('ACTIVE', 'a2'), (second.status, second.host))
        self.assertAuditIsClean()

    def test_shelved_server_releases_its_device(self):
        [server] = self.built(flavor='graphics')
        self.moves.shelve(base.ADMIN, server.uuid)
        self.soon(lambda: self.assertEqual([], self.held(server.uuid)))
        self.assertMovesEnded(server.uuid)

        self.moves.unshelve(base.ADMIN, server.uuid)

        self.until(lambda: self.get(server.uuid).status == 'ACTIVE',
                   'it is back')
        self.assertHoldsGPUOf(self.get(server.uuid).host, server.uuid)
        self.assertAuditIsClean()

    def test_evacuated_server_has_the_device_of_another_host(self):
        [server] = self.built(flavor='graphics')
        self.down('a1')

        self.moves.evacuate(base.ADMIN, server.uuid)

        self.assertHoldsGPUOf('a2', server.uuid)

    def test_move_without_a_free_device_fails(self):
        servers = self.built(flavor='graphics', min_count=2)

        self.moves.migrate(base.ADMIN, servers[0].uuid)

        self.soon(lambda: self.assertEqual(
            ['error'], self.statuses(servers[0].uuid)))
        self.assertHoldsGPUOf('a1', servers[0].uuid)
        self.assertHoldsGPUOf('a2', servers[1].uuid)


class TestReschedule(GroupsCase):

    behaviour = {'fail_builds': 1}

    def test_retried_build_has_the_device_of_its_alternate(self):
        [server] = self.built(flavor='graphics')

        self.assertEqual(('ACTIVE', 'a2', 2), (
            server.status, server.host, server.attempts))
        self.assertHoldsGPUOf('a2', server.uuid)
        self.assertAuditIsClean()
