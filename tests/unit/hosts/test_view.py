# SPDX-License-Identifier: Apache-2.0
"""Hosts as one request sees them."""

import hypothesis
from hypothesis import strategies as st
import numpy as np

from cellsched import exception
from cellsched.hosts import columns
from cellsched.testing import builders
from tests.unit import base
from tests.unit.hosts import allocation
from tests.unit import strategies

EAST, WEST = builders.aggregate(1, ratio='2'), builders.aggregate(2)


def some(hosts, *rows):
    return hosts.at(np.array(rows, dtype='int64'))


class TestColumns(base.TestCase):

    def test_column_of_a_partial_view_keeps_the_order(self):
        hosts = builders.hosts(vcpus_used=[5, 6, 7, 8], host=list('abcd'))

        part = some(hosts, 1, 3)

        self.assertEqual([6, 8], part['vcpus_used'].tolist())
        self.assertEqual(['b', 'd'], part['host'].tolist())
        self.assertEqual((2, [1, 3]), (len(part), part.rows.tolist()))
        self.assertEqual((False, True), (part.is_whole, hosts.is_whole))
        self.assertEqual(4, len(part.whole))
        self.assertIs(hosts, hosts.whole)
        self.assertEqual([0, 1, 2, 3], hosts.rows.tolist())

    def test_column_of_some_is_gathered_once(self):
        part = some(builders.hosts(3), 0, 2)

        self.assertIs(part['free_ram_mb'], part['free_ram_mb'])

    def test_extrema_are_of_the_hosts_of_the_view(self):
        hosts = builders.hosts(
            vcpus_used=[5, 6, 7], available={'GB': [3, 1, 2]},
            forced_down=[False, True, False])
        part = some(hosts, 0, 2)

        self.assertEqual((5, 7), (
            hosts.least('vcpus_used'), hosts.most('vcpus_used')))
        self.assertEqual((1, 1), (
            hosts.least_available('GB'), hosts.most('forced_down')))
        self.assertEqual((2, 0), (
            part.least_available('GB'), part.most('forced_down')))
        self.assertEqual(0, hosts.least_available('CUSTOM_X'))

        hosts.take(0, {'GB': 3, 'VCPU': 1})
        hosts.take(2, {'VCPU': 1})
        self.assertEqual((6, 8, 0), (
            hosts.least('vcpus_used'), hosts.most('vcpus_used'),
            hosts.least_available('GB')))
        hosts.take(1, {'GB': 5, 'VCPU': 9})
        self.assertEqual((6, 15, -4), (
            hosts.least('vcpus_used'), hosts.most('vcpus_used'),
            hosts.least_available('GB')))
        hosts.columns.give_back()
        self.assertEqual((5, 7, 1), (
            hosts.least('vcpus_used'), hosts.most('vcpus_used'),
            hosts.least_available('GB')))

    def test_extrema_are_cached_while_a_column_is_unchanged(self):
        table = builders.table(vcpus_used=[5, 6], free_ram_mb=[1, 2])
        first = table.view(builders.NOW)
        self.assertEqual((5, 2), (
            first.least('vcpus_used'), first.most('free_ram_mb')))

        table.put(table['uuid'][:1], {'vcpus_used': 7})
        hosts = table.view(builders.NOW)

        known = hosts.columns.snapshot.extrema
        self.assertEqual({'free_ram_mb'}, set(known))
        self.assertEqual(6, hosts.least('vcpus_used'))
        self.assertEqual((6, 7), known['vcpus_used'])
        # What is known is not looked for.
        known['vcpus_used'] = (-1, 1)
        self.assertEqual(-1, hosts.least('vcpus_used'))
        # What the request takes is its own.
        hosts.take(1, {'VCPU': 5})
        self.assertEqual((7, 11), (
            hosts.least('vcpus_used'), hosts.most('vcpus_used')))
        self.assertEqual((-1, 1), known['vcpus_used'])

    def test_memo_holds_until_a_host_changes(self):
        table, made = builders.table(vcpus_used=[5, 6, 7]), []

        def make():
            made.append(None)
            return len(made)

        def memo():
            hosts = table.view(builders.NOW)
            found = hosts.memo_until_change('key', make)
            table.reuse(hosts)
            return found

        self.assertEqual([1, 1], [memo(), memo()])
        changes = (
            lambda: allocation.take(table, 0, {'VCPU': 1}),
            lambda: table.expire(builders.NOW + 1),
            lambda: table.put(table['uuid'][:1], {'vcpus_used': 1}),
            lambda: table.set_usage(table['uuid'][0], {}, {}, 0),
            lambda: table.drop(table['uuid'][:1]))
        for number, change in enumerate(changes, 2):
            change()
            self.assertEqual(number, memo())

    def test_memo_of_some_hosts_is_not_kept(self):
        hosts = builders.hosts(3)
        self.assertEqual([1, 2], [
            some(hosts, 0, each).memo_until_change('key', lambda: each)
            for each in (1, 2)])

    def test_memo_until_change_is_bounded(self):
        hosts = builders.hosts(3)
        for key in range(1000):
            hosts.memo_until_change(key, lambda: key)

        self.assertLess(len(hosts.columns.current), 100)

    def test_memo_of_stable_columns_is_bounded(self):
        hosts = builders.hosts(3)
        for key in range(1000):
            self.assertEqual(key, hosts.memo(key, lambda _: key))

        self.assertLess(len(hosts.columns.snapshot.kept), 300)

    def test_values_of_a_single_host_are_decoded(self):
        hosts = builders.hosts(
            host=['a', 'b'], availability_zone=['east', 'west'],
            vcpus_used=[5, 6])

        self.assertEqual(['b', 'west', 6.0], hosts.values_at(
            1, 'host', 'availability_zone', 'vcpus_used'))
        self.assertEqual(['east', 'a'], some(hosts, 0).values_at(
            0, 'availability_zone', 'host'))

    def test_places_are_positions_in_the_view(self):
        hosts, rows = builders.hosts(4), np.array([1, 2])

        self.assertEqual([1, 2], hosts.places(rows).tolist())
        self.assertEqual([1], some(hosts, 0, 2).places(rows).tolist())

    def test_rows_of_a_nested_view_are_rows_of_the_table(self):
        hosts = builders.hosts(vcpus_used=[5, 6, 7, 8])

        self.assertEqual([8.0], some(some(hosts, 1, 3), 3)[
            'vcpus_used'].tolist())

    def test_view_may_be_empty(self):
        part = some(builders.hosts(3, located={'i': 0}))

        self.assertEqual(0, len(part))
        self.assertEqual([], part['vcpus_used'].tolist())
        self.assertEqual([], part.counts_of(['i']).tolist())
        self.assertEqual([], part['cell_free_share'].tolist())

    def test_names_are_columns_and_cell_facts(self):
        hosts = builders.hosts()

        for column in (*columns.STANDARD, *columns.CELL_FACTS):
            self.assertIn(column.name, hosts)
            self.assertIn(column.name, hosts.names)
            self.assertEqual(column.dtype, hosts.kind(column.name))
            self.assertEqual(1, len(hosts[column.name]))
        self.assertEqual(columns.WHOLE, hosts.kind('available:VCPU'))

    def test_unknown_column_is_a_key_error(self):
        hosts = builders.hosts()

        for each in (hosts, some(hosts, 0)):
            error = self.assertRaises(KeyError, lambda: each['zzz'])
            self.assertEqual("The host table has no column 'zzz'.",
                             str(error))
            self.assertNotIn('zzz', each)

    def test_unknown_column_is_answered_with_the_nearest(self):
        hosts = builders.hosts()

        for typo, near in (('free_ram', 'free_ram_mb'),
                           ('cell_faliures', 'cell_failures'),
                           ('available:VCPUS', 'available:VCPU')):
            for each in (hosts, some(hosts, 0)):
                error = self.assertRaises(
                    exception.ColumnNotFound, lambda: each[typo])
                self.assertEqual(
                    f"The host table has no column '{typo}'; did you mean "
                    f'{near}?', str(error))

    def test_unknown_resource_has_no_room(self):
        hosts = builders.hosts(2)

        self.assertEqual([0, 0], hosts.available('CUSTOM_X').tolist())
        self.assertEqual([0], some(hosts, 1).available('CUSTOM_X').tolist())
        self.assertEqual([32], some(hosts, 1).available('VCPU').tolist())


