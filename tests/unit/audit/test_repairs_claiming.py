# SPDX-License-Identifier: Apache-2.0
"""Repairs that claim, if the finding is still valid."""

import dataclasses

from oslo_serialization import jsonutils

from cellsched.audit import auditor
from cellsched.audit import findings
from cellsched.claims import base as claims_base
from cellsched.db.cell import instances
from cellsched import exception
from cellsched.hardware import units
from cellsched import migrations
from cellsched import objects
from tests.unit.audit import base
from tests.unit.db import samples

Action = findings.Action


class TestClaiming(base.TestCase):

    def found(self, uuid):
        """Return the only repair, and the state of the server."""
        facts = self.reader.servers([uuid], everywhere=True, asked=True)[uuid]
        [found] = [each for each in auditor.judge(facts) if each.action]
        return found, facts

    def unclaimed(self):
        uuid = self.running()
        self.claims.release([uuid])
        return uuid

    def elsewhere(self):
        uuid = self.unclaimed()
        self.take(uuid, 'a2')
        return uuid

    def test_server_on_another_node_does_not_claim(self):
        uuid = self.unclaimed()
        found, facts = self.found(uuid)
        self.assertEqual(Action.CLAIM, found.action)

        for values in ({'host': 'a2', 'node': 'node-a2'},
                       {'host': 'a1', 'node': 'gone'},
                       {'host': 'a1', 'node': 'node-a1',
                        'task_state': 'deleting'}):
            self.change_row(uuid, 'cell1', **values)
            self.repairs.repair(found, facts)
            self.assertEqual({}, self.held(uuid), values)

        self.change_row(uuid, 'cell1', task_state=None)
        self.repairs.repair(found, facts)
        self.assertEqual({self.providers['a1']: base.SIZE}, self.held(uuid))

    def test_claims_of_named_cpus_are_not_replaced(self):
        self.claims.set_inventory(self.providers['a1'], {
            **{name: claims_base.Inventory(99999) for name in base.SIZE},
            units.cpu(3): claims_base.Inventory(1)})
        for amounts in ({**base.SIZE, 'VCPU': 2}, base.SIZE):
            uuid = self.running()
            self.claims.release([uuid])
            self.take(uuid, 'a1', **amounts, **{units.cpu(3): 1})
            self.change_row(uuid, 'cell1', project_id='project')
            if amounts == base.SIZE:
                self.take_second(uuid)
            facts = self.reader.servers(
                [uuid], everywhere=True, asked=True)[uuid]

            [found] = [each for each in auditor.judge(facts)
                       if each.kind.startswith('claim-')]

            self.assertIsNone(found.action, found.kind)
            self.assertIn('only a scheduler chooses its CPUs', found.advice)
            self.claims.release([uuid])

    def take_second(self, uuid):
        """Add a claim elsewhere, in a way that the product never does."""
        held = self.claims.claims_of([uuid])[uuid]
        self.claims.release([uuid])
        self.claims.claim([*held, claims_base.Claim(
            uuid, self.providers['a2'], base.SIZE, project_id='project',
            user_id='user')])

    def test_claim_has_the_project_and_user_of_the_server(self):
        for make, owner in ((self.unclaimed, ('whose', 'who')),
                            (self.elsewhere, ('whose', None)),
                            (self.unclaimed, (None, None)),
                            (self.unclaimed, ('', ''))):
            uuid = make()
            self.change_row(
                uuid, 'cell1', project_id=owner[0], user_id=owner[1])

            self.repairs.repair(*self.found(uuid))

            [claim] = self.claims.claims_of([uuid])[uuid]
            self.assertEqual(
                (self.providers['a1'], owner[0] or None, owner[1] or None),
                (claim.provider, claim.project_id, claim.user_id))

    def test_server_without_a_row_does_not_claim(self):
        uuid = self.unclaimed()
        found, facts = self.found(uuid)
        self.write(self.cell('cell1'), instances.purge, [uuid])

        self.repairs.repair(found, facts)

        self.assertEqual({}, self.held(uuid))

    def test_repairs_without_a_shared_store_change_no_claim(self):
        unclaimed, elsewhere = self.unclaimed(), self.elsewhere()
        leaked = self.deleted()
        found = [self.found(uuid)
                 for uuid in (unclaimed, elsewhere, leaked)]
        self.assertEqual([Action.CLAIM, Action.RECLAIM, Action.RELEASE],
                         [each.action for each, _ in found])
        before = self.claims.claims_of([unclaimed, elsewhere, leaked])
        self.reader.claims = None

        for each, facts in found:
            self.repairs.repair(each, facts)
        self.repairs.recount(self.providers['a1'])

        self.assertEqual(
            before, self.claims.claims_of([unclaimed, elsewhere, leaked]))
        self.assertFalse(self.repairs.release(leaked, Action.RELEASE))

    def test_server_without_a_known_node_does_not_claim(self):
        uuid = self.unclaimed()
        found, facts = self.found(uuid)
        cell = self.by_name['cell1'].uuid
        facts = dataclasses.replace(facts, rows={
            cell: dataclasses.replace(facts.rows[cell], provider=None)})

        self.repairs.repair(found, facts)

        self.assertEqual({}, self.held(uuid))

    def test_server_of_unknown_size_cannot_claim(self):
        for values, asked, problem in (
                ({}, True, 'is missing'), ({'spec': 'x'}, True,
                                           'cannot be read'),
                ({}, False, 'was not looked at')):
            uuid = self.unclaimed()
            self.spoil(uuid, 'request_specs', **values)
            found, facts = self.found(uuid)
            if not asked:
                facts = self.reader.servers([uuid])[uuid]

            error = self.assertRaises(
                exception.RequestUnreadable, self.repairs.repair, found,
                facts)

            self.assertEqual(
                (uuid, 'request specification', problem),
                (error.uuid, error.what, error.problem))
            self.assertEqual({}, self.held(uuid))

    def test_claim_of_a_member_counts_for_its_group(self):
        for make in self.unclaimed, self.elsewhere:
            uuid, other = make(), samples.uuids(1)[0]
            group = objects.InstanceGroup(
                uuid=samples.uuids(1)[0], name='g', project_id='project',
                user_id='user', policy='anti-affinity', rules={})
            self.join(group, uuid)
            self.spoil(uuid, 'request_specs', spec=jsonutils.dumps(
                objects.RequestSpec(
                    instance_uuid=uuid, flavor=samples.flavor(),
                    instance_group=group).obj_to_primitive()))

            self.repairs.repair(*self.found(uuid))

            self.assertEqual(
                {self.providers['a1']: base.SIZE}, self.held(uuid))
            self.assertRaises(
                exception.GroupPolicyViolated, self.claims.claim,
                [claims_base.Claim(
                    other, self.providers['a1'], base.SIZE,
                    claims_base.membership(group, 'a1', other))])

    def test_claim_of_a_changing_server_is_unchanged(self):
        uuid = self.elsewhere()
        found, facts = self.found(uuid)
        self.assertEqual(Action.RECLAIM, found.action)
        self.change_row(uuid, 'cell1', task_state='rebuilding')

        self.repairs.repair(found, facts)

        self.assertEqual({self.providers['a2']: base.SIZE}, self.held(uuid))
        self.assertEqual({}, self.held(migrations.consumer(uuid)))


