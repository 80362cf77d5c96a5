# SPDX-License-Identifier: Apache-2.0
"""Hosts have the facts of cells, Placement and pending selections."""

import collections
import datetime
import pathlib
import tempfile
import threading
import time
import types
import unittest

import fixtures
from keystoneauth1 import exceptions as ks_exceptions
import nova.conf
from nova import context as nova_context
from nova.db.main import models
from nova import exception as nova_exception
from nova import objects as nova_objects
from nova.scheduler import host_manager
from oslo_utils import fixture
from oslo_utils import timeutils
import sqlalchemy as sa
from sqlalchemy import orm

from cellsched import exception
from cellsched.hardware import units
from cellsched.hosts import hardware
from cellsched_nova import placement
from cellsched_nova import source
from tests import configuration_fixtures
from tests import test_cells
from tests import test_placement

nova_objects.register_all()

CONF = nova.conf.CONF

HOST = test_placement.HOST
SERVER = '40000000-0000-4000-8000-000000000000'
CELL = '30000000-0000-4000-8000-000000000000'

LONG_AGO = datetime.datetime(2026, 1, 1)

#: Free resources in Placement, and the selected resources.
LEFT = {'MEMORY_MB': 2 * (8192 - 1) - 3}
CHOSEN = {'MEMORY_MB': 512}


def cell(connection):
    """Create the database of a cell with one host; return the cell."""
    engine = sa.create_engine(connection)
    tables = [each.__table__ for each in (
        models.ComputeNode, models.Instance, models.Migration,
        models.Service)]
    models.BASE.metadata.create_all(engine, tables)
    with orm.Session(engine) as session:
        session.add(models.Service(
            host='host1', binary='nova-compute', topic='compute',
            report_count=1, uuid=CELL, disabled=False,
            last_seen_up=timeutils.utcnow()))
        session.add(models.ComputeNode(
            uuid=HOST, host='host1', hypervisor_hostname='host1', vcpus=8,
            memory_mb=8192, local_gb=100, vcpus_used=0, memory_mb_used=0,
            local_gb_used=0, free_ram_mb=8192, free_disk_gb=100,
            hypervisor_type='QEMU', hypervisor_version=1, cpu_info='',
            supported_instances='[]', metrics='[]',
            updated_at=LONG_AGO, cpu_allocation_ratio=1.0,
            ram_allocation_ratio=1.0, disk_allocation_ratio=1.0))
        session.commit()
    engine.dispose()
    return nova_objects.CellMapping(
        id=1, uuid=CELL, name='cell1', transport_url='none:///',
        database_connection=connection, disabled=False)


class HostsTestCase(configuration_fixtures.TestCase):
    """The hosts of one cell and a fake Placement."""

    def setUp(self):
        super().setUp()
        # Nova caches the connections to cells.
        self.addCleanup(nova_context.CELL_CACHE.pop, CELL, None)
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.time = fixture.TimeFixture()
        self.time.setUp()
        self.addCleanup(self.time.cleanUp)
        self.placement = test_placement.Placement()
        self.placement.put(HOST, 1, total=8192, resource='MEMORY_MB')
        self.cell = cell(f'sqlite:///{pathlib.Path(directory.name, "cell")}')
        self.manager = types.SimpleNamespace(
            cells={CELL: self.cell}, aggs_by_id={})
        self.hosts = source.NovaHosts(self.manager, self.placement, CONF)
        self.refresh()

    def refresh(self):
        self.hosts.refresh(nova_context.get_admin_context())

    def view(self):
        return self.hosts.table.view(timeutils.utcnow_ts(microsecond=True))


