# SPDX-License-Identifier: Apache-2.0

from oslo_serialization import jsonutils

from cellsched.claims import base as claims_base
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import server_moves
from cellsched import migrations
from cellsched import objects
from cellsched.objects import child_providers
from tests.unit.audit import base
from tests.unit.db import samples


class TestClaims(base.TestCase):

    def test_claim_of_a_deleted_server_goes(self):
        uuid = self.deleted()

        self.assertMends(('S4', 'claim-leaked', uuid, 'cell1'))

        self.assertEqual({}, self.claims.claims_of([uuid]))

    def test_claim_of_an_error_on_a_host_stays(self):
        uuid = self.running()
        self.change_row(uuid, 'cell1', vm_state='error')

        self.assertMends(('S13', 'no-reason', uuid, 'cell1'))

        self.assertIn(uuid, self.claims.claims_of([uuid]))

    def test_running_server_without_a_claim_claims(self):
        uuid = self.running()
        self.claims.release([uuid])

        self.assertMends(('S4', 'unclaimed', uuid, 'cell1'))

        [claim] = self.claims.claims_of([uuid])[uuid]
        self.assertEqual((self.providers['a1'], base.SIZE),
                         (claim.provider, claim.resources))

    def test_running_server_without_a_claim_on_a_full_host_stays(self):
        uuid = self.running()
        self.claims.release([uuid])
        for other in samples.uuids(4):
            self.take(other, 'a1')

        report = self.assertFound(
            ('S4', 'unclaimed', uuid, 'cell1'), fix=True)

        self.assertEqual([], report.repaired)

    def test_server_without_resources_needs_no_claim(self):
        uuid = self.running()
        self.claims.release([uuid])
        spec = objects.RequestSpec(instance_uuid=uuid, flavor=samples.flavor(
            vcpus=0, memory_mb=0, root_gb=0))
        self.spoil(uuid, 'request_specs',
                   spec=jsonutils.dumps(spec.obj_to_primitive()))
        self.change_row(uuid, 'cell1', vcpus=0, memory_mb=0, root_gb=0)

        self.assertClean()


class TestRightClaims(base.TestCase):
    """A server at rest holds one claim, on its host, of its size."""

    def hold(self, uuid, *places, **resources):
        """Replace the claims of a server."""
        self.claims.release([uuid])
        self.claims.claim([
            claims_base.Claim(uuid, self.providers[host],
                              resources or base.SIZE, project_id='project')
            for host in places])

    def assertHolds(self, uuid, host):
        self.assertEqual({self.providers[host]: base.SIZE}, self.held(uuid))
        self.assertEqual({}, self.held(migrations.consumer(uuid)))

    def test_claim_on_another_host_is_claimed_anew(self):
        uuid = self.running()
        self.hold(uuid, 'a2')

        self.assertMends(('S4', 'claim-elsewhere', uuid, 'cell1'))

        self.assertHolds(uuid, 'a1')

    def give_child(self, host):
        """Give a host a child with four VGPU; return it."""
        node = self.providers[host]
        uuid = child_providers.uuid_of(node, 'gpu0')
        self.write(self.cell('cell1'), compute_nodes.save, '', host,
                   f'node-{host}', {'providers': child_providers.dump([
                       child_providers.Child(uuid, 'gpu0')])}, samples.NOW)
        self.claims.set_inventory(uuid, {'VGPU': claims_base.Inventory(4)})
        return uuid

    def test_claims_on_child_providers_stay_after_a_second_claim(self):
        uuid, child = self.running(), self.give_child('a1')
        self.providers['other'] = self.give_child('a2')
        spec = objects.RequestSpec(instance_uuid=uuid, flavor=samples.flavor(
            extra_specs={'resources1:VGPU': '2'}))
        self.spoil(uuid, 'request_specs',
                   spec=jsonutils.dumps(spec.obj_to_primitive()))
        right = [claims_base.Claim(uuid, self.providers['a1'], base.SIZE,
                                   project_id='project'),
                 claims_base.Claim(uuid, child, {'VGPU': 2},
                                   project_id='project')]
        self.claims.release([uuid])
        self.claims.claim(right)
        self.assertClean()
        self.claims.release([uuid])
        self.claims.claim([*right, claims_base.Claim(
            uuid, self.providers['other'], {'VGPU': 1},
            project_id='project')])

        self.assertMends(('S4', 'claim-second', uuid, 'cell1'))

        self.assertEqual(
            {claim.provider: claim.resources for claim in right},
            self.held(uuid))
        self.assertEqual({}, self.held(migrations.consumer(uuid)))

    def test_claim_of_another_amount_is_claimed_anew(self):
        self.offer('cell1', 'a1', 10)
        made = []
        for resources in ({**base.SIZE, 'VCPU': 2},
                          {**base.SIZE, 'MEMORY_MB': 1},
                          {'VCPU': 1, 'MEMORY_MB': 512}):
            made.append(self.running())
            self.hold(made[-1], 'a1', **resources)

        self.assertMends(*(
            ('S4', 'claim-amount', uuid, 'cell1') for uuid in made))

        for uuid in made:
            self.assertHolds(uuid, 'a1')

    def test_wrong_claim_stays_without_capacity_for_the_right_claim(self):
        uuid = self.running()
        self.hold(uuid, 'a1', VCPU=1)
        for other in samples.uuids(3):
            self.take(other, 'a1')
        self.take(samples.uuids(1)[0], 'a1', MEMORY_MB=1)

        report = self.assertFound(
            ('S4', 'claim-amount', uuid, 'cell1'), fix=True)

        self.assertEqual([], report.repaired)
        self.assertEqual({self.providers['a1']: {'VCPU': 1}},
                         self.held(uuid))

    def test_server_of_unknown_size_is_kept(self):
        uuid = self.running()
        self.hold(uuid, 'a2')
        self.spoil(uuid, 'request_specs')

        self.assertKept(('S4', 'claim-elsewhere', uuid, 'cell1'),
                        ('S13', 'spec-missing', uuid, 'cell1'))

    def test_server_in_a_move_may_hold_any_claim(self):
        uuid = self.running()
        self.move(uuid)
        self.change_row(uuid, 'cell1', task_state='resize_prep')
        self.hold(uuid, 'a2')
        cleaned = self.running()
        self.move(cleaned, status=server_moves.FINISHED)
        self.hold(cleaned, 'a2')

        self.assertClean()


class TestMoves(base.TestCase):

    def test_claim_of_an_ended_migration_is_released(self):
        uuid = self.running()
        name = self.move(uuid, status=server_moves.ERROR)
        self.take(name, 'a2')

        self.assertMends(('S4', 'move-claim-leaked', uuid, 'cell1'))

        self.assertEqual({uuid}, {*self.claims.claims_of([uuid, name])})
