# SPDX-License-Identifier: Apache-2.0
"""Child providers and sharing providers in the host table."""

import hypothesis
from hypothesis import strategies as st

from cellsched.hosts.providers import SharingProvider
from cellsched.testing import builders
from tests.unit import base

POOL = 'b0000000-0000-4000-8000-000000000001'


def make():
    """Return two hosts with two children each, which share a pool."""
    made = builders.table(
        uuid=['a', 'b'], children=((0, frozenset()), (0, frozenset())),
        child_uuids=[('a1', 'a2'), ('b1', 'b2')], sharing=(POOL,))
    made.set_sharing({POOL: SharingProvider('pool', 'rack')})
    for uuid in ('a1', 'a2', 'b1', 'b2'):
        made.set_usage(uuid, {'VGPU': 4}, {}, 0)
    made.set_usage(POOL, {'DISK_GB': 4}, {}, 0)
    return made


def rooms(made):
    """Return what is left of each provider, as a request sees it."""
    hosts = made.view(builders.NOW)
    found = {f'{node}{number}': int(hosts.available(f'VGPU@{number}')[row])
             for row, node in enumerate(hosts['uuid'])
             for number in (1, 2)}
    return {**found, POOL: int(hosts.shared_available(POOL, 'DISK_GB'))}


def take(made, row, **amounts):
    """Reserve what a server takes; return the allocations."""
    hosts = made.view(builders.NOW)
    hosts.take(row, {
        {'one': 'VGPU@1', 'two': 'VGPU@2', 'pool': f'DISK_GB@{POOL}'}[name]:
        amount for name, amount in amounts.items()})
    return made.reserve(hosts)


class TestUsages(base.TestCase):

    def setUp(self):
        super().setUp()
        self.table = make()

    def test_each_provider_has_room_of_its_own(self):
        self.table.set_usage('a2', {'VGPU': 4}, {'VGPU': 3}, 1)
        self.table.set_usage(POOL, {'DISK_GB': 4}, {'DISK_GB': 1}, 1)

        self.assertEqual({'a1': 4, 'a2': 1, 'b1': 4, 'b2': 4, POOL: 3},
                         rooms(self.table))

    def test_host_differs_from_its_children(self):
        self.table.set_usage('a', {'VGPU': 1}, {}, 0)
        self.table.set_usage('a1', {}, {}, 0)

        hosts = self.table.view(builders.NOW)
        self.assertEqual([1, 0], hosts.available('VGPU').tolist())
        self.assertEqual([0, 4], hosts.available('VGPU@1').tolist())
        self.assertEqual([4, 4], hosts.available('VGPU@2').tolist())

    def test_units_are_set_per_child_provider(self):
        self.table.set_usage('b2', {'VGPU': 4}, {}, 0, {'VGPU': (2, 4, 2)})

        hosts = self.table.view(builders.NOW)
        self.assertEqual(
            [((), ()), ((), (('VGPU', 2, 4, 2),))],
            [hosts.values_at(row, 'child_units')[0] for row in (0, 1)])

    def test_usage_of_a_removed_child_is_ignored(self):
        self.table.put(['a'], {'children': [((0, frozenset()),)],
                               'child_uuids': [('new',)]})

        self.assertEqual({'a1': 0, 'a2': 0, 'b1': 4, 'b2': 4, POOL: 4},
                         rooms(self.table))
        self.table.set_usage('a1', {'VGPU': 9}, {}, 0)
        self.table.set_usage('new', {'VGPU': 7}, {}, 0)
        self.assertEqual(7, rooms(self.table)['a1'])

    def test_reported_children_keep_usage(self):
        self.table.put(['a'], {'child_uuids': [('a1', 'a2')]})

        self.assertEqual(4, rooms(self.table)['a1'])

    def test_children_are_removed_with_their_host(self):
        self.table.drop(['a'])

        self.table.set_usage('a1', {'VGPU': 9}, {}, 0)
        hosts = self.table.view(builders.NOW)
        self.assertEqual([4], hosts.available('VGPU@1').tolist())
        self.assertIsNone(hosts.row_of_provider('a1'))
        self.assertEqual(0, hosts.row_of_provider('b1'))

    def test_child_moved_to_another_host_keeps_the_new_host(self):
        self.table.put(['b'], {'child_uuids': [('a1',)]})
        self.table.put(['a'], {'child_uuids': [()]})

        self.table.set_usage('a1', {'VGPU': 2}, {}, 0)

        self.assertEqual(1, self.table.view(0.0).row_of_provider('a1'))
        self.assertEqual(2, rooms(self.table)['b1'])

    def test_unchanged_sharing_provider_keeps_its_usage(self):
        new = self.table.set_sharing({
            POOL: SharingProvider('other name', 'rack'),
            'more': SharingProvider('more', 'rack')})

        self.assertEqual(['more'], new)
        self.assertEqual(4, rooms(self.table)[POOL])

    def test_removed_sharing_provider_has_no_capacity(self):
        self.table.set_sharing({})
        self.table.set_usage(POOL, {'DISK_GB': 9}, {}, 0)

        self.assertEqual(0, rooms(self.table)[POOL])