class TestPendingAllocations(HostsTestCase):

    def choose(self):
        """Select the host; return the unconfirmed allocation."""
        hosts = self.view()
        hosts.take(0, CHOSEN)
        return self.hosts.table.reserve(hosts)

    def change(self):
        """Write to the host's provider as another process."""
        self.placement.providers[HOST]['generation'] += 1

    def assertChosen(self, times):
        [free_now_mb] = self.view().available('MEMORY_MB')
        [free_mb] = self.view()['free_ram_mb']
        taken = times * CHOSEN['MEMORY_MB']
        self.assertEqual((LEFT['MEMORY_MB'] - taken, 8192 - 1 - 3 - taken),
                         (free_now_mb, free_mb))

    def test_claim_counts_until_reported_by_placement(self):
        self.hosts.confirm(self.choose())
        self.refresh()
        self.assertChosen(1)

        self.change()
        self.refresh()

        self.assertChosen(0)

    def test_selection_without_claim_counts_in_addition_to_placement(self):
        for number in range(2):
            self.hosts.confirm(self.choose(), claimed=False)
            self.time.advance_time_seconds(20)
            self.change()
            self.refresh()

            self.assertChosen(number + 1)

    def test_selection_without_claim_counts_for_a_minute(self):
        self.hosts.confirm(self.choose(), claimed=False)
        self.time.advance_time_seconds(40)
        self.hosts.confirm(self.choose(), claimed=False)
        self.refresh()
        self.assertChosen(2)

        for later_s, count in (19, 2), (2, 1), (40, 0):
            self.time.advance_time_seconds(later_s)
            self.refresh()

            self.assertChosen(count)

    def test_claim_already_reported_by_placement_counts_once(self):
        noted = self.choose()
        self.change()
        self.refresh()
        self.hosts.confirm(noted, claimed=False)

        self.refresh()

        self.assertChosen(1)

    def test_host_with_a_refused_claim_is_full_until_read(self):
        refusal = exception.ClaimRefused(
            provider=HOST, resource='MEMORY_MB', amount=512, consumer='c')

        self.hosts.note_full([refusal])

        self.assertEqual([511], [*self.view().available('MEMORY_MB')])
        self.hosts.expire([HOST])
        self.hosts.follow(nova_context.get_admin_context())
        self.assertChosen(0)


class TestChangedHosts(HostsTestCase):
    """Changes since the last read are found for the selected hosts."""

    def find_changed(self, with_traits=False):
        return self.hosts.find_changed(
            nova_context.get_admin_context(), self.view(), [0], with_traits)

    def write(self, **values):
        with nova_context.target_cell(
                nova_context.get_admin_context(), self.cell) as context:
            engine = context.db_connection.writer.get_engine()
        with engine.begin() as connection:
            connection.execute(sa.update(models.Service).values(**values))

    def test_disabled_service_is_found(self):
        self.assertEqual(set(), self.find_changed())

        for name in 'disabled', 'forced_down':
            self.write(**{name: True})
            self.assertEqual({0}, self.find_changed())
            self.refresh()
            self.assertEqual(set(), self.find_changed())

    def test_deleted_service_is_found(self):
        self.write(deleted=1)

        self.assertEqual({0}, self.find_changed())

    def test_host_of_a_silent_cell_counts_as_changed(self):
        with nova_context.target_cell(
                nova_context.get_admin_context(), self.cell) as context:
            engine = context.db_connection.writer.get_engine()

        @sa.event.listens_for(engine, 'before_cursor_execute')
        def refuse(*arguments):
            raise nova_exception.NovaException('the cell is away')

        self.assertEqual({0}, self.find_changed())

    def test_cell_is_disabled_in_the_table(self):
        for disabled in False, True:
            self.cell.disabled = disabled
            self.refresh()

            self.assertEqual([disabled], self.view()['cell_disabled'].tolist())

    def test_traits_are_read_for_requests_with_traits(self):
        self.placement.providers[HOST]['traits'] = ['CUSTOM_NEW']

        self.assertEqual(set(), self.find_changed())
        self.assertEqual({0}, self.find_changed(with_traits=True))
        self.refresh()
        self.assertEqual(set(), self.find_changed(with_traits=True))

    def test_received_aggregates_need_no_read(self):
        readings = self.hosts.readings
        self.manager.aggs_by_id[1] = aggregate(
            1, 'host1', filter_tenant_id='p')
        self.hosts.apply_aggregates()

        [[found]] = self.view().values_at(0, 'aggregates')
        self.assertEqual({'filter_tenant_id': 'p'}, dict(found.metadata))
        self.assertEqual(readings, self.hosts.readings)


