# SPDX-License-Identifier: Apache-2.0
"""Services are upgraded one by one, and builds go on meanwhile."""

import uuid

import oslo_messaging

from cellsched import context
from cellsched.db.cell import models
from cellsched.objects import legacy
from cellsched.rpc import compute
from cellsched.rpc import conductor
from cellsched.rpc import scheduler
from cellsched.rpc import serializer
from cellsched.testing import builders
from cellsched.wiring import services
from tests.functional import base
from tests.functional import newer
from tests.unit.rpc import base as rpc_base

UUIDS = [str(uuid.UUID(int=number)) for number in (1, 2)]

PLACES = [{'host': host, 'nodename': host, 'limits': {}} for host in 'ab']


class TestOlderCallers(base.TestCase):
    """Callers of each version ask a scheduler of the newest."""

    def setUp(self):
        super().setUp()
        self.deploy({'cell1': ['a1', 'a2'], 'cell2': ['b1']})
        self.spec = builders.request(num_instances=2)

    def ask(self, version, **arguments):
        """Ask as a caller does that knows of no newer version."""
        return oslo_messaging.get_rpc_client(
            self.world.api.parts.transports.get(),
            oslo_messaging.Target(topic='scheduler', version='4.0'),
            version_cap=version, serializer=serializer.Serializer(),
        ).prepare(version=version).call(
            context.admin(), 'select_destinations', **arguments)

    def claimed(self):
        return sorted(self.world.api.parts.claims.claims_of(UUIDS))

    def assertPlaces(self, places):
        for place in places:
            self.assertEqual({'host', 'nodename', 'limits'}, place.keys())
            self.assertIn(place['host'], ('a1', 'a2', 'b1'))
        self.assertEqual(2, len(places))

    def test_callers_of_each_version_are_answered(self):
        asked, where = legacy.dicts(self.spec)
        for version in ('4.0', '4.1', '4.2'):
            self.assertPlaces(self.ask(
                version, request_spec=asked, filter_properties=where))
        self.assertPlaces(self.ask('4.3', spec_obj=self.spec))
        # Callers of these versions name no instances, so nothing is claimed.
        self.assertEqual([], self.claimed())

        self.assertPlaces(self.ask(
            '4.4', spec_obj=self.spec, instance_uuids=UUIDS))
        self.assertEqual(UUIDS, self.claimed())
        self.world.api.parts.claims.release(UUIDS)

        self.assertEqual(2, len(self.ask(
            '4.5', spec_obj=self.spec, instance_uuids=UUIDS,
            return_objects=True, return_alternates=True)))
        self.assertEqual(UUIDS, self.claimed())

        for version in ('3.1', '4.6', '5.0'):
            error = self.assertRaises(
                oslo_messaging.RemoteError, self.ask, version,
                spec_obj=self.spec)

            self.assertEqual('UnsupportedVersion', error.exc_type)


class Scheduler4_0(rpc_base.Recorder):

    target = oslo_messaging.Target(version='4.0')

    def select_destinations(self, context, request_spec, filter_properties):
        self.received.put(request_spec['num_instances'])
        return PLACES


class Scheduler4_3(rpc_base.Recorder):

    target = oslo_messaging.Target(version='4.3')

    def select_destinations(self, context, spec_obj):
        self.received.put(spec_obj.num_instances)
        return PLACES


class Scheduler4_4(rpc_base.Recorder):

    target = oslo_messaging.Target(version='4.4')

    def select_destinations(self, context, spec_obj, instance_uuids):
        self.received.put(len(instance_uuids))
        return PLACES


class Scheduler4_5(rpc_base.Recorder):

    target = oslo_messaging.Target(version='4.5')

    def select_destinations(
            self, context, spec_obj, instance_uuids, return_objects,
            return_alternates):
        self.received.put(len(instance_uuids))
        return PLACES


class OlderServers(rpc_base.LocalTestCase):
    """The base of tests with servers of older versions."""

    def run_server(self, endpoint, topic):
        made = oslo_messaging.get_rpc_server(
            self.transport, oslo_messaging.Target(topic=topic, server='host'),
            [endpoint], serializer=serializer.Serializer())
        made.start()
        self.addCleanup(self.end, made)
        return endpoint


class TestOlderSchedulers(OlderServers):
    """Callers of today ask schedulers of each version."""

    def select(self, pin):
        return scheduler.SchedulerAPI(
            self.transport, version_cap=pin
        ).select_destinations(
            context.admin(), builders.request(num_instances=2), UUIDS,
            return_objects=False, return_alternates=False)

    def assertUnderstands(self, endpoint, understood, not_understood):
        server = self.run_server(endpoint, scheduler.TOPIC)
        for pin in understood:
            self.assertEqual(PLACES, self.select(pin))
            self.assertEqual(2, server.next())
        for pin in not_understood:
            self.assertRaises(oslo_messaging.RemoteError, self.select, pin)

    def test_version_4_0_and_equivalents(self):
        self.assertUnderstands(
            Scheduler4_0(), ['4.0', '4.1', '4.2', 'kilo', 'liberty'],
            ['4.3', '4.4', None])

    def test_4_3(self):
        self.assertUnderstands(
            Scheduler4_3(), ['4.3', 'mitaka', 'ocata'], ['4.4', None])

    def test_4_4(self):
        self.assertUnderstands(
            Scheduler4_4(), ['4.4', 'pike'], ['4.5', None])

    def test_4_5(self):
        self.assertUnderstands(
            Scheduler4_5(), ['4.5', 'queens', 'gazpacho', None], [])