class TestTakings(base.TestCase):

    def setUp(self):
        super().setUp()
        self.table = make()

    def test_reservation_reduces_amounts_of_its_providers(self):
        before = self.table.view(builders.NOW)

        take(self.table, 0, two=3, pool=1)

        self.assertEqual({'a1': 4, 'a2': 1, 'b1': 4, 'b2': 4, POOL: 3},
                         rooms(self.table))
        self.assertEqual(4, before.shared_available(POOL, 'DISK_GB'))

    def test_reservation_of_a_view_ends_with_the_view(self):
        hosts = self.table.view(builders.NOW)
        hosts.take(1, {'VGPU@1': 2, f'DISK_GB@{POOL}': 2})
        self.assertEqual(2, hosts.shared_available(POOL, 'DISK_GB'))

        self.table.reuse(hosts)

        self.assertEqual(4, rooms(self.table)['b1'])
        self.assertEqual(4, rooms(self.table)[POOL])

    def test_providers_reported_during_the_claim_are_doubtful(self):
        for told in ('a2', POOL):
            allocations = take(self.table, 0, two=1, pool=1)
            self.table.set_usage(told, {'VGPU': 4, 'DISK_GB': 4}, {}, 0)

            self.assertEqual(
                ['a', 'a2', POOL], self.table.confirm(allocations))
            doubtful = []
            self.table.reuse(self.table.view(
                builders.NOW, doubtful=doubtful))
            self.assertEqual(allocations, doubtful)

    def test_reports_of_other_providers_leave_no_allocation_doubtful(self):
        allocations = take(self.table, 0, two=1)
        for told in ('a1', 'b2', POOL):
            self.table.set_usage(told, {'VGPU': 4, 'DISK_GB': 4}, {}, 0)

        self.assertEqual([], self.table.confirm(allocations))


class Model:
    """What is left, kept in the plainest way."""

    NAMES = {'one': 1, 'two': 2}

    def __init__(self):
        self.claimed = dict.fromkeys(('a1', 'a2', 'b1', 'b2', POOL), 0)
        self.noted = []

    def providers(self, row, amounts):
        return {POOL if name == 'pool' else f'{"ab"[row]}{self.NAMES[name]}':
                amount for name, amount in amounts.items()}

    def rooms(self):
        left = {uuid: 4 - used for uuid, used in self.claimed.items()}
        for _, taken in self.noted:
            for uuid, amount in taken.items():
                left[uuid] -= amount
        return left


class TestAnyOrder(base.TestCase):

    @hypothesis.given(st.lists(st.one_of(
        st.tuples(st.just('take'), st.integers(0, 1), st.dictionaries(
            st.sampled_from(('one', 'two', 'pool')), st.integers(1, 2),
            min_size=1)),
        st.tuples(st.sampled_from(('undo', 'claim')), st.integers(0, 9)),
        st.tuples(st.just('tell')), st.tuples(st.just('publish'))),
        max_size=20))
    def test_remaining_amount_is_the_capacity_less_usage(self, steps):
        made, model = make(), Model()
        for kind, *said in steps:
            if kind == 'take':
                row, amounts = said
                taken = model.providers(row, amounts)
                fits = all(model.rooms()[uuid] >= amount
                           for uuid, amount in taken.items())
                allocations = take(made, row, **amounts)
                if allocations is not None:
                    model.noted.append((allocations, taken))
                # Nothing else is noted meanwhile, so only room decides; to
                # look at it once more is left out where nothing changed.
                hypothesis.assume(fits or allocations is None)
            elif kind in ('undo', 'claim') and model.noted:
                allocations, taken = model.noted.pop(
                    said[0] % len(model.noted))
                if kind == 'undo':
                    made.rollback(allocations)
                else:
                    made.confirm(allocations)
                    for uuid, amount in taken.items():
                        model.claimed[uuid] += amount
            elif kind == 'tell':
                for uuid, used in model.claimed.items():
                    name = 'DISK_GB' if uuid == POOL else 'VGPU'
                    made.set_usage(uuid, {name: 4}, {name: used}, 1)
            elif kind == 'publish':
                made.publish()

            self.assertEqual(model.rooms(), rooms(made))