class TestHardware(HostsTestCase):
    """NUMA cells and devices of hosts, and selections that they lack."""

    def engine(self):
        with nova_context.target_cell(
                nova_context.get_admin_context(), self.cell) as context:
            return context.db_connection.writer.get_engine()

    def write(self, statement):
        with self.engine().begin() as connection:
            connection.execute(statement)

    def report(self, **values):
        """Write the row of the compute node as its compute does."""
        self.time.advance_time_seconds(10)
        self.write(sa.update(models.ComputeNode).values(
            updated_at=timeutils.utcnow(), **values))

    def select(self, claimed=True):
        """Select the host for a server with the CPUs 2 and 3."""
        hosts = self.view()
        taken = {units.cpu(2): 1, units.cpu(3): 1, units.memory(0): 512}
        hosts.take(0, {**CHOSEN, **taken})
        allocations = self.hosts.table.reserve(hosts)
        self.hosts.confirm(allocations, claimed, [SERVER] if claimed else ())

    def free_cpus(self):
        """Return the free dedicated CPUs of the host."""
        [cell] = hardware.on_host(self.view(), 0).topology.cells
        return len(cell.free_pcpus), cell.memory_usage

    def put_instance(self, **values):
        self.write(sa.delete(models.Instance))
        self.write(sa.insert(models.Instance).values(
            uuid=SERVER, **{'deleted': 0, **values}))

    def test_report_fills_cells_and_devices(self):
        self.report(numa_topology=test_cells.numa_topology(),
                    pci_stats=test_cells.pci_stats((0, 2)))
        self.refresh()

        found = hardware.on_host(self.view(), 0)
        self.assertEqual(2, len(found.topology.cells[0].free_pcpus))
        self.assertEqual([2], [each.count for each in found.pools])
        self.report(numa_topology=test_cells.numa_topology([2]))
        self.refresh()
        self.assertEqual((1, 0), self.free_cpus())

    def test_columns_without_a_reader_are_not_read(self):
        statements = []
        self.hosts = source.NovaHosts(
            self.manager, self.placement, CONF, hardware=())
        sa.event.listen(
            self.engine(), 'before_cursor_execute',
            lambda connection, cursor, statement, *rest: statements.append(
                statement))
        self.refresh()

        self.assertIn('compute_nodes', ' '.join(statements))
        for name in 'numa_topology', 'pci_stats':
            self.assertNotIn(name, ' '.join(statements))

    def test_selection_counts_until_the_compute_has_claimed(self):
        self.report(numa_topology=test_cells.numa_topology())
        self.refresh()
        self.select()
        self.refresh()
        self.assertEqual((0, 512), self.free_cpus())

        # The compute sets the host of the server before it writes its row.
        place = {'host': 'host1', 'node': 'host1', 'vm_state': 'building'}
        self.put_instance(task_state=None, **place)
        self.refresh()
        self.assertEqual((0, 512), self.free_cpus())

        self.put_instance(task_state='networking', **place)
        self.report(numa_topology=test_cells.numa_topology([2, 3]))
        self.refresh()
        self.assertEqual((0, 0), self.free_cpus())

    def test_deleted_server_does_not_count(self):
        self.report(numa_topology=test_cells.numa_topology())
        self.refresh()
        self.select()
        self.put_instance(deleted=1, vm_state='deleted')
        self.refresh()

        self.assertEqual((2, 0), self.free_cpus())

    def test_move_counts_until_the_destination_has_claimed(self):
        self.report(numa_topology=test_cells.numa_topology())
        self.refresh()
        self.select()
        self.put_instance(host='host0', node='host0', vm_state='active',
                          task_state='resize_prep')
        for status, found in (('pre-migrating', (0, 512)),
                              ('migrating', (2, 0))):
            self.write(sa.delete(models.Migration))
            self.write(sa.insert(models.Migration).values(
                instance_uuid=SERVER, dest_compute='host1',
                dest_node='host1', status=status, deleted=0))
            self.refresh()

            self.assertEqual(found, self.free_cpus())

    def test_selection_without_a_server_counts_for_a_minute(self):
        self.report(numa_topology=test_cells.numa_topology())
        self.refresh()
        self.select()
        for later_s, found in (50, (0, 512)), (20, (2, 0)):
            self.time.advance_time_seconds(later_s)
            self.refresh()

            self.assertEqual(found, self.free_cpus())

    def test_changed_report_is_found_for_requests_with_hardware(self):
        self.report(numa_topology=test_cells.numa_topology())
        self.refresh()
        self.report(numa_topology=test_cells.numa_topology([2]))

        for hardware_of, found in ([], set()), ([0], {0}):
            self.assertEqual(found, self.hosts.find_changed(
                nova_context.get_admin_context(), self.view(), [0], False,
                hardware_of))
        self.refresh()
        self.assertEqual(set(), self.hosts.find_changed(
            nova_context.get_admin_context(), self.view(), [0], False, [0]))

    def test_hosts_with_dedicated_cpus_without_pcpu_are_known(self):
        self.assertFalse(self.hosts.any_without_pcpu)
        self.report(numa_topology=test_cells.numa_topology())
        self.refresh()
        self.assertTrue(self.hosts.any_without_pcpu)

        self.placement.put(HOST, 2, total=4, resource='PCPU')
        self.hosts.refresh(nova_context.get_admin_context(), whole=True)
        self.assertFalse(self.hosts.any_without_pcpu)