class TestCoded(base.TestCase):

    def test_code_and_value_are_inverse(self):
        hosts = builders.hosts(availability_zone=['b', 'a', 'b'])

        codes = hosts['availability_zone'].tolist()
        self.assertEqual(codes[0], codes[2])
        self.assertEqual(
            ['b', 'a', 'b'],
            [hosts.value('availability_zone', code) for code in codes])
        self.assertEqual(codes[1], hosts.code('availability_zone', 'a'))

    def test_value_without_hosts_matches_no_host(self):
        hosts = builders.hosts(cell='x')

        self.assertNotIn(hosts.code('cell', 'y'), hosts['cell'])

    def test_each_value_is_decided_on(self):
        hosts = builders.hosts(availability_zone=['b', 'aa', 'b'])

        self.assertEqual([True, False, True], hosts.each(
            'availability_zone', lambda zone: zone == 'b').tolist())
        self.assertEqual([2.0, 1.0], some(hosts, 1, 2).each(
            'availability_zone', len, 'float64').tolist())

    def test_number_is_the_least_of_the_aggregates(self):
        hosts = builders.hosts(aggregates=[
            (EAST, builders.aggregate(3, ratio='1.5')), (EAST,), (WEST,), ()])

        self.assertEqual([1.5, 2.0, 9.0, 9.0],
                         hosts.number('ratio', 9.0).tolist())
        self.assertEqual([2.0, 9.0],
                         some(hosts, 1, 3).number('ratio', 9.0).tolist())

    def test_number_without_aggregates_is_a_scalar(self):
        hosts = builders.hosts(aggregates=[(EAST,), ()])

        self.assertEqual(9.0, hosts.number('other', 9.0))

    def test_number_below_the_minimum_is_ignored(self):
        hosts = builders.hosts(aggregates=[
            (builders.aggregate(3, ratio='-1'),), (EAST,)])

        self.assertEqual([9.0, 2.0], hosts.number(
            'ratio', 9.0, least=0).tolist())
        self.assertEqual([-1.0, 2.0], hosts.number('ratio', 9.0).tolist())


