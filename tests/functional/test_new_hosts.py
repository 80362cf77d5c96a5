# SPDX-License-Identifier: Apache-2.0
"""Hosts that come later are mapped and used; each is in one cell."""

import sqlalchemy as sa

from cellsched.db.api import models
from cellsched.db.api import operator_changes
from cellsched.db.cell import models as cell_models
from cellsched import exception
from cellsched.standalone import deployment
from cellsched.wiring import services
from tests.functional import base


class TestNewHosts(base.TestCase):

    def cell_of(self, host):
        """Return the cell that a host is mapped to, None if it is not."""
        mappings, cells = models.host_mappings, models.cell_mappings
        with self.world.api.parts.database.reader() as connection:
            return connection.execute(
                sa.select(cells.c.name)
                .join(mappings, mappings.c.cell_id == cells.c.id)
                .where(mappings.c.host == host)).scalar()

    def test_host_started_later_is_mapped_and_used(self):
        self.deploy({'cell1': [], 'cell2': []},
                    scheduler={'refresh_interval': 3600})
        [before] = self.built()
        self.world.start_host('cell2', deployment.DeployedHost('late'))
        self.assertIsNone(self.cell_of('late'))

        [after] = self.built()

        self.assertEqual(('ERROR', 'cell0'), (before.status, before.cell))
        self.assertEqual(('ACTIVE', 'cell2', 'late'), (
            after.status, after.cell, after.host))
        self.assertEqual('cell2', self.cell_of('late'))
        self.assertClaimsMatch()

    def test_discovery_maps_hosts_before_first_use(self):
        # Otherwise a scheduler maps them with its first reading.
        self.deploy({'cell1': ['a1'], 'cell2': ['b1', 'b2']}, scheduler={
            'discover_hosts_in_cells_interval': -1})
        lines = []

        new = self.world.api.parts.discovery.discover(status=lines.append)

        self.assertEqual(['a1', 'b1', 'b2'], sorted(new))
        self.assertEqual('cell2', self.cell_of('b2'))
        self.assertIn('Mapped host b2.', lines)
        self.assertEqual([], self.world.api.parts.discovery.discover())

    def test_option_selects_the_service_for_host_mapping(self):
        self.deploy({'cell1': []}, scheduler={
            'discover_hosts_in_cells_interval': -1})
        self.world.start_host('cell1', deployment.DeployedHost('late'))

        self.assertEqual('ERROR', self.built()[0].status)
        self.assertIsNone(self.cell_of('late'))

        self.world.api.parts.discovery.discover()

        self.assertEqual('ACTIVE', self.built()[0].status)

    def test_only_the_leading_scheduler_maps_hosts(self):
        self.deploy({'cell1': []}, scheduler={
            'discover_hosts_in_cells_interval': -1})
        discover, discover_later = self.discovery(), self.discovery()
        self.assertEqual([], discover())
        self.assertTrue(self.leader().startswith('api:'))

        self.world.start_host('cell1', deployment.DeployedHost('late'))

        self.assertEqual([], discover_later())
        self.assertIsNone(self.cell_of('late'))
        self.assertEqual(['late'], discover())
        self.assertEqual('ACTIVE', self.built()[0].status)

    def discovery(self):
        """Return the periodic discovery of one more scheduler."""
        conf = self.world.conf('api')
        conf.set_override(
            'discover_hosts_in_cells_interval', 600, 'scheduler')
        parts = services.Components(conf)
        self.addCleanup(parts.close)
        [found] = [function for function, *_
                   in services.scheduler(conf, parts).periodic
                   if 'PeriodicDiscovery' in function.__qualname__]
        return found

    def leader(self):
        with self.world.api.parts.database.reader() as connection:
            return connection.execute(
                sa.select(models.leaders.c.owner)).scalar()

    def test_host_name_of_another_cell_is_skipped(self):
        self.deploy({'cell1': ['same'], 'cell2': ['b1']},
                    scheduler=base.READ_EACH_TIME)
        self.assertEqual({'same', 'b1'}, {
            found.host for found in self.built(min_count=2)})
        second = self.world.start_host(
            'cell2', deployment.DeployedHost('same', memory_mb=2 ** 20))

        found = self.built(min_count=4)

        for each in found:
            self.assertEqual(
                {'same': 'cell1', 'b1': 'cell2'}[each.host], each.cell)
        self.assertEqual('cell1', self.cell_of('same'))
        self.assertClaimsMatch()
        cells = self.cells()
        for word in ('same', cells['cell1'].identity, cells['cell2'].identity):
            self.assertIn(word, self.logs.output)
        # Its agent ends with its next report.
        [report] = [function for function, *_ in second.periodic
                    if 'report' in function.__name__]
        error = self.assertRaises(exception.HostNameTaken, report)
        self.assertEqual('a host of another cell', error.by)

    def test_agent_with_a_host_name_of_another_cell_is_refused(self):
        """So it is in a deployment of one cell, where it may."""
        self.deploy({'cell1': ['same'], 'cell2': []})
        self.world.api.parts.discovery.discover()
        conf = self.world.conf('api', 'cell2')
        conf.set_override('host', 'same')

        error = self.assertRaises(
            exception.HostMappingExists, services.compute, conf)

        self.assertIn('cell1', str(error))
        self.assertIn('cell2', str(error))
        table = cell_models.services
        self.assertEqual([], self.query('cell2', sa.select(table).where(
            table.c.topic == 'compute')))
        conf.set_override('host', 'other')
        service = services.compute(conf)
        self.addCleanup(service.stop)
        service.start()
        self.assertEqual('cell2', self.cell_of('other'))

    def test_agent_of_an_unmapped_cell_does_not_start(self):
        self.deploy({'cell1': [], 'cell2': []})
        conf = self.world.conf('api', 'cell2')
        self.take_down('cell2')

        self.assertRaisesRegex(
            exception.ConfigurationInvalid, r'\[database\] connection',
            services.compute, conf)


class TestLeavingHosts(base.TestCase):

    def unmap(self, *hosts):
        table = models.host_mappings
        with operator_changes.known(
                self.world.api.parts.database, base.CLOCK) as connection:
            connection.execute(
                sa.delete(table).where(table.c.host.in_(hosts)))

    def test_host_without_a_mapping_is_not_selected(self):
        self.deploy({'cell1': ['a1', 'a2'], 'cell2': ['b1']})
        self.built(min_count=3)
        self.unmap('a1', 'b1')

        found = self.built(min_count=3)

        self.assertEqual({('ACTIVE', 'a2')}, {
            (each.status, each.host) for each in found})
        self.assertClaimsMatch()

    def test_host_vanished_after_selection_costs_no_build(self):
        self.deploy({'cell1': ['a1', 'a2']}, reached=self.reached)
        self.chosen = None

        [found] = self.built()

        self.assertIn(self.chosen, ('a1', 'a2'))
        self.assertEqual(
            ('ACTIVE', ({'a1', 'a2'} - {self.chosen}).pop()),
            (found.status, found.host))
        self.assertClaimsMatch()

    def reached(self, step):
        if step == 'Schedule' and self.chosen is None:
            held = self.held(*self.listed())
            hosts = {self.provider('cell1', host): host
                     for host in ('a1', 'a2')}
            self.chosen = hosts[held[0].provider]
            self.unmap(self.chosen)