class TestSilentPlacement(HostsTestCase):
    """Requests of other threads do not wait for a read without an answer."""

    def setUp(self):
        super().setUp()
        self.asked, self.answer = threading.Event(), threading.Event()
        self.addCleanup(self.answer.set)
        self.context = nova_context.get_admin_context()

    def read_in_silence(self):
        """Begin a read that Placement does not answer."""
        get = self.placement.get

        def wait(path, **kwargs):
            if threading.current_thread() is thread:
                self.asked.set()
                self.answer.wait(300)
            return get(path, **kwargs)

        self.placement.get = wait
        thread = threading.Thread(
            target=self.hosts.refresh, args=(self.context,))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.answer.set)
        self.asked.wait(300)

    def forget_last_read(self, older_s):
        """Make the last good read older."""
        clock = fixtures.MonkeyPatch(
            'time.monotonic', lambda now=time.monotonic: now() + older_s)
        clock.setUp()
        self.addCleanup(clock.cleanUp)

    def test_request_is_decided_on_the_last_read(self):
        self.read_in_silence()
        self.forget_last_read(20.0)

        with self.assertLogs(source.LOG.logger, 'WARNING') as logged:
            self.assertFalse(self.hosts.follow(self.context, 300.0))

        self.assertRegex(
            logged.output[0], 'as they were before: 2.* seconds ago, a newer '
            'read has not ended')

    def test_request_is_refused_on_a_stale_read(self):
        self.read_in_silence()
        self.forget_last_read(31.0)

        with self.assertRaisesRegex(
                placement.PlacementUnavailable, 'has not ended'):
            self.hosts.follow(self.context, 0.1)

    def test_read_in_progress_is_no_reason_for_a_refusal(self):
        self.read_in_silence()

        with self.assertRaisesRegex(
                placement.PlacementUnavailable, 'has not ended'):
            self.hosts.read_whole(self.context, time.monotonic(), 0.1)

    def test_failed_read_is_no_reason_for_a_refusal(self):
        since = time.monotonic()
        self.placement.failure = ks_exceptions.ConnectFailure('gone')
        for _ in range(2):
            with self.assertRaisesRegex(
                    placement.PlacementUnavailable, 'gone'):
                self.hosts.read_whole(self.context, since, 0.0)

        self.placement.failure = None
        self.hosts.read_whole(self.context, since, 0.0)

    def test_whole_read_since_a_request_is_not_repeated(self):
        since = time.monotonic()
        self.hosts.read_whole(self.context, since, 0.0)
        self.placement.asked.clear()

        self.hosts.read_whole(self.context, since, 0.0)

        self.assertEqual([], self.placement.asked)

    def test_freed_hosts_are_not_awaited_for_longer_than_the_request(self):
        self.read_in_silence()
        self.placement.summarised = [HOST]

        self.assertFalse(self.hosts.find_freed(
            self.context, {'VCPU': 1}, self.hosts.readings, 0.1))

    def test_failed_read_does_not_make_hosts_recent(self):
        self.forget_last_read(20.0)
        self.placement.failure = ks_exceptions.ConnectFailure('gone')

        with self.assertLogs(source.LOG.logger, 'WARNING') as logged:
            self.assertTrue(self.hosts.follow(self.context, 0.0))
        self.forget_last_read(31.0)
        with self.assertRaisesRegex(placement.PlacementUnavailable, 'gone'):
            self.hosts.follow(self.context, 0.0)

        self.assertRegex(logged.output[-1], 'as they were before: 2.* gone')

    def test_only_expired_hosts_are_read_beside_recent_hosts(self):
        readings = self.hosts.readings
        self.placement.providers[HOST]['usages'] = {'VCPU': 7}
        self.hosts.expire([HOST])
        self.placement.asked.clear()

        self.assertTrue(self.hosts.follow(self.context, 0.0))

        self.assertEqual(
            [f'/resource_providers/{HOST}/usages'], self.placement.asked)
        self.assertEqual({'VCPU': 7}, self.hosts.facts(HOST).used)
        self.assertEqual(readings + 1, self.hosts.readings)
        self.assertFalse(self.hosts.follow(self.context, 0.0))

    def test_no_expired_host_needs_no_read(self):
        self.hosts.expire([])

        self.assertFalse(self.hosts.follow(self.context, 0.0))

    def test_pause_is_longer_after_a_long_read(self):
        """A table of that age is recent enough for a request."""
        now = [time.monotonic()]
        clock = fixtures.MonkeyPatch('time.monotonic', lambda: now[0])
        clock.setUp()
        self.addCleanup(clock.cleanUp)
        get = self.placement.get

        def get_late(path, **named):
            now[0] += 1.0
            return get(path, **named)

        self.placement.get = get_late
        self.hosts.refresh(self.context)
        self.placement.asked.clear()
        now[0] += 5.0

        self.assertFalse(self.hosts.follow(self.context, 0.0))
        now[0] += 5.0
        self.assertTrue(self.hosts.follow(self.context, 0.0))

    def test_refused_read_is_not_repeated(self):
        self.placement.failure = ks_exceptions.Unauthorized('no such user')
        self.refresh()
        self.placement.asked.clear()

        with self.assertRaisesRegex(
                placement.PlacementRefused, 'no such user'):
            self.hosts.await_placement(self.context, 300.0)

        self.assertEqual([], self.placement.asked)

    def test_answer_of_placement_has_a_timeout_by_default(self):
        self.assertEqual(30, CONF.placement.timeout)