class TestMemo(base.TestCase):

    def test_memo_is_made_once_from_all_hosts(self):
        hosts = builders.hosts(3)
        made = []

        def make(whole):
            made.append(len(whole))
            return 'made'

        self.assertEqual(['made'] * 2, [
            each.memo('key', make) for each in (some(hosts, 1), hosts)])
        self.assertEqual([3], made)

    def test_memo_is_kept_for_later_requests(self):
        hosts = builders.hosts()
        hosts.memo('key', lambda whole: 'made')

        hosts.take(0, {'VCPU': 1})

        self.assertEqual('made', hosts.memo('key', lambda whole: 'anew'))

    def test_hosts_are_found_by_name_in_any_case(self):
        hosts = builders.hosts(host=['One', 'two', 'one', 'three'])

        self.assertEqual([0, 2], hosts.named('oNE'))
        self.assertEqual([0, 2], some(hosts, 1).named('ONE'))
        # A host that has exactly this name is meant.
        self.assertEqual([2], hosts.named('one'))
        self.assertEqual([2], some(hosts, 1).named('one'))
        self.assertEqual([], hosts.named('four'))


class TestInstances(base.TestCase):

    def setUp(self):
        super().setUp()
        self.hosts = builders.hosts(
            4, located={'i': 2, 'j': 0, 'k': 2, 'gone': 1})
        self.part = some(self.hosts, 0, 2, 3)

    def test_located_instances_lead_to_rows(self):
        self.assertEqual([0, 2], self.hosts.rows_of(
            ['k', 'i', 'j', 'other']).tolist())
        self.assertEqual([], self.hosts.rows_of([]).tolist())

    def test_rows_of_instances_are_positions_in_the_view(self):
        self.assertEqual([1], self.part.rows_of(['k', 'gone']).tolist())

    def test_counts_are_for_each_host_of_the_view(self):
        named = ['i', 'j', 'k', 'gone', 'other']

        self.assertEqual([1, 1, 2, 0], self.hosts.counts_of(named).tolist())
        self.assertEqual([1, 2, 0], self.part.counts_of(named).tolist())
        self.assertEqual([0], some(self.hosts, 3).counts_of(named).tolist())

    def test_instance_on_an_unknown_host_is_not_counted(self):
        self.hosts._located['far'] = 'elsewhere'

        self.assertEqual([0] * 4, self.hosts.counts_of(['far']).tolist())

    def test_instances_of_a_node_are_returned(self):
        uuid = self.hosts['uuid'][2]

        self.assertEqual(['i', 'k'], self.hosts.instances_on(uuid))
        self.assertEqual(['i', 'k'], self.part.instances_on(uuid))

    @hypothesis.given(strategies.hosts(), st.data())
    def test_counts_of_a_partial_view_equal_total_counts(self, hosts, data):
        rows = np.flatnonzero(data.draw(st.lists(
            st.booleans(), min_size=len(hosts), max_size=len(hosts))))

        self.assertEqual(
            hosts.counts_of(strategies.UUIDS)[rows].tolist(),
            hosts.at(rows).counts_of(strategies.UUIDS).tolist())


