# SPDX-License-Identifier: Apache-2.0
"""Writing the host table."""

import itertools

import numpy as np

from cellsched.hosts import columns
from cellsched.hosts import table
from tests.unit import base
from tests.unit.hosts import allocation

#: The host of a table that is made here: 8 CPUs, 16 GB and 100 GB of disk.
_HOST = {'vcpus_total': 8, 'unreserved_ram_mb': 16384, 'free_ram_mb': 16384,
         'unreserved_disk_mb': 102400, 'free_disk_mb': 102400,
         'available:VCPU': 32}

#: The same, as the claim store tells of it; there is room for one more.
_ROOM = {'VCPU': 4, 'MEMORY_MB': 16384, 'DISK_GB': 100}


def made(*uuids):
    hosts = table.HostTable()
    hosts.put(uuids, _HOST)
    return hosts


def available(hosts, resource):
    return hosts.view(0.0).available(resource).tolist()


def values(hosts, name):
    known = hosts.encoding(name).values
    return [known[code] for code in hosts[name]]


class TestBound(base.TestCase):

    def test_free_amount_is_bounded_until_the_next_usage(self):
        hosts = made('a', 'b')

        hosts.bound([('a', 'VCPU', 2), ('b', 'VCPU', 64)])
        self.assertEqual([2, 32], available(hosts, 'VCPU'))

        hosts.set_usage('a', {'VCPU': 32}, {'VCPU': 4}, 1)
        hosts.publish()
        self.assertEqual([28, 32], available(hosts, 'VCPU'))

    def test_confirmed_claim_counts_before_the_bound(self):
        hosts = made('a')
        allocation.take(hosts, 0, {'VCPU': 30})

        hosts.bound([('a', 'VCPU', 1)])

        self.assertEqual([1], available(hosts, 'VCPU'))

    def test_bound_of_an_unknown_host_or_resource_is_ignored(self):
        hosts = made('a')

        hosts.bound([('x', 'VCPU', 0), ('a', 'CUSTOM_GOLD', 0)])

        self.assertEqual([32], available(hosts, 'VCPU'))