class TestFindFreed(unittest.TestCase):

    def setUp(self):
        super().setUp()
        # Without the threads and databases that the constructor uses.
        manager = host_manager.HostManager.__new__(host_manager.HostManager)
        manager.cells, manager.aggs_by_id = {}, {}
        manager.host_aggregates_map = collections.defaultdict(set)
        self.placement = test_placement.Placement()
        self.placement.put(HOST, 1)
        self.hosts = source.NovaHosts(
            manager, self.placement, types.SimpleNamespace(
                default_availability_zone='nova',
                cellsched=types.SimpleNamespace(full_refresh_interval=300.0),
                scheduler=types.SimpleNamespace(max_placement_results=50)))
        self.context = nova_context.get_admin_context()
        self.hosts.refresh(self.context)

    def free(self):
        """Reduce the usage without a change of the generation."""
        self.placement.providers[HOST]['usages'] = {'VCPU': 1}
        self.placement.summarised = [HOST]
        self.placement.asked.clear()

    def find(self, readings):
        return self.hosts.find_freed(self.context, {'VCPU': 1}, readings)

    def usage_requests(self):
        return self.placement.asked.count(
            f'/resource_providers/{HOST}/usages')

    def test_freed_hosts_are_read(self):
        self.free()

        self.assertTrue(self.find(self.hosts.readings))

        self.assertEqual(1, self.usage_requests())
        self.assertFalse(self.find(self.hosts.readings))

    def test_read_by_another_thread_is_not_repeated(self):
        self.free()
        before = self.hosts.readings
        self.find(before)

        self.assertTrue(self.find(before))

        self.assertEqual(1, self.usage_requests())

    def test_read_in_progress_is_awaited(self):
        self.free()
        before = self.hosts.readings
        reading, looked = threading.Event(), threading.Event()
        get = self.placement.get

        def wait(path, **kwargs):
            if path == '/resource_providers':
                reading.set()
                looked.wait(300)
            elif path.startswith('/allocation_candidates'):
                looked.set()
            return get(path, **kwargs)

        self.placement.get = wait
        other = threading.Thread(target=self.hosts.reload, args=([HOST],))
        other.start()
        reading.wait(300)

        self.assertTrue(self.find(before))

        other.join()
        self.assertEqual(1, self.usage_requests())

    def test_reads_are_ignored_without_free_capacity(self):
        before = self.hosts.readings
        self.hosts.refresh(self.context)

        self.assertFalse(self.find(before))

    def test_unreachable_placement_frees_no_host(self):
        self.free()
        self.placement.failure = ks_exceptions.ConnectFailure('gone')

        with self.assertLogs(source.LOG.logger, 'WARNING') as logged:
            self.assertFalse(self.find(self.hosts.readings))

        self.assertIn('gone', logged.output[0])

    def test_resources_may_fit_if_offered_or_placement_is_away(self):
        self.assertFalse(self.hosts.may_fit(self.context, {'VCPU': 1}))
        self.assertTrue(self.hosts.may_fit(self.context, {}))
        self.free()
        self.assertTrue(self.hosts.may_fit(self.context, {'VCPU': 1}))
        self.assertIn('&limit=1', self.placement.asked[-1])
        self.placement.summarised = []
        self.placement.failure = ks_exceptions.ConnectFailure('gone')
        self.assertTrue(self.hosts.may_fit(self.context, {'VCPU': 1}))

    def test_placement_is_not_awaited_without_hosts(self):
        self.placement.failure = ks_exceptions.ConnectFailure('gone')
        self.hosts.refresh(self.context)
        self.assertIn('gone', self.hosts.unread_reason)

        self.hosts.await_placement(self.context, 0.0)


