# SPDX-License-Identifier: Apache-2.0
"""From configuration to services: what is refused, and what is opened."""

import queue
import threading

import oslo_messaging

from cellsched.claims import memory
from cellsched import clock
from cellsched import context
from cellsched.db.cell.services import COMPUTE
from cellsched.db.cell.services import report
from cellsched import exception
from cellsched.network import fake as fake_network
from cellsched.network import noop
from cellsched.rpc import compute
from cellsched.rpc import conductor
from cellsched.rpc import local
from cellsched.rpc import scheduler
from cellsched.testing import databases
from cellsched.virt import fake
from cellsched.wiring import services
from tests.unit.db import samples
from tests.unit.wiring import configured


class TestRefusal(configured.WiringTestCase):

    def refused(self, make, conf, kind=exception.ConfigurationInvalid):
        before = threading.enumerate()
        error = self.assertRaises(kind, make, conf)

        # Those of other tests may end meanwhile.
        self.assertEqual([], [
            each for each in threading.enumerate() if each not in before])
        self.assertNotIn(self.world, str(local._worlds))
        return error

    def test_unset_database_is_named(self):
        for make, field in (
                (services.scheduler, '[api_database] connection'),
                (services.conductor, '[database] connection'),
                (services.compute, '[database] connection'),
                (services.api, '[api_database] connection')):
            error = self.refused(make, self.conf())

            self.assertEqual(field, error.field)
            self.assertIn('it is not set', str(error))

    def test_unset_claims_connection_is_named(self):
        for make in (services.conductor, services.compute):
            error = self.refused(make, self.conf(
                cell=True, claims={'connection': ''}))

            self.assertEqual('[claims] connection', error.field)

    def test_unset_transport_is_named(self):
        for make in (*configured.SERVICES, services.api):
            error = self.refused(make, self.conf_for(
                make, DEFAULT={'transport_url': ''}))

            self.assertEqual('[DEFAULT] transport_url', error.field)

    def test_invalid_transport_is_named_without_its_password(self):
        for make in (*configured.SERVICES, services.api):
            error = self.refused(make, self.conf_for(
                make, DEFAULT={'transport_url': 'bogus://me:secret@x/y'}))

            self.assertEqual('[DEFAULT] transport_url', error.field)
            self.assertNotIn('secret', str(error))

    def test_old_schema_is_named_with_its_command(self):
        new = f'sqlite:///{self.directory}/new.sqlite'
        for group, makes, command in (
                ('api_database', (services.scheduler, services.api),
                 'cellsched-manage api_db sync'),
                ('database', (services.conductor, services.compute),
                 'cellsched-manage db sync'),
                ('claims', configured.SERVICES,
                 'cellsched-manage claims_db sync')):
            for make in makes:
                error = self.refused(
                    make, self.conf_for(make, **{group: {'connection': new}}),
                    exception.SchemaOutOfDate)

                self.assertEqual(command, error.command)

    def test_unreachable_database_is_named(self):
        nowhere = 'sqlite:////nowhere/at/all.sqlite'
        for make in configured.SERVICES:
            group = 'database'
            if make is services.scheduler:
                group = 'api_database'

            error = self.refused(make, self.conf_for(
                make, **{group: {'connection': nowhere}}),
                exception.DatabaseUnreachable)

            self.assertIn('/nowhere/at/all.sqlite', str(error))

    def test_missing_plugin_is_named(self):
        for make, group, name in (
                (services.scheduler, 'scheduler', 'driver'),
                (services.scheduler, 'filter_scheduler', 'enabled_filters'),
                (services.scheduler, 'filter_scheduler', 'weight_classes'),
                (services.api, 'filter_scheduler', 'enabled_filters'),
                (services.compute, 'DEFAULT', 'compute_driver'),
                (services.compute, 'DEFAULT', 'network_driver'),
                (services.conductor, 'DEFAULT', 'network_driver'),
                (services.conductor, 'claims', 'store')):
            error = self.refused(
                make, self.conf_for(make, **{group: {name: 'nobody'}}),
                exception.PluginNotFound)

            self.assertEqual('nobody', error.name)

    def test_store_below_the_required_durability_is_named(self):
        error = self.refused(services.conductor, self.conf(
            cell=True, claims={'store': 'memory', 'require': 'durable'}))

        self.assertEqual('[claims] store', error.field)

    def test_service_failing_late_closes_its_components(self):
        error = self.refused(services.compute, self.conf(
            cell=True, DEFAULT={'initial_cpu_allocation_ratio': 0}))

        self.assertEqual(
            '[DEFAULT] initial_cpu_allocation_ratio', error.field)

    def test_given_components_stay_open(self):
        parts = services.Components(self.conf(
            cell=True, DEFAULT={'initial_cpu_allocation_ratio': 0}))
        self.addCleanup(parts.close)

        self.assertRaises(exception.ConfigurationInvalid,
                          services.compute, parts.conf, parts)

        self.assertIn(self.world, str(local._worlds))


