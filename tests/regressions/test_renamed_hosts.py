# SPDX-License-Identifier: Apache-2.0
"""A machine whose agent gets another name or cell loses no guest."""

from cellsched import exception
from cellsched.standalone import deployment
from tests.functional import base
from tests.regressions import machines


class TestRenamedHost(machines.TestCase):

    def setUp(self):
        super().setUp()
        self.begin({'cell1': ['a1']})
        self.uuids = sorted(each.uuid for each in self.built(min_count=2))
        self.machine = self.stop_agent('a1')

    def rename(self, name='a1.example.org', **options):
        return self.restart(self.machine, 'cell1', 'a1', name, **options)

    def assertRefused(self, *texts, **options):
        error = self.assertRaises(
            exception.HostIdentityConflict, self.rename, **options)
        for text in texts:
            self.assertIn(text, str(error))
        self.assertEqual(self.uuids, self.machine.list_instances())

    def assertAdopted(self, provider):
        self.awaits_report('a1.example.org', {})
        self.assertEqual(self.uuids, self.machine.list_instances())
        for uuid in self.uuids:
            row = self.row(uuid)
            self.assertEqual(('a1.example.org', 'a1.example.org', 'active'), (
                row.host, row.node, row.vm_state))
            self.assertEqual([provider], [
                claim.provider for claim in self.held(uuid)])
        self.assertEqual([provider], self.provider_of('a1.example.org'))
        self.assertEqual([], self.provider_of('a1'))
        self.assertClaimsMatch()
        # It can be used as before.
        [new] = self.built()
        self.assertEqual(('ACTIVE', 'a1.example.org'), (new.status, new.host))
        self.delete(self.uuids[0])
        self.gone(self.uuids[0])
        self.assertHoldsNothing(self.uuids[0])
        self.assertEqual(sorted([*self.uuids[1:], new.uuid]),
                         self.machine.list_instances())

    def test_agent_does_not_start_under_another_name(self):
        for state in {}, {'state_path': self.other_directory()}:
            self.assertRefused(
                'a1', *self.uuids, '[compute] adopt_guests', **state)

    def test_renamed_host_adopts_its_servers_with_their_claims(self):
        [provider] = self.provider_of('a1')

        self.rename(adopt_guests=True)

        self.assertAdopted(provider)

    def test_machine_without_its_state_adopts_guests_and_their_host(self):
        [provider] = self.provider_of('a1')

        self.rename(adopt_guests=True, state_path=self.other_directory())

        self.assertAdopted(provider)

    def test_guests_of_a_running_host_are_not_adopted(self):
        self.world.api.services.set(
            base.ADMIN, 'a1', machines.COMPUTE, forced_down=False)

        for state in {}, {'state_path': self.other_directory()}:
            self.assertRefused('up', adopt_guests=True, **state)

    def test_host_without_servers_keeps_its_node_under_another_name(self):
        [provider] = self.provider_of('a1')
        self.restart(self.machine, 'cell1', 'a1')
        for uuid in self.uuids:
            self.delete(uuid)
        self.gone(*self.uuids)
        self.stop_agent('a1')

        self.rename()

        self.assertEqual([provider], self.provider_of('a1.example.org'))
        self.assertEqual([], self.provider_of('a1'))


class TestServerGroups(machines.TestCase):

    def test_groups_of_a_renamed_host_keep_their_policies(self):
        self.begin({'cell1': ['a1']})
        hints = {policy: {'group': [self.world.api.server_groups.create(
            base.USER, policy, policy).uuid]}
            for policy in ('affinity', 'anti-affinity')}
        [apart] = self.built(hints=hints['anti-affinity'])
        [near] = self.built(hints=hints['affinity'])
        machine = self.stop_agent('a1')

        self.restart(machine, 'cell1', 'a1', 'renamed', adopt_guests=True)
        self.world.start_host('cell1', deployment.DeployedHost('a2'))

        self.awaits_report('renamed', {})
        self.assertEqual({'renamed'}, {each.host for each in (
            self.world.api.parts.claims.memberships(
                [apart.uuid, near.uuid]).values())})
        self.assertEqual(['ACTIVE', 'renamed'], self.place(hints['affinity']))
        self.assertEqual(
            ['ACTIVE', 'a2'], self.place(hints['anti-affinity']))
        self.assertEqual(['ERROR', None], self.place(hints['anti-affinity']))
        self.assertClaimsMatch()

    def place(self, hints):
        [found] = self.built(hints=hints)
        return [found.status, found.host]


class TestEvacuatedHost(machines.TestCase):

    def test_renamed_host_removes_evacuated_guests(self):
        self.begin({'cell1': ['a1', 'a2']})
        uuid = self.active()
        source = self.row(uuid).host
        machine = self.stop_agent(source)
        self.moves.evacuate(base.ADMIN, uuid)
        self.soon(lambda: self.assertEqual(
            self.other(source), self.rested(uuid).host))
        self.assertEqual([uuid], machine.list_instances())

        self.restart(machine, 'cell1', source, 'renamed')

        self.soon(lambda: self.assertEqual([], machine.list_instances()))
        self.soon(lambda: self.assertEqual(['done'], self.statuses(uuid)))
        self.assertEqual([self.other(source)], self.running(uuid))


class TestOtherCell(machines.TestCase):

    def test_agent_does_not_start_with_the_servers_of_another_cell(self):
        self.begin({'cell1': ['a1'], 'cell2': []})
        uuids = sorted(each.uuid for each in self.built(min_count=8))
        machine = self.stop_agent('a1')
        conf = self.conf_of('cell2', 'a1', host='a1-new')

        error = self.assertRaises(
            exception.HostIdentityConflict, self.start_agent, machine, conf)

        self.assertIn('cell does not know', str(error))
        self.assertIn(uuids[0], str(error))
        self.assertIn('[compute] adopt_guests', str(error))
        self.assertEqual(uuids, machine.list_instances())
        self.assertEqual([], self.provider_of('a1-new', 'cell2'))

        self.start_agent(machine, self.conf_of(
            'cell2', 'a1', host='a1-new', adopt_guests=True))

        self.awaits_report('a1-new', {
            uuid: ('unknown', None) for uuid in uuids}, cell='cell2')
        self.assertEqual(uuids, machine.list_instances())

    def test_new_host_without_guests_starts(self):
        self.begin({'cell1': ['a1']})

        self.world.start_host('cell1', deployment.DeployedHost('a2'))

        self.assertEqual(1, len(self.provider_of('a2')))
