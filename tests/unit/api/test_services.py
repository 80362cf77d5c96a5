# SPDX-License-Identifier: Apache-2.0
"""Services: list, disable, force down, delete."""

import datetime

import futurist
import sqlalchemy as sa

from cellsched.api import authorization
from cellsched.api import services
from cellsched.cells import discovery
from cellsched.cells import gather
from cellsched.claims import base as claims
from cellsched.claims import memory
from cellsched import context
from cellsched.db.api import host_mappings
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import instances
from cellsched.db.cell import models
from cellsched.db.cell import services as rows
from cellsched import exception
from cellsched.objects import child_providers
from tests import losing
from tests.unit.cells import base
from tests.unit.db import samples

ADMIN = context.admin()

DOWN_S = 60

UNKNOWN = samples.uuids(1)[0]


class TestServices(base.TestCase):

    def setUp(self):
        super().setUp()
        self.cell0 = self.add_cell0()
        self.east, self.west = self.add_cell('east'), self.add_cell('west')
        self.claims = memory.MemoryClaims()
        self.services = services.Services(
            authorization.LocalOperator(), self.database, self.cells,
            self.targets, gather.Gatherer(
                futurist.SynchronousExecutor(), self.targets, self.clock, 30),
            DOWN_S, lambda: self.claims, self.clock)
        self.discovery = discovery.Discovery(
            self.database, self.cells, self.targets, self.clock)
        self.ids = {host: self.add_host(cell, host) for cell, host in (
            (self.west, 'b'), (self.east, 'a'), (self.east, 'c'))}

    def apply(self, cell, query, *args, **kwargs):
        return self.write(self.targets.database(cell), query, *args, **kwargs)

    def add_host(self, cell, host):
        """Have a host that reports now; return the uuid of its service."""
        [uuid] = samples.uuids(1)
        now = self.targets.database(cell).now()
        self.apply(cell, rows.report, uuid, host, rows.COMPUTE, 'compute',
                   now, 7)
        self.apply(cell, compute_nodes.save, samples.uuids(1)[0], host, host,
                   samples.NODE, now)
        self.discovery.discover(cell.uuid)
        return uuid

    def add_service(self, cell, host, binary=rows.CONDUCTOR):
        """Have a scheduler or a conductor that reports now; return its id."""
        [uuid] = samples.uuids(1)
        self.apply(cell, rows.report, uuid, host, binary,
                   binary.removeprefix('nova-'),
                   self.targets.database(cell).now(), 7)
        return uuid

    def silence(self, cell, host):
        """Have a host that reported last when it was not yet down."""
        seen = self.targets.database(cell).now() - datetime.timedelta(
            seconds=DOWN_S + 1)
        self.apply(cell, lambda connection: connection.execute(
            sa.update(models.services).where(models.services.c.host == host)
            .values(last_seen_up=seen)))

    def take_down(self, cell):
        samples.set_cell_url(self.database, cell.name)
        self.cells.refresh()

    def states(self, **which):
        return [(each.host, each.cell, each.state)
                for each in self.services.list(ADMIN, **which).services]

    def get(self, host):
        [found] = self.services.list(ADMIN, host=host).services
        return found

    def test_services_of_all_cells_are_listed_by_host(self):
        self.silence(self.west, 'b')

        self.assertEqual(
            [('a', 'east', 'up'), ('b', 'west', 'down'), ('c', 'east', 'up')],
            self.states())
        found = self.get('a')
        self.assertEqual(
            (self.ids['a'], 'nova-compute', False, None, False, 7),
            (found.uuid, found.binary, found.disabled, found.disabled_reason,
             found.forced_down, found.version))

    def test_services_above_the_cells_are_listed_in_cell0(self):
        self.add_service(self.cell0, 'x', rows.SCHEDULER)
        self.add_service(self.cell0, 'y')
        self.add_service(self.west, 'z')
        self.apply(self.cell0, rows.stop, 'y', rows.CONDUCTOR,
                   self.targets.database(self.cell0).now())
        self.silence(self.west, 'z')

        self.assertEqual(
            [('x', 'cell0', 'up'), ('y', 'cell0', 'stopped'),
             ('z', 'west', 'down')], self.states()[-3:])
        self.assertEqual(
            [('x', 'cell0', 'up')], self.states(binary=rows.SCHEDULER))
        self.assertEqual(7, self.get('x').version)

    def test_change_survives_a_lost_connection(self):
        # The first is lost before the commit, the second one after it.
        database = self.targets.database(self.east)
        for host, is_made in ('a', False), ('c', True):
            losing.lose(database, is_made)

            self.services.set(ADMIN, host, rows.COMPUTE, disabled=True,
                              reason='it is repaired')

            self.assertEqual('it is repaired', self.get(host).disabled_reason)

    def test_stop_has_the_time_of_the_stop(self):
        self.add_service(self.cell0, 'x')
        now = self.targets.database(self.cell0).now()
        later = now + datetime.timedelta(seconds=5)
        self.apply(self.cell0, rows.stop, 'x', rows.CONDUCTOR, later)

        self.assertEqual(later, self.get('x').updated_at)

    def test_only_a_stopped_conductor_is_deleted(self):
        uuid = self.add_service(self.east, 'a')
        error = self.assertRaises(
            exception.InvalidField, self.services.delete, ADMIN, uuid)
        self.assertIn('nova-conductor of host a is up', str(error))
        self.apply(self.east, rows.stop, 'a', rows.CONDUCTOR,
                   self.targets.database(self.east).now())

        self.assertEqual(
            rows.CONDUCTOR, self.services.delete(ADMIN, uuid).binary)

        # The compute host of this name stays.
        self.assertEqual([('a', 'east', 'up')], self.states(host='a'))

    def test_listing_is_narrowed(self):
        for which, hosts in (
                ({'host': 'b'}, ['b']), ({'cell': 'east'}, ['a', 'c']),
                ({'cell': self.west.uuid}, ['b']), ({'binary': 'x'}, []),
                ({'binary': 'nova-compute', 'cell': 'west'}, ['b'])):
            self.assertEqual(
                hosts, [host for host, _, _ in self.states(**which)], which)
        self.assertRaises(exception.CellMappingNotFound, self.states,
                          cell='nowhere')

    def test_hosts_of_a_silent_cell_are_unknown(self):
        self.take_down(self.east)

        page = self.services.list(ADMIN)

        self.assertEqual(
            [('a', 'east', 'UNKNOWN'), ('b', 'west', 'up'),
             ('c', 'east', 'UNKNOWN')], self.states())
        self.assertEqual([self.east.identity], page.down_cells)

    def test_host_is_disabled_with_a_reason_and_enabled(self):
        self.services.set(ADMIN, 'a', 'nova-compute', True, 'new disks')
        self.assertEqual((True, 'new disks', 'up'), (
            self.get('a').disabled, self.get('a').disabled_reason,
            self.get('a').state))

        self.services.set(ADMIN, 'a', 'nova-compute', False)

        self.assertEqual((False, None), (
            self.get('a').disabled, self.get('a').disabled_reason))

    def test_forced_down_service_is_down_despite_reports(self):
        self.services.set(ADMIN, 'a', 'nova-compute', forced_down=True)
        self.assertEqual('down', self.get('a').state)

        self.services.set(ADMIN, 'a', 'nova-compute', forced_down=False)

        self.assertEqual('up', self.get('a').state)

    def test_invalid_changes_of_a_service_are_refused(self):
        for kind, args in (
                (exception.HostMappingNotFound, ('x', 'nova-compute', True)),
                (exception.InvalidField, ('a', 'nova-conductor', True)),
                (exception.InvalidField, ('a', 'nova-compute')),
                (exception.InvalidField, ('a', 'nova-compute', False, 'why')),
                (exception.InvalidField, ('a', 'nova-compute', True, 'x\n')),
                (exception.InvalidField, ('', 'nova-compute', True))):
            self.assertRaises(kind, self.services.set, ADMIN, *args)
        self.assertFalse(self.get('a').disabled)

    def test_deleted_host_is_new_after_the_next_report(self):
        self.silence(self.east, 'a')

        self.assertEqual('a', self.services.delete(ADMIN, self.ids['a']).host)

        self.assertEqual(['b', 'c'], [host for host, _, _ in self.states()])
        self.assertEqual({}, self.read(
            self.database, host_mappings.get_many, ['a']))
        self.add_host(self.west, 'a')
        self.assertEqual([('a', 'west', 'up')], self.states(host='a'))

    def test_nodes_of_a_deleted_host_have_no_capacity(self):
        self.silence(self.east, 'a')
        [node] = [uuid for uuid, host in self.apply(
            self.east, lambda connection: connection.execute(sa.select(
                models.compute_nodes.c.uuid, models.compute_nodes.c.host)
            ).all()) if host == 'a']
        child = child_providers.uuid_of(node, 'gpu0')
        self.apply(self.east, lambda connection: connection.execute(
            sa.update(models.compute_nodes).values(
                providers=child_providers.dump([
                    child_providers.Child(child, 'gpu0')]))))
        for provider in node, child:
            self.claims.set_inventory(
                provider, {'VCPU': claims.Inventory(total=4)})

        self.services.delete(ADMIN, self.ids['a'])

        self.assertEqual({node: False, child: False}, {
            usage.provider: any(usage.capacity.values())
            for usage in self.claims.usages().usages})

    def test_host_with_servers_or_reports_stays(self):
        error = self.assertRaises(
            exception.InvalidField, self.services.delete, ADMIN,
            self.ids['a'])
        self.assertIn('is up', str(error))
        self.apply(self.east, instances.create, [samples.instance(
            samples.uuids(1)[0], host='a')], samples.NOW)
        self.services.set(ADMIN, 'a', 'nova-compute', forced_down=True)
        self.assertRaises(
            exception.HostInUse, self.services.delete, ADMIN,
            self.ids['a'])
        self.assertRaises(
            exception.ServiceNotFound, self.services.delete, ADMIN, UNKNOWN)

        self.assertEqual('down', self.get('a').state)
        self.assertIn('a', self.read(
            self.database, host_mappings.get_many, ['a']))