class TestParts(configured.WiringTestCase):

    def test_given_components_are_used(self):
        given = {'clock': clock.Clock(), 'claims': memory.MemoryClaims()}

        parts = services.Components(
            self.conf(claims={'store': 'sql'}), **given)
        self.addCleanup(parts.close)

        for name, part in given.items():
            self.assertIs(part, getattr(parts, name))

    def test_virtualisation_driver_is_loaded_by_name(self):
        parts = services.Components(
            self.conf(DEFAULT={'compute_driver': 'fake'}))
        self.addCleanup(parts.close)

        self.assertIsInstance(parts.driver, fake.FakeDriver)
        self.assertIs(parts.driver, parts.driver)

    def test_network_plugin_is_loaded_by_name(self):
        for name, kind in (('noop', noop.NoopNetworks),
                           ('fake', fake_network.FakeNetworks)):
            parts = services.Components(
                self.conf(DEFAULT={'network_driver': name}))
            self.addCleanup(parts.close)

            self.assertIsInstance(parts.network, kind)
            self.assertIs(parts.network, parts.network)

    def test_each_is_made_once(self):
        parts = services.Components(self.conf(api=True, cell=True))
        self.addCleanup(parts.close)

        for name in ('claims', 'database', 'cell_database', 'cells',
                     'targets', 'executor', 'gatherer', 'discovery', 'cell0'):
            self.assertIs(getattr(parts, name), getattr(parts, name))

    def test_builds_of_a_request_without_a_cell_are_continued(self):
        parts = services.Components(self.conf(api=True))
        self.addCleanup(parts.close)
        request = context.member('user', 'project')

        for each in request, request.for_cell(samples.cell('cell1')):
            done = parts.builders.submit(
                lambda *args: args, each, ['uuid1'])

            self.assertEqual((each, ['uuid1']), done.result())

    def test_only_needed_components_are_opened(self):
        for make, schemas in (
                (services.scheduler, {'API', 'claims'}),
                (services.api, {'API', 'claims'}),
                (services.conductor, {'cell', 'claims'}),
                (services.compute, {'cell', 'claims'})):
            made = self.make(make, self.conf_for(make))

            opened = {schema for (_, schema), database
                      in made.parts.databases._open.items()
                      if database._engine is not None}
            self.assertLessEqual(opened, schemas)
            self.assertEqual(
                {f'local://{self.world}/x'},
                {url for _, url in made.parts.transports._open})
            made.parts.close()

    def test_close_closes_databases_transports_and_threads(self):
        parts = services.Components(self.conf(api=True, cell=True))
        before = threading.enumerate()
        parts.transports.get()
        parts.executor.submit(lambda: None).result(configured.DEADLINE_S)
        engine = parts.database.engine

        for _ in range(2):
            parts.close()

        self.assertEqual({}, parts.databases._open)
        self.assertEqual({}, parts.transports._open)
        self.assertEqual(0, engine.pool.checkedin())
        self.until_threads_are(before)


