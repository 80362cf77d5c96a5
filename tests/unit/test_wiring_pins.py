# SPDX-License-Identifier: Apache-2.0
"""``[upgrade_levels]``: what is refused, who is asked, and what is sent."""

import queue

import oslo_messaging

from cellsched import context
from cellsched.db.cell import services
from cellsched import exception
from cellsched.rpc import compute
from cellsched.rpc import conductor
from cellsched.rpc import scheduler
from cellsched.testing import databases
from cellsched.wiring import services as assembly
from tests.unit import assembling
from tests.unit.db import samples


class TestPins(assembling.AssemblyTestCase):

    def refused(self, topic, pin, *makes, **databases_):
        for make in makes:
            error = self.assertRaises(
                exception.ConfigurationInvalid, make, self.conf(
                    **databases_, upgrade_levels={topic: pin}))

            self.assertEqual(f'[upgrade_levels] {topic}', error.field)

    def test_typo_stops_who_reads_it(self):
        for typo in ('pikee', '99.0'):
            self.refused('scheduler', typo, assembly.conductor, api=True)
            self.refused('conductor', typo, assembly.api, api=True)
            self.refused('conductor', typo, assembly.compute, cell=True)
            self.refused('compute', typo, assembly.conductor, cell=True)
            self.refused('compute', typo, assembly.conductor, assembly.api,
                         api=True)

    def test_who_cannot_work_with_a_pin_does_not_start(self):
        for pin in ('pike', '4.4', '4.0'):
            self.refused('scheduler', pin, assembly.conductor, api=True)
        self.refused('conductor', '1.18', assembly.compute, cell=True)

    def test_pins_that_leave_enough_are_taken(self):
        pins = {'scheduler': 'gazpacho', 'conductor': '1.19',
                'compute': '6.0'}
        for make in (assembly.api, *assembling.SERVICES):
            self.make(make, self.conf_for(make, upgrade_levels=pins))
        self.make(assembly.api, self.conf(
            api=True, upgrade_levels={'conductor': '1.0'}))
        self.make(assembly.conductor, self.conf(
            api=True, upgrade_levels=pins))

    def report(self, cell, version):
        with cell.database.writer() as connection:
            services.report(
                connection, samples.uuids(1)[0], 'host', services.COMPUTE,
                compute.TOPIC, samples.NOW, version)

    def cap(self, **databases_):
        parts = assembly.Parts(self.conf(
            **databases_, upgrade_levels={'compute': 'auto'}))
        self.addCleanup(parts.close)
        return parts.compute_cap

    def test_all_cells_are_asked_with_the_api_database(self):
        other = self.useFixture(databases.CellDatabase())
        self.map_cell()
        self.map_cell('cell2', database_connection=other.url)
        self.report(self.cell, 99)
        self.report(other, 1)

        for own in (False, True):
            self.assertEqual('6.0', self.cap(api=True, cell=own)())

    def test_own_cell_is_asked_without_it(self):
        self.report(self.cell, 99)

        error = self.assertRaises(
            exception.ServiceTooOld, self.cap(cell=True))

        self.assertEqual(99, error.version)

    def test_conductor_asks_cells_that_were_missing_again(self):
        service = self.make(assembly.conductor, self.conf(
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

        service = self.run_service(self.make(assembly.conductor, self.conf(
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

        self.assertEqual(77, calls.get(timeout=assembling.DEADLINE_S))
