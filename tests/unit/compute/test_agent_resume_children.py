# SPDX-License-Identifier: Apache-2.0
"""An agent that was killed takes up builds on child providers of its node."""

from oslo_serialization import jsonutils

from cellsched.claims import base as claims_base
from cellsched.db.cell import build_casts
from cellsched.db.cell import compute_nodes
from cellsched import objects
from cellsched.objects import child_providers
from tests.unit.compute import agents
from tests.unit.db import samples


class Killed(BaseException):
    """The process ends here."""


class TestResume(agents.AgentTestCase):

    def kill(self, reached=None):
        raise Killed()

    def test_build_that_claims_of_a_child_of_its_node_alone_goes_on(self):
        child = child_providers.uuid_of(self.provider, 'numa0')
        chosen = objects.Selection(
            service_host='host1', nodename='node1',
            compute_node_uuid=self.provider)
        with self.cell.writer() as connection:
            compute_nodes.save(
                connection, self.provider, 'host1', 'node1',
                samples.NODE | {'providers': child_providers.dump([
                    child_providers.Child(child, 'numa0')])}, samples.NOW)
            build_casts.create(connection, [build_casts.BuildCast(
                self.uuid, 'host1', 'node1', jsonutils.dumps({
                    'selections': [chosen.obj_to_primitive()],
                    'request_spec': objects.RequestSpec(
                        instance_uuid=self.uuid).obj_to_primitive(),
                    'filter_properties': {'limits': {}, 'retry': {
                        'num_attempts': 1,
                        'hosts': [['host1', 'node1']]}}}), 1.0)])
        self.claims.set_inventory(child, {'VCPU': claims_base.Inventory(8)})
        self.claims.release([self.uuid])
        self.claims.claim([claims_base.Claim(self.uuid, child, {'VCPU': 1})])
        self.assertRaises(Killed, self.build, by=self.make_agent(
            'host1', reached=self.kill))

        self.make_agent('host1').resume()

        self.assertState('active', None, 'host1')
        self.assertEqual([], self.conductor.sent)