class TestReleasing(base.TestCase):

    def test_claims_of_a_server_deleted_before_its_row_leak(self):
        for action in Action.RELEASE, Action.RELEASE_MOVE:
            uuid = self.accept()
            name = (uuid if action is Action.RELEASE
                    else migrations.consumer(uuid))
            self.take(name, 'a1')
            self.decide(uuid, 'cell1')
            self.forget(uuid)
            self.assertFalse(self.repairs.release(uuid, action))
            self.assertNotEqual({}, self.held(name))

            self.write(self.database,
                       base.instance_mappings.mark_deleted, [uuid],
                       samples.NOW)
            self.assertTrue(self.repairs.release(uuid, action))
            self.assertEqual({}, self.held(name))

    def test_claims_of_a_buried_server_leak_with_or_without_a_record(self):
        for lost in False, True:
            uuid = self.failed()
            name = migrations.consumer(uuid)
            self.take(uuid, 'a1')
            self.take(name, 'a2')
            if lost:
                self.write(self.cell('cell0'), instances.purge, [uuid])
            else:
                # Whatever its record says, it is on no host.
                self.change_row(uuid, 'cell0', task_state='rebuilding')

            self.assertTrue(self.repairs.release(uuid, Action.RELEASE))
            self.assertEqual({}, self.held(uuid))
            self.assertTrue(self.repairs.release(uuid, Action.RELEASE_MOVE))
            self.assertEqual({}, self.claims.claims_of([uuid, name]))

    def test_claim_of_a_move_leaks_when_its_server_is_at_rest(self):
        for values, leaks in (
                ({'task_state': 'resize_prep'}, False),
                ({'task_state': None}, True),
                ({'task_state': 'resize_prep', 'deleted': 1}, True)):
            uuid = self.running()
            self.claims.release([uuid])
            self.take(migrations.consumer(uuid), 'a2')
            self.change_row(uuid, 'cell1', **values)

            self.assertEqual(leaks, self.repairs.release(
                uuid, Action.RELEASE_MOVE), values)
            self.assertEqual(not leaks, bool(self.held(
                migrations.consumer(uuid))), values)
