# SPDX-License-Identifier: Apache-2.0
"""From configuration to services: what is refused, and what is opened."""

import threading

from cellsched.claims import memory
from cellsched import clock
from cellsched import exception
from cellsched.network import fake as fake_network
from cellsched.network import noop
from cellsched.rpc import local
from cellsched.virt import fake
from cellsched.wiring import services as assembly
from tests.unit import assembling


class TestRefusal(assembling.AssemblyTestCase):

    def refused(self, make, conf, kind=exception.ConfigurationInvalid):
        before = threading.enumerate()
        error = self.assertRaises(kind, make, conf)

        # Those of other tests may end meanwhile.
        self.assertEqual([], [
            each for each in threading.enumerate() if each not in before])
        self.assertNotIn(self.world, str(local._worlds))
        return error

    def test_database_that_is_not_set_is_named(self):
        for make, field in (
                (assembly.scheduler, '[api_database] connection'),
                (assembly.conductor, '[database] connection'),
                (assembly.compute, '[database] connection'),
                (assembly.api, '[api_database] connection')):
            error = self.refused(make, self.conf())

            self.assertEqual(field, error.field)
            self.assertIn('it is not set', str(error))

    def test_claims_that_are_nowhere_are_named(self):
        for make in (assembly.conductor, assembly.compute):
            error = self.refused(make, self.conf(
                cell=True, claims={'connection': ''}))

            self.assertEqual('[claims] connection', error.field)

    def test_transport_that_is_not_set_is_named(self):
        for make in (*assembling.SERVICES, assembly.api):
            error = self.refused(make, self.conf_for(
                make, DEFAULT={'transport_url': ''}))

            self.assertEqual('[DEFAULT] transport_url', error.field)

    def test_transport_that_cannot_be_is_named_without_its_password(self):
        for make in (*assembling.SERVICES, assembly.api):
            error = self.refused(make, self.conf_for(
                make, DEFAULT={'transport_url': 'bogus://me:secret@x/y'}))

            self.assertEqual('[DEFAULT] transport_url', error.field)
            self.assertNotIn('secret', str(error))

    def test_schema_that_is_old_is_named_with_its_remedy(self):
        new = f'sqlite:///{self.directory}/new.sqlite'
        for group, makes, command in (
                ('api_database', (assembly.scheduler, assembly.api),
                 'cellsched-manage api_db sync'),
                ('database', (assembly.conductor, assembly.compute),
                 'cellsched-manage db sync'),
                ('claims', assembling.SERVICES,
                 'cellsched-manage claims_db sync')):
            for make in makes:
                error = self.refused(
                    make, self.conf_for(make, **{group: {'connection': new}}),
                    exception.SchemaOutOfDate)

                self.assertEqual(command, error.command)

    def test_database_that_cannot_be_reached_is_named(self):
        nowhere = 'sqlite:////nowhere/at/all.sqlite'
        for make in assembling.SERVICES:
            group = 'database'
            if make is assembly.scheduler:
                group = 'api_database'

            error = self.refused(make, self.conf_for(
                make, **{group: {'connection': nowhere}}),
                exception.DatabaseUnreachable)

            self.assertIn('/nowhere/at/all.sqlite', str(error))

    def test_plugin_that_is_not_there_is_named(self):
        for make, group, name in (
                (assembly.scheduler, 'scheduler', 'driver'),
                (assembly.scheduler, 'filter_scheduler', 'enabled_filters'),
                (assembly.scheduler, 'filter_scheduler', 'weight_classes'),
                (assembly.api, 'filter_scheduler', 'enabled_filters'),
                (assembly.compute, 'DEFAULT', 'compute_driver'),
                (assembly.compute, 'DEFAULT', 'network_driver'),
                (assembly.conductor, 'DEFAULT', 'network_driver'),
                (assembly.conductor, 'claims', 'store')):
            error = self.refused(
                make, self.conf_for(make, **{group: {name: 'nobody'}}),
                exception.PluginNotFound)

            self.assertEqual('nobody', error.name)

    def test_store_that_promises_too_little_is_named(self):
        error = self.refused(assembly.conductor, self.conf(
            cell=True, claims={'store': 'memory', 'require': 'durable'}))

        self.assertEqual('[claims] store', error.field)

    def test_service_that_fails_late_leaves_nothing_open(self):
        error = self.refused(assembly.compute, self.conf(
            cell=True, DEFAULT={'initial_cpu_allocation_ratio': 0}))

        self.assertEqual(
            '[DEFAULT] initial_cpu_allocation_ratio', error.field)

    def test_what_was_handed_over_stays_open(self):
        parts = assembly.Parts(self.conf(
            cell=True, DEFAULT={'initial_cpu_allocation_ratio': 0}))
        self.addCleanup(parts.close)

        self.assertRaises(exception.ConfigurationInvalid,
                          assembly.compute, parts.conf, parts)

        self.assertIn(self.world, str(local._worlds))


class TestParts(assembling.AssemblyTestCase):

    def test_what_is_handed_over_is_used(self):
        given = {'clock': clock.Clock(), 'claims': memory.MemoryClaims()}

        parts = assembly.Parts(self.conf(claims={'store': 'sql'}), **given)
        self.addCleanup(parts.close)

        for name, part in given.items():
            self.assertIs(part, getattr(parts, name))

    def test_virtualisation_driver_is_loaded_by_name(self):
        parts = assembly.Parts(self.conf(DEFAULT={'compute_driver': 'fake'}))
        self.addCleanup(parts.close)

        self.assertIsInstance(parts.driver, fake.FakeDriver)
        self.assertIs(parts.driver, parts.driver)

    def test_network_plugin_is_loaded_by_name(self):
        for name, kind in (('noop', noop.NoopNetworks),
                           ('fake', fake_network.FakeNetworks)):
            parts = assembly.Parts(
                self.conf(DEFAULT={'network_driver': name}))
            self.addCleanup(parts.close)

            self.assertIsInstance(parts.network, kind)
            self.assertIs(parts.network, parts.network)

    def test_each_is_made_once(self):
        parts = assembly.Parts(self.conf(api=True, cell=True))
        self.addCleanup(parts.close)

        for name in ('claims', 'database', 'cell_database', 'cells',
                     'targets', 'executor', 'gatherer', 'discovery', 'cell0'):
            self.assertIs(getattr(parts, name), getattr(parts, name))

    def test_only_what_is_needed_is_opened(self):
        for make, schemas in (
                (assembly.scheduler, {'API', 'claims'}),
                (assembly.api, {'API', 'claims'}),
                (assembly.conductor, {'cell', 'claims'}),
                (assembly.compute, {'cell', 'claims'})):
            made = self.make(make, self.conf_for(make))

            opened = {schema for (_, schema), database
                      in made.parts.databases._open.items()
                      if database._engine is not None}
            self.assertLessEqual(opened, schemas)
            self.assertEqual(
                {f'local://{self.world}/x'},
                {url for _, url in made.parts.transports._open})
            made.parts.close()

    def test_closing_closes_everything(self):
        parts = assembly.Parts(self.conf(api=True, cell=True))
        before = threading.enumerate()
        parts.transports.get()
        parts.executor.submit(lambda: None).result(assembling.DEADLINE_S)
        engine = parts.database.engine

        for _ in range(2):
            parts.close()

        self.assertEqual({}, parts.databases._open)
        self.assertEqual({}, parts.transports._open)
        self.assertEqual(0, engine.pool.checkedin())
        self.until_threads_are(before)
