# SPDX-License-Identifier: Apache-2.0
"""The heartbeats of services, and the numbers of services by state."""

import datetime

import futurist

from cellsched.cells import gather
from cellsched.cells import service_records
from cellsched.db.cell import services
from cellsched import exception
from cellsched.observability.prometheus import PrometheusMetrics
from cellsched.rpc import compute
from tests.unit.cells import base
from tests.unit.db import samples

DOWN_S = 60


class TestHeartbeat(base.TestCase):

    def heartbeat(self, host='a'):
        return service_records.Heartbeat(
            services.SCHEDULER, 'scheduler', host,
            lambda: self.targets.database(self.cells.cell0()),
            lambda: samples.uuids(1)[0])

    def rows(self):
        database = self.targets.database(self.cells.cell0())
        return self.read(database, services.list_all, database.now()
                         - datetime.timedelta(seconds=DOWN_S))

    def test_processes_with_a_host_share_a_record(self):
        self.add_cell0()
        for host in 'a', 'b', 'a':
            self.heartbeat(host).report()

        self.assertEqual(
            [('a', services.SCHEDULER, 'up', 2, compute.SERVICE_VERSION),
             ('b', services.SCHEDULER, 'up', 1, compute.SERVICE_VERSION)],
            [(row.host, row.binary, row.state, row.report_count, row.version)
             for row in self.rows()])

    def test_stop_is_recorded_until_the_next_report(self):
        self.add_cell0()
        heartbeat = self.heartbeat()
        heartbeat.report()

        heartbeat.stop()
        self.assertEqual(['stopped'], [row.state for row in self.rows()])

        heartbeat.report()
        self.assertEqual(['up'], [row.state for row in self.rows()])

    def test_deleted_service_reports_with_a_new_uuid(self):
        cell0 = self.targets.database(self.add_cell0())
        heartbeat = self.heartbeat()
        heartbeat.report()
        heartbeat.stop()
        [before] = self.rows()
        self.write(cell0, services.delete, 'a', services.SCHEDULER,
                   cell0.now(), cell0.now())

        heartbeat.report()

        [after] = self.rows()
        self.assertNotEqual(before.uuid, after.uuid)

    def test_without_cell0_the_problem_is_named(self):
        self.assertRaises(exception.CellMappingNotFound,
                          self.heartbeat().report)


class TestServiceCounts(base.TestCase):

    def setUp(self):
        super().setUp()
        self.add_cell0()
        self.east = self.add_cell('east')
        self.counts = service_records.ServiceCounts(
            self.cells, gather.Gatherer(
                futurist.SynchronousExecutor(), self.targets, self.clock, 30),
            DOWN_S)

    def report(self, host, binary, age_s=0, cell=None):
        database = self.targets.database(cell or self.east)
        self.write(database, services.report, samples.uuids(1)[0], host,
                   binary, binary, database.now()
                   - datetime.timedelta(seconds=age_s))

    def read_counts(self):
        self.counts.read()
        recorded = PrometheusMetrics('scheduler')
        recorded.add_source(self.counts.metrics)
        text = recorded.exposition('')[0].decode()
        return {line.removeprefix('cellsched_services')
                for line in text.splitlines()
                if line.startswith('cellsched_services{')}

    def test_services_of_all_cells_are_counted(self):
        self.report('a', services.SCHEDULER, cell=self.cells.cell0())
        self.report('b', services.COMPUTE)
        self.report('c', services.COMPUTE)
        self.report('c', services.CONDUCTOR, age_s=2 * DOWN_S)

        self.assertEqual(
            {'{binary="nova-scheduler",cell="cell0",state="up"} 1.0',
             '{binary="nova-compute",cell="east",state="up"} 2.0',
             '{binary="nova-conductor",cell="east",state="down"} 1.0'},
            self.read_counts())

    def test_services_of_a_silent_cell_are_unknown(self):
        self.report('b', services.COMPUTE)
        self.report('c', services.COMPUTE, age_s=2 * DOWN_S)
        self.counts.read()
        samples.set_cell_url(self.database, 'east')
        self.cells.refresh()

        self.assertEqual(
            {'{binary="nova-compute",cell="east",state="unknown"} 2.0'},
            self.read_counts())
