# SPDX-License-Identifier: Apache-2.0
"""A server whose user names no zone goes to the zone of the operator."""

from oslo_utils import uuidutils

from cellsched import objects
from cellsched.standalone import deployment
from tests.functional import base
from tests.unit.cli import base as cli_base
from tests.unit.cli import test_decision
from tests.unit import test_embedding

OPTION = {'default_schedule_zone': 'prod'}


class TestServers(base.TestCase):

    def test_zone_holds_for_builds_and_moves_unless_another_is_named(self):
        self.deploy({'cell1': [
            # Without the option this host comes first: it has more room.
            deployment.DeployedHost('lab', memory_mb=65536,
                                    availability_zone='lab'),
            *(deployment.DeployedHost(host, availability_zone='prod')
              for host in ('prod1', 'prod2'))]}, DEFAULT=OPTION)

        [asked] = self.built(availability_zone='lab')
        self.assertEqual('lab', asked.host)
        for server in self.built(min_count=3):
            self.assertEqual(('ACTIVE', 'prod', 'prod'), (
                server.status, server.host[:4], server.availability_zone))
        self.world.api.moves.migrate(base.ADMIN, server.uuid)

        def moved():
            found = self.get(server.uuid)
            return found.host != server.host and found

        self.assertEqual(
            {'prod1', 'prod2'},
            {server.host, self.until(moved, 'the server has moved').host})


class TestPlan(test_decision.PlanTestCase):

    def test_plan_uses_the_zone_of_a_new_server(self):
        self.write('api.conf', DEFAULT={'default_schedule_zone': 'west'})

        self.assertEqual((0, ['c']), self.planned())
        self.assertEqual((0, ['b']), self.planned(
            '--availability-zone', 'east'))

    def test_empty_value_is_no_zone(self):
        self.write('api.conf', DEFAULT={'default_schedule_zone': ''})

        self.assertEqual((0, ['b']), self.planned())


class TestEmbedded(test_embedding.EmbeddedTestCase):

    def test_spec_without_a_zone_gets_the_zone(self):
        conductor = self.make(DEFAULT=OPTION)
        context = base.USER
        given = test_embedding.spec()
        for spec, zone in ((given, 'prod'), (objects.RequestSpec(
                flavor=given.flavor, availability_zone='lab'), 'lab')):
            uuid = uuidutils.generate_uuid()
            conductor.accept(context, {uuid: 'server'}, spec)
            self.assertEqual(
                zone, conductor.get(context, uuid).availability_zone)
            # A repeated call is the same request.
            self.assertEqual(
                [], conductor.accept(context, {uuid: 'server'}, spec))
        self.assertFalse(given.obj_attr_is_set('availability_zone'))


class TestOption(cli_base.CommandTestCase):

    def test_zone_with_a_host_is_refused(self):
        self.write('api.conf', DEFAULT={'default_schedule_zone': 'a:b'})

        ran = self.shell('config', 'validate')

        self.assertEqual(1, ran.code)
        self.assertIn('[DEFAULT] default_schedule_zone', ran.out)