class TestPut(base.TestCase):

    def test_default_takes_no_memory_until_a_host_differs(self):
        hosts = made('a', 'b')
        self.assertEqual((0,), hosts['failed_builds'].strides)
        hosts.put(['c'], {'failed_builds': 0})
        hosts.drop(['b'])
        self.assertEqual((0,), hosts['failed_builds'].strides)
        before = hosts['failed_builds']

        hosts.put(['c'], {'failed_builds': 2})

        self.assertEqual([0, 2], hosts['failed_builds'].tolist())
        self.assertEqual([0, 0], before.tolist())
        hosts.put(['d'], {})
        self.assertEqual([0, 2, 0], hosts['failed_builds'].tolist())

    def test_write_of_equal_values_copies_no_column(self):
        hosts = made('a', 'b')
        before = hosts['vcpus_total']

        hosts.put(['a'], {'vcpus_total': 8, 'hypervisor_version': 1})

        self.assertIs(before, hosts['vcpus_total'])

    def test_new_host_has_defaults(self):
        hosts = table.HostTable()
        hosts.put(['x'], {})

        for column in columns.STANDARD:
            if column.dtype == columns.CODED:
                self.assertEqual(
                    [column.default], values(hosts, column.name))
            elif column.name != 'uuid':
                self.assertEqual([column.default],
                                 hosts[column.name].tolist(), column.name)

    def test_reused_row_has_defaults(self):
        hosts = made('x', 'y', 'z')
        hosts.put(['x', 'y', 'z'], {'cell': 'c', 'host': 'h',
                                    'forced_down': True})
        hosts.drop(['y'])

        hosts.put(['new'], {})

        row = hosts.row('new')
        self.assertEqual(('', False, 0.0, ''), (
            hosts['host'][row], hosts['forced_down'][row],
            hosts['available:VCPU'][row], values(hosts, 'cell')[row]))

    def test_omitted_column_is_unchanged(self):
        hosts = table.HostTable()
        hosts.put(['x', 'y'], {'vcpus_total': [1, 2], 'host': 'h'})

        hosts.put(['y'], {'vcpus_used': [9]})

        self.assertEqual([1, 2], hosts['vcpus_total'].tolist())
        self.assertEqual([0, 9], hosts['vcpus_used'].tolist())
        self.assertEqual(['h', 'h'], hosts['host'].tolist())

    def test_value_is_a_scalar_or_a_list_or_an_array(self):
        hosts = table.HostTable()
        for given in (7, [7, 7], np.array([7, 7])):
            hosts.put(['x', 'y'], {'vcpus_total': given})
            self.assertEqual([7, 7], hosts['vcpus_total'].tolist())
        for given in ('c', ['c', 'c'], np.array(['c', 'c'])):
            hosts.put(['x', 'y'], {'cell': given})
            self.assertEqual(['c', 'c'], values(hosts, 'cell'))

    def test_tuple_is_a_scalar(self):
        hosts = table.HostTable()

        hosts.put(['x', 'y'], {'supported_instances': (('x86_64', 'kvm'),)})

        self.assertEqual([(('x86_64', 'kvm'),)] * 2,
                         values(hosts, 'supported_instances'))

    def test_list_shorter_than_the_hosts_is_an_error(self):
        hosts = made('x', 'y', 'z')

        self.assertRaises(ValueError, hosts.put, ['x', 'y', 'z'],
                          {'vcpus_total': [1, 2]})

    def test_unknown_column_is_an_error(self):
        self.assertRaises(KeyError, made('x').put, ['x'], {'nonsense': 1})

    def test_host_repeated_in_a_write_has_a_single_row(self):
        hosts = table.HostTable()

        hosts.put(['x', 'y', 'x'], {'vcpus_total': [1, 2, 3]})

        self.assertEqual(['x', 'y'], hosts['uuid'].tolist())
        self.assertEqual([3, 2], hosts['vcpus_total'].tolist())

    def test_room_can_be_put(self):
        hosts = table.HostTable()

        hosts.put(['x', 'y'], {'available:CUSTOM_X': [1, 2]})

        self.assertEqual([1, 2], available(hosts, 'CUSTOM_X'))

    def test_column_of_a_plugin_is_kept(self):
        rack = columns.Column('rack', 'int32', -1, 'number of the rack')
        hosts = table.HostTable((*columns.STANDARD, rack))

        hosts.put(['x', 'y'], {})
        hosts.put(['y'], {'rack': 4})

        self.assertEqual([-1, 4], hosts['rack'].tolist())

    def test_table_grows_host_by_host(self):
        hosts = table.HostTable()
        for number in range(100):
            hosts.put([str(number)], {'vcpus_total': number, 'cell': 'c'})

        self.assertEqual(list(range(100)), hosts['vcpus_total'].tolist())
        self.assertEqual(['c'] * 100, values(hosts, 'cell'))


class TestCoded(base.TestCase):

    def test_values_without_hosts_are_dropped_with_the_cache(self):
        hosts = made('x', 'y')
        hosts.snapshot.kept['key'] = 'made'
        for number in range(3000):
            hosts.put(['x'], {'stats': f'{number}', 'cell': 'c'})
            self.assertLess(len(hosts.encoding('stats').values), 1010)

        self.assertEqual(['2999', ''], values(hosts, 'stats'))
        # It may have been made of codes.
        self.assertEqual({}, hosts.snapshot.kept)

    def test_table_grows_after_values_are_dropped(self):
        hosts = made('x', 'y', 'z')
        hosts.drop(['y'])
        for number in range(1500):
            hosts.put(['x'], {'stats': f'{number}'})

        hosts.put(['v', 'w'], {'stats': ['a', 'b']})

        self.assertEqual(['1499', '', 'a', 'b'], values(hosts, 'stats'))

    def test_many_hosts_may_have_as_many_values(self):
        uuids = [str(number) for number in range(2000)]
        hosts = made(*uuids)

        hosts.put(uuids, {'stats': uuids})

        self.assertEqual(uuids, values(hosts, 'stats'))


class TestDrop(base.TestCase):

    def test_remaining_hosts_keep_values(self):
        hosts = made('w', 'x', 'y', 'z')
        hosts.put(['w', 'x', 'y', 'z'], {
            'vcpus_used': [0, 1, 2, 3], 'cell': ['a', 'b', 'c', 'd']})

        hosts.drop(['x', 'w'])

        self.assertEqual(['y', 'z'], hosts['uuid'].tolist())
        self.assertEqual([2, 3], hosts['vcpus_used'].tolist())
        self.assertEqual(['c', 'd'], values(hosts, 'cell'))
        self.assertEqual([0, 1, None], [hosts.row(uuid) for uuid in 'yzx'])

    def test_unknown_host_is_ignored(self):
        hosts = made('x', 'y')

        hosts.drop(['nobody'])
        hosts.set_usage('nobody', {'VCPU': 1}, {}, 0)

        self.assertEqual(2, len(hosts))
        self.assertIsNone(hosts.row('nobody'))