nova_objects.register_all()


def aggregate(number, *hosts, **metadata):
    return nova_objects.Aggregate(
        id=number, uuid=f'00000000-0000-4000-8000-00000000000{number}',
        name=f'aggregate{number}', hosts=list(hosts), metadata=metadata)


class TestNovaAggregates(unittest.TestCase):

    def setUp(self):
        self.conf = types.SimpleNamespace(
            default_availability_zone='nova', cellsched=types.SimpleNamespace(
                full_refresh_interval=300.0))
        # Without the threads and databases that the constructor uses.
        self.manager = host_manager.HostManager.__new__(
            host_manager.HostManager)
        self.manager.aggs_by_id = {}
        self.manager.host_aggregates_map = collections.defaultdict(set)
        self.existing, self.reads = [], 0
        self.aggregates = source.NovaAggregates(
            self.manager, self.conf, self.read_all)
        self.nodes = {name: types.SimpleNamespace(host=f'host-{name}')
                      for name in 'ab'}

    def read_all(self, context):
        self.reads += 1
        return nova_objects.AggregateList(objects=self.existing)

    def changes(self, new=()):
        changed, columns = self.aggregates.changes(self.nodes, new)
        return {uuid: ([each.name for each in group], zone)
                for uuid, group, zone in zip(
                    changed, columns['aggregates'],
                    columns['availability_zone'], strict=True)}

    def test_new_hosts_get_the_existing_aggregates(self):
        self.manager.aggs_by_id = {
            1: aggregate(1, 'host-a'),
            2: aggregate(2, 'host-a', availability_zone='zone2')}

        self.assertEqual(
            {'a': (['aggregate1', 'aggregate2'], 'zone2'),
             'b': ([], 'nova')}, self.changes('ab'))
        self.assertEqual({}, self.changes())

    def test_only_changed_hosts_are_returned(self):
        self.manager.aggs_by_id = {1: aggregate(1, 'host-a')}
        self.changes('ab')
        self.manager.aggs_by_id = {
            1: aggregate(1, 'host-a'), 2: aggregate(2, 'host-b')}

        self.assertEqual({'b': (['aggregate2'], 'nova')}, self.changes())
        del self.manager.aggs_by_id[1]
        self.assertEqual({'a': ([], 'nova')}, self.changes())

    def test_all_aggregates_are_read_again_after_the_interval(self):
        self.manager.aggs_by_id = {1: aggregate(1, 'host-a')}
        self.existing = [aggregate(2, 'host-b')]
        self.aggregates.read('context')
        self.assertEqual(0, self.reads)
        self.conf.cellsched.full_refresh_interval = 0.0
        self.aggregates.read('context')

        self.assertEqual([2], list(self.manager.aggs_by_id))
        self.assertEqual({'b': (['aggregate2'], 'nova')}, self.changes('b'))

    def test_changed_sign_reads_all_aggregates(self):
        long_ago = datetime.datetime(2026, 1, 1)
        self.existing = [aggregate(2, 'host-b')]
        for sign, reads in ((1, long_ago), 1), ((1, long_ago), 1), (
                (2, timeutils.utcnow()), 2), ((2, timeutils.utcnow()), 3):
            with fixtures.MonkeyPatch(
                    'cellsched_nova.cells.aggregates_sign',
                    lambda context, sign=sign: sign):
                self.aggregates.follow('context')

            self.assertEqual(reads, self.reads)
        self.assertEqual([2], list(self.manager.aggs_by_id))