class TestAgents(OlderServers):
    """A message gets an argument; some agents know of it, some do not."""

    def remove(self, kind, cap=None):
        kind(self.transport, version_cap=cap).terminate_instance(
            context.admin(), 'host', newer.INSTANCE)

    def test_older_receiver_gets_no_unknown_argument(self):
        agent = self.run_server(newer.OlderAgent(), compute.TOPIC)

        self.remove(newer.ComputeAPI, '6.0')

        self.assertEqual(newer.UUID, agent.next())

    def test_newer_receiver_accepts_older_callers(self):
        agent = self.run_server(newer.Agent(), compute.TOPIC)

        self.remove(compute.ComputeAPI)
        self.remove(newer.ComputeAPI, lambda: '6.2')

        self.assertEqual({(newer.UUID, None), (newer.UUID, newer.WHY)},
                         {agent.next(), agent.next()})

    def test_newer_version_is_sent_after_the_last_agent_is_upgraded(self):
        agent = self.run_server(newer.Agent(), compute.TOPIC)
        lowest = [1]
        cap = compute.ComputeCap(
            'auto', lambda: compute.Lowest(lowest[0]),
            {1: '6.0', 2: '6.2'})

        self.remove(newer.ComputeAPI, cap)
        self.assertEqual((newer.UUID, None), agent.next())
        lowest[0] = 2
        cap.forget()
        self.remove(newer.ComputeAPI, cap)

        self.assertEqual((newer.UUID, newer.WHY), agent.next())


class TestConductors(OlderServers):
    """The same for conductors."""

    def build(self, kind, cap=None):
        kind(self.transport, version_cap=cap).build_and_schedule(
            context.admin(), UUIDS)

    def test_older_receiver_gets_no_unknown_argument(self):
        server = self.run_server(newer.OlderConductor(), conductor.TOPIC)

        for pin in ('1.0', '1.19'):
            self.build(newer.ConductorAPI, pin)

            self.assertEqual(UUIDS, server.next())

    def test_newer_receiver_accepts_older_callers(self):
        server = self.run_server(newer.Conductor(), conductor.TOPIC)

        self.build(conductor.ConductorAPI)
        self.assertEqual((UUIDS, None), server.next())
        self.build(newer.ConductorAPI, lambda: '1.21')

        self.assertEqual((UUIDS, newer.WHY), server.next())


class TestAutomaticVersions(base.TestCase):
    """``compute = auto`` in a deployment."""

    def setUp(self):
        super().setUp()
        # Agents do not report again what a story says of them.
        self.deploy({'cell1': ['a1'], 'cell2': ['b1']},
                    DEFAULT={'report_interval': 1000,
                             'service_down_time': 10000},
                    # A build in a cell that is not yet known as unreachable
                    # is tried again.
                    conductor={'recovery_interval': 0.1, 'retry_delay': 0.1},
                    upgrade_levels={'compute': 'auto'})

    def set_versions(self, version, *cells):
        for cell in cells:
            targets = self.world.api.parts.targets
            with targets.database(self.cells()[cell]).writer() as connection:
                connection.execute(
                    models.services.update().values(version=version))

    def test_agents_report_their_version_and_build_servers(self):
        found = self.built(min_count=2)

        self.assertEqual({'ACTIVE'}, {each.status for each in found})
        for each in found:
            self.delete(each.uuid)
        self.gone(*[each.uuid for each in found])
        newest = compute.SERVICE_VERSION
        self.assertIn(f'has version {newest}; the newest known version is '
                      f'{newest}', self.logs.output)

    def test_unreachable_cell_is_skipped(self):
        down = self.cells()['cell1'].identity
        self.take_down('cell1')

        found = self.built(min_count=2)

        self.assertEqual({('ACTIVE', 'cell2')},
                         {(each.status, each.cell) for each in found})
        self.assertIn(
            f'Cell {down} does not answer: ', self.logs.output)

    def test_cells_are_upgraded_before_the_api(self):
        found = self.built(min_count=2)
        self.delete(found[0].uuid)
        for cell in ('cell1', 'cell2'):
            self.set_versions(99, cell)

            found += self.built(min_count=2)
            self.delete(found[-1].uuid)

        self.assertEqual({('ACTIVE', 'cell1'), ('ACTIVE', 'cell2')},
                         {(each.status, each.cell) for each in found})
        self.gone(found[0].uuid, found[3].uuid, found[5].uuid)

    def test_api_with_a_pin_may_be_started_when_all_agents_are_newer(self):
        [found] = self.built()
        self.set_versions(99, 'cell1', 'cell2')
        conf = self.world.conf('api')
        conf.set_override('compute', '6.0', 'upgrade_levels')
        api = services.api(conf)
        self.addCleanup(api.close)

        api.servers.delete(base.USER, found.uuid)

        self.gone(found.uuid)
        self.assertLeftNothing(found.uuid)
        self.assertNotIn('the lowest that runs is 99', self.logs.output)

    def test_conductor_older_than_every_agent_is_refused(self):
        self.set_versions(99, 'cell1', 'cell2')

        [found] = self.built()

        self.assertEqual('ERROR', found.status)
        self.assertIn(f'compute services up to version '
                      f'{compute.SERVICE_VERSION}, but the oldest one has '
                      'version 99', self.logs.output)
        self.assertHoldsNothing(found.uuid)


class TestPinnedDeployment(base.TestCase):

    def test_deployment_with_supported_pins_builds(self):
        self.deploy({'cell1': ['a1']}, upgrade_levels={
            'scheduler': '4.5', 'conductor': '1.19', 'compute': '6.0'})

        [found] = self.built()

        self.assertEqual('ACTIVE', found.status)