class TestUsage(base.TestCase):

    def test_usage_determines_the_free_amounts(self):
        hosts = made('x', 'y')

        hosts.set_usage(
            'y', {'VCPU': 32, 'MEMORY_MB': 16384, 'DISK_GB': 100},
            {'VCPU': 2, 'MEMORY_MB': 1024, 'DISK_GB': 10, 'CUSTOM_X': 1}, 3)

        self.assertEqual(2, hosts['vcpus_used'][1])
        self.assertEqual(15360, hosts['free_ram_mb'][1])
        self.assertEqual(90 * 1024, hosts['free_disk_mb'][1])
        self.assertEqual(10 * 1024, hosts['disk_mb_used'][1])
        self.assertEqual(3, hosts['num_instances'][1])
        self.assertEqual(
            [30, 15360, 90, -1],
            [available(hosts, resource)[1] for resource
             in ('VCPU', 'MEMORY_MB', 'DISK_GB', 'CUSTOM_X')])
        self.assertEqual(32, available(hosts, 'VCPU')[0])

    def test_resource_missing_from_a_report_has_no_capacity(self):
        hosts = made('x')
        hosts.set_usage('x', {'VCPU': 4, 'CUSTOM_X': 2}, {}, 0)

        hosts.set_usage('x', {'VCPU': 4}, {}, 0)

        self.assertEqual([4], available(hosts, 'VCPU'))
        self.assertEqual([0], available(hosts, 'CUSTOM_X'))

    def test_bounds_of_classes_are_shared_and_follow_the_store(self):
        hosts = made('x', 'y', 'z')
        units = {'VCPU': (1, 4, 1), 'CUSTOM_X': (2, 8, 2)}
        for uuid in 'xy':
            hosts.set_usage(uuid, {}, {}, 0, dict(units))

        bounds = (('CUSTOM_X', 2, 8, 2), ('VCPU', 1, 4, 1))
        self.assertEqual([bounds, bounds, ()], values(hosts, 'units'))
        self.assertEqual([1, 1, 0], hosts['units'].tolist())

        hosts.set_usage('y', {}, {}, 0, {'VCPU': (1, 8, 1)})
        hosts.set_usage('x', {}, {}, 0)

        self.assertEqual([(), (('VCPU', 1, 8, 1),), ()],
                         values(hosts, 'units'))

    def test_derived_columns_follow_changed_bounds(self):
        hosts = made('x', 'y')

        def memo():
            return hosts.view(0).memo('units', lambda all_: [
                all_.value('units', code) for code in all_['units']])

        self.assertEqual([(), ()], memo())
        hosts.set_usage('y', {}, {}, 0, {'VCPU': (1, 4, 1)})
        after = [(), (('VCPU', 1, 4, 1),)]
        self.assertEqual(after, memo())
        kept = memo()
        hosts.set_usage('y', {'VCPU': 4}, {}, 0, {'VCPU': (1, 4, 1)})
        self.assertIs(kept, memo())

    def test_units_without_hosts_are_dropped(self):
        hosts = made('x')
        for most in range(1, 3000):
            hosts.set_usage('x', {}, {}, 0, {'VCPU': (1, most, 1)})

        self.assertLess(len(hosts.encoding('units').values), 1500)
        self.assertEqual([(('VCPU', 1, 2999, 1),)], values(hosts, 'units'))