class TestTaking(base.TestCase):

    resources = {'VCPU': 3, 'CUSTOM_X': 1}

    def test_partial_view_includes_allocations(self):
        hosts = builders.hosts(3)
        part = some(hosts, 0, 2)
        part['vcpus_used']

        hosts.take(2, self.resources, 'i')

        for each in (part, some(hosts, 0, 2)):
            self.assertEqual([0, 3], each['vcpus_used'].tolist())
            self.assertEqual([0, -1], each.available('CUSTOM_X').tolist())
            self.assertEqual([1], each.rows_of(['i']).tolist())

    def test_instance_need_not_be_named(self):
        hosts = builders.hosts()

        hosts.take(0, self.resources)

        self.assertEqual([3], hosts['vcpus_used'].tolist())
        self.assertEqual([], hosts.rows_of(['i']).tolist())


class TestFreeing(base.TestCase):

    def test_existing_claim_counts_as_free(self):
        hosts = builders.hosts(2, vcpus_used=[3, 3])
        room = hosts.available('VCPU')[1]

        hosts.free(1, {'VCPU': 2, 'MEMORY_MB': 512})

        self.assertEqual([3, 1], hosts['vcpus_used'].tolist())
        self.assertEqual(room + 2, hosts.available('VCPU')[1])
        self.assertEqual([0, 0], hosts['num_instances'].tolist())

    def test_freed_amounts_are_visible_in_the_own_view_only(self):
        table = builders.table(1, vcpus_used=[3])
        table.view(0.0).free(0, {'VCPU': 2})

        self.assertEqual([3], table.view(0.0)['vcpus_used'].tolist())


class TestCellFacts(base.TestCase):

    def setUp(self):
        super().setUp()
        table = builders.table(
            cell=['a', 'b', 'a'], num_io_ops=[1, 2, 4], now=1000.0,
            free_ram_mb=[0, 16384, 8192])
        self.cells = table.cells
        self.view = lambda: table.view(1000.0)

    def fact(self, name, *rows):
        hosts = some(self.view(), *rows) if rows else self.view()
        return hosts[name].tolist()

    def test_cell_builds_are_summed_over_the_whole_cell(self):
        self.assertEqual([5, 2, 5], self.fact('cell_builds'))
        self.assertEqual([5], self.fact('cell_builds', 2))

    def test_cell_free_share_is_of_the_whole_cell(self):
        self.assertEqual([0.25, 1.0, 0.25], self.fact('cell_free_share'))
        self.assertEqual([1.0, 0.25], self.fact('cell_free_share', 1, 2))

    def test_cell_failures_are_of_the_cell(self):
        self.assertFalse(self.view().any_cell_fails)
        self.cells.failed('b', 4, 1000.0)

        self.assertEqual([0.0, 4.0, 0.0], self.fact('cell_failures'))
        self.assertEqual([4.0], self.fact('cell_failures', 1))
        self.assertTrue(some(self.view(), 0).any_cell_fails)

    def test_cell_silence_is_of_the_cell(self):
        self.assertTrue(self.view().all_heard_within(0.0))
        self.cells.heard('a', 990.0)
        self.cells.heard('b', 1000.0)

        self.assertEqual([10.0, 0.0, 10.0], self.fact('cell_silent_s'))
        self.assertEqual([0.0], self.fact('cell_silent_s', 1))
        self.assertTrue(self.view().all_heard_within(10.0))
        self.assertFalse(self.view().all_heard_within(9.9))