class TestPins(configured.WiringTestCase):

    def refused(self, topic, pin, *makes, **databases_):
        for make in makes:
            error = self.assertRaises(
                exception.ConfigurationInvalid, make, self.conf(
                    **databases_, upgrade_levels={topic: pin}))

            self.assertEqual(f'[upgrade_levels] {topic}', error.field)

    def test_mistyped_pin_stops_the_service(self):
        for typo in ('pikee', '99.0'):
            self.refused('scheduler', typo, services.conductor, api=True)
            self.refused('conductor', typo, services.api, api=True)
            self.refused('conductor', typo, services.compute, cell=True)
            self.refused('compute', typo, services.conductor, cell=True)
            self.refused('compute', typo, services.conductor, services.api,
                         api=True)

    def test_service_starts_with_supported_pins_only(self):
        for pin in ('pike', '4.4', '4.0'):
            self.refused('scheduler', pin, services.conductor, api=True)
        self.refused('conductor', '1.18', services.compute, cell=True)

        pins = {'scheduler': 'gazpacho', 'conductor': '1.19',
                'compute': '6.0'}
        for make in (services.api, *configured.SERVICES):
            self.make(make, self.conf_for(make, upgrade_levels=pins))
        self.make(services.api, self.conf(
            api=True, upgrade_levels={'conductor': '1.0'}))
        self.make(services.conductor, self.conf(
            api=True, upgrade_levels=pins))

    def report(self, cell, version):
        with cell.database.writer() as connection:
            report(
                connection, samples.uuids(1)[0], 'host', COMPUTE,
                compute.TOPIC, samples.NOW, version)

    def cap(self, **databases_):
        parts = services.Components(self.conf(
            **databases_, upgrade_levels={'compute': 'auto'}))
        self.addCleanup(parts.close)
        return parts.compute_cap

    def test_versions_of_all_cells_are_read_with_the_api_database(self):
        other = self.useFixture(databases.CellDatabase())
        self.map_cell()
        self.map_cell('cell2', database_connection=other.url)
        self.report(self.cell, 99)
        self.report(other, 1)

        for own in (False, True):
            self.assertEqual('6.0', self.cap(api=True, cell=own)())

    def test_version_of_the_own_cell_is_read_without_the_api_database(self):
        self.report(self.cell, 99)

        error = self.assertRaises(
            exception.ServiceTooOld, self.cap(cell=True))

        self.assertEqual(99, error.version)

    def test_conductor_queries_missing_cells_again(self):
        service = self.make(services.conductor, self.conf(
            api=True, upgrade_levels={'compute': 'auto'},
            cells={'refresh_interval': 7}))

        self.assertIn((service.parts.compute_cap.ask_the_missing, 7.0),
                      service._periodic)

    def test_scheduler_has_to_send_heartbeats_for_many_servers(self):
        calls = queue.Queue()

        def take(incoming):
            calls.put(incoming[0].client_timeout)
            incoming[0].reply(failure=(
                exception.NoValidHost, exception.NoValidHost(reason='no'),
                None))

        service = self.run_service(self.make(services.conductor, self.conf(
            api=True, conductor={'scheduling_timeout': 77})))
        transport = service.parts.transports.get()
        listener = transport._listen(oslo_messaging.Target(
            topic='scheduler', server='host'), 1, None)
        listener.start(take)
        self.addCleanup(listener.stop)
        wanted = samples.uuids(scheduler.LONG_FROM)
        samples.accept(self.api.database, wanted, samples.NOW)

        conductor.ConductorAPI(transport).build_and_schedule(
            context.admin(), wanted)

        self.assertEqual(77, calls.get(timeout=configured.DEADLINE_S))