class TestTakings(base.TestCase):

    resources = {'VCPU': 2, 'MEMORY_MB': 512, 'DISK_GB': 3}

    def setUp(self):
        super().setUp()
        self.hosts = made('x', 'y')
        for uuid in 'xy':
            self.hosts.set_usage(uuid, {
                'VCPU': 32, 'MEMORY_MB': 16384, 'DISK_GB': 100}, {}, 0)

    def choose(self, *rows):
        """Return what a request sees that takes something of these hosts."""
        view = self.hosts.view(10.0)
        for row in rows:
            view.take(row, self.resources)
        return view

    def contents(self):
        return {name: self.hosts[name].tolist() for name in self.hosts.names}

    def assertTaken(self):
        hosts = self.hosts
        self.assertEqual([2, 0], hosts['vcpus_used'].tolist())
        self.assertEqual([16384 - 512, 16384], hosts['free_ram_mb'].tolist())
        self.assertEqual([97 * 1024, 100 * 1024],
                         hosts['free_disk_mb'].tolist())
        self.assertEqual([3 * 1024, 0], hosts['disk_mb_used'].tolist())
        self.assertEqual([1, 0], hosts['num_instances'].tolist())
        self.assertEqual([1, 0], hosts['num_io_ops'].tolist())
        self.assertEqual([30, 32], available(hosts, 'VCPU'))

    def test_reservation_counts_like_a_server(self):
        before = self.contents()
        view = self.choose(0)
        self.assertEqual(before, self.contents())

        allocations = self.hosts.reserve(view)

        self.assertTaken()
        self.hosts.confirm(allocations)
        self.assertTaken()
        self.hosts.put(['y'], {'last_seen_up': 5.0})
        self.assertTaken()

    def test_rolled_back_allocation_has_no_effect(self):
        before = self.contents()
        self.hosts.rollback(self.hosts.reserve(self.choose(1)))
        self.assertEqual(before, self.contents())

        allocations = self.hosts.reserve(self.choose(1))
        self.hosts.put(['x'], {'last_seen_up': 0.0})
        self.hosts.rollback(allocations)
        self.hosts.expire(9e9)

        self.assertEqual(before, self.contents())

    def doubtful(self):
        """Return the allocations of others that a view counts in doubt."""
        found = []
        self.hosts.reuse(self.hosts.view(10.0, doubtful=found))
        return found

    def test_reservation_is_doubtful_until_confirmed(self):
        self.assertEqual([], self.doubtful())

        allocations = self.hosts.reserve(self.choose(1))
        self.assertEqual(allocations, self.doubtful())

        self.hosts.confirm(allocations)
        self.assertEqual([], self.doubtful())

    def test_reservation_reported_before_its_confirmation_is_doubtful(self):
        allocations = self.hosts.reserve(self.choose(1))
        self.hosts.set_usages([
            (each.node, {'VCPU': 30}, {}, 1, {}) for each in allocations])
        self.hosts.confirm(allocations)

        self.assertTrue(allocations[0].maybe_reported)
        self.assertEqual(allocations, self.doubtful())

        self.hosts.rollback(allocations)
        self.assertEqual([], self.doubtful())

    def test_view_is_not_changed_by_later_writes(self):
        view = self.choose()
        before = view['vcpus_used'].tolist(), len(view)

        self.hosts.reserve(self.choose(0))
        self.hosts.put(['x', 'z'], {'vcpus_used': 9})
        self.hosts.drop(['x'])

        self.assertEqual(
            before, (view['vcpus_used'].tolist(), len(view)))
        self.assertEqual([0, 9], self.hosts['vcpus_used'].tolist())

    def test_reused_columns_follow_the_table(self):
        for expected in 0, 2:
            view = self.choose()
            self.assertEqual([expected, 0], view['vcpus_used'].tolist())
            view.take(1, self.resources)
            self.hosts.reuse(view)
            self.hosts.reserve(self.choose(0))
        self.hosts.set_usage('x', {'VCPU': 4}, {'VCPU': 1}, 1)

        view = self.choose()

        # Nobody said yet whether the claim store has what was noted.
        self.assertEqual([5, 0], view['vcpus_used'].tolist())

    def test_allocation_of_a_dropped_host_is_read_again(self):
        gone = self.choose(1)
        self.hosts.drop(['y'])

        [allocation] = self.hosts.reserve(gone)

        self.assertEqual(['y'], self.hosts.confirm([allocation]))
        self.hosts.expire(9e9)

    def test_usage_of_the_store_replaces_confirmed_allocations(self):
        allocations = self.hosts.reserve(self.choose(0))
        self.assertEqual([], self.hosts.confirm(allocations))

        self.hosts.set_usage('x', {'VCPU': 32}, {'VCPU': 7}, 3)

        self.assertEqual([7, 0], self.hosts['vcpus_used'].tolist())
        self.assertEqual([3, 0], self.hosts['num_instances'].tolist())

    def test_host_reported_before_the_confirmation_is_doubtful(self):
        allocations = self.hosts.reserve(self.choose(0, 1))
        self.hosts.set_usage('x', {'VCPU': 32}, {'VCPU': 2}, 1)
        self.assertEqual([4, 2], self.hosts['vcpus_used'].tolist())

        self.assertEqual(['x'], self.hosts.confirm(allocations))

    def test_doubtful_reservations_can_be_excluded_from_a_view(self):
        for claimed in (False, True):
            allocations = self.hosts.reserve(self.choose(0))
            self.hosts.set_usage('x', {'VCPU': 32}, {'VCPU': 2}, 1)
            if claimed:
                self.hosts.confirm(allocations)
                self.hosts.publish()

            self.assertEqual(4, self.hosts['vcpus_used'][0])
            hosts = self.hosts.view(10.0, count_doubtful=False)
            self.assertEqual(2, hosts['vcpus_used'][0])
            self.hosts.reuse(hosts)
            self.assertEqual(4, self.hosts['vcpus_used'][0])
            self.hosts.rollback(allocations)

    def test_next_report_replaces_a_doubtful_reservation(self):
        allocations = self.hosts.reserve(self.choose(0))
        self.hosts.set_usage('x', {'VCPU': 32}, {'VCPU': 2}, 1)
        self.hosts.confirm(allocations)

        self.hosts.set_usage('x', {'VCPU': 32}, {'VCPU': 2}, 1)

        self.assertEqual([2, 0], self.hosts['vcpus_used'].tolist())
        self.assertEqual([1, 0], self.hosts['num_io_ops'].tolist())

    def test_expired_doubtful_reservation_counts(self):
        allocations = self.hosts.reserve(self.choose(0))
        self.hosts.set_usage('x', {'VCPU': 32}, {}, 0)
        self.hosts.confirm(allocations)

        self.hosts.expire(11.0)

        hosts = self.hosts.view(10.0, count_doubtful=False)
        self.assertEqual([2, 0], hosts['vcpus_used'].tolist())

    def test_watchers_are_called_after_confirm_or_rollback(
            self):
        one, other = (self.hosts.reserve(self.choose(row)) for row in (0, 1))
        told = []

        def watch(name):
            numbers = itertools.count()

            def watcher():
                number = next(numbers)
                return lambda: told.append((name, number))

            self.hosts.watch([*one, *other], watcher)

        watch('all')
        self.hosts.confirm(one)
        self.assertEqual([('all', 0)], told)
        watch('the other')
        self.hosts.rollback(other)
        self.assertEqual([('all', 1), ('the other', 0)], told[1:])
        watch('nothing')
        self.hosts.rollback(other)
        self.assertEqual(3, len(told))

    def test_batch_is_visible_once_published(self):
        with self.hosts.batch():
            self.hosts.put(['x'], {'vcpus_used': 5})
            self.hosts.cells.heard('c', 7.0)
            self.assertEqual([0, 0], self.hosts['vcpus_used'].tolist())
            self.assertEqual([5, 0], self.hosts.written(
                'vcpus_used').tolist())
            self.hosts.publish()
            self.assertEqual([5, 0], self.hosts['vcpus_used'].tolist())
            self.assertEqual(7.0, self.hosts.snapshot.cells.oldest)
            self.hosts.put(['y'], {'vcpus_used': 6})

        self.assertEqual([5, 6], self.hosts['vcpus_used'].tolist())


class TestSettle(base.TestCase):
    """Builds that were begun here count until their hosts report them."""

    def builds(self, hosts):
        return hosts['num_io_ops'].tolist()

    def test_unreported_build_counts_until_expired(self):
        hosts = made('x', 'y')
        allocation.take(hosts, 0, {}, 10.0)
        allocation.take(hosts, 1, {}, 20.0)

        hosts.expire(20.0)
        self.assertEqual([0, 1], self.builds(hosts))

        hosts.expire(21.0)
        self.assertEqual([0, 0], self.builds(hosts))
        self.assertEqual([1, 1], hosts['num_instances'].tolist())

    def test_report_of_the_host_replaces_the_allocation(self):
        hosts = made('x', 'y')
        allocation.take(hosts, 0, {}, 10.0)

        hosts.put(['x'], {'num_io_ops': [5]})
        hosts.expire(99.0)

        self.assertEqual([5, 0], self.builds(hosts))

    def test_report_without_a_newer_build_keeps_the_count(self):
        hosts = made('x')
        allocation.take(hosts, 0, {}, 10.0)

        hosts.put(['x'], {'last_seen_up': [5.0]})

        self.assertEqual([1], self.builds(hosts))

    def test_recreated_host_has_no_pending_builds(self):
        hosts = made('x', 'y')
        allocation.take(hosts, 0, {}, 10.0)
        hosts.drop(['x'])
        hosts.expire(99.0)
        hosts.put(['x'], {})

        hosts.expire(999.0)

        self.assertEqual([0, 0], self.builds(hosts))
