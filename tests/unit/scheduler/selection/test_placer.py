# SPDX-License-Identifier: Apache-2.0
"""Choosing hosts and claiming them."""

import copy

import numpy as np

from cellsched.claims import base as claims_base
from cellsched import exception
from cellsched.filters import instance_hints
from cellsched.testing import builders
from cellsched.weighers import resources
from tests.unit.db import samples
from tests.unit.hosts import world
from tests.unit.scheduler import schedulers
from tests.unit.scheduler import toys


class TestPlace(schedulers.PlacingTestCase):

    def test_selected_host_is_claimed_and_returned(self):
        [uuid] = samples.uuids(1)

        [[chosen]] = self.place(uuids=[uuid], vcpus=2)

        self.assertEqual(
            ('a1', 'a1', self.world.providers['a1'],
             self.world.cells['cell1'].uuid, 'nova'),
            (chosen.service_host, chosen.nodename, chosen.compute_node_uuid,
             chosen.cell_uuid, chosen.availability_zone))
        self.assertEqual({}, chosen.to_dict()['limits'])
        [claim] = self.world.claims.claims_of([uuid])[uuid]
        self.assertEqual(
            [claim], claims_base.of_selection(
                uuid, chosen, project_id='project', user_id='user'))
        self.assertEqual({'VCPU': 2, 'MEMORY_MB': 1}, claim.resources)
        self.assertTableIsRight()

    def test_claim_without_project_and_user_has_none(self):
        for said in {'project_id': None, 'user_id': None}, {
                'project_id': '', 'user_id': ''}:
            [uuid] = samples.uuids(1)

            self.place(uuids=[uuid], **said)

            [claim] = self.world.claims.claims_of([uuid])[uuid]
            self.assertEqual((None, None), (claim.project_id, claim.user_id))

    def test_batch_is_placed_in_order_and_claimed_at_once(self):
        uuids = samples.uuids(3)

        places = self.place(uuids=uuids)

        self.assertEqual([['a1'], ['a2'], ['a3']], schedulers.hosts(places))
        [batch] = self.world.claims.batches
        self.assertEqual(uuids, [claim.consumer for claim in batch])
        self.assertTableIsRight()

    def test_instances_share_a_host_while_capacity_remains(self):
        places = self.place(3, vcpus=2)

        self.assertEqual([['a1'], ['a1'], ['a2']], schedulers.hosts(places))
        self.assertTableIsRight()

    def test_heaviest_host_is_chosen(self):
        self.restart(weighers=[schedulers.liking('a3', 'b1')])

        self.assertEqual([['a3'], ['b1']], schedulers.hosts(self.place(2)))

    def test_filters_locate_instances(self):
        self.restart(
            filters=[builders.plugin(instance_hints.DifferentHostFilter)])
        [other] = samples.uuids(1)
        self.world.claim('a1', 1, other)

        places = self.place(vcpus=1, hints={'different_host': [other]})

        self.assertEqual([['a2']], schedulers.hosts(places))

    def test_repeated_request_gets_the_same_answer_without_a_claim(self):
        uuids = samples.uuids(3)
        places = self.place(2, uuids=uuids[:2])
        before = schedulers.taken(self.loader.table)
        other, its_loader = self.world.placer()

        for by in (self.placer, other):
            again = self.place(uuids=uuids[:2], by=by)
            self.assertEqual(schedulers.hosts(places), schedulers.hosts(again))
        self.assertEqual(before, schedulers.taken(self.loader.table))
        self.assertTableIsRight(its_loader)
        # Of a request that is held in part, the rest is chosen.
        self.assertEqual([['a1'], ['a2'], ['a3']], schedulers.hosts(
            self.place(uuids=uuids)))
        self.assertTableIsRight()

    def test_rest_of_a_request_is_chosen_with_alternates(self):
        uuids = samples.uuids(2)
        self.restart(weighers=[builders.plugin(resources.RAMWeigher)])
        self.place(uuids=uuids[:1], vcpus=1)
        self.refresh()

        (first, *_), (second, *_) = schedulers.hosts(
            self.place(uuids=uuids, vcpus=1, alternates=1))

        self.assertNotEqual(first, second)

    def test_instance_on_an_unknown_host_is_not_placed(self):
        [uuid] = samples.uuids(1)
        self.world.claims.set_inventory(
            'elsewhere', {'VCPU': claims_base.Inventory(4)})
        claim = claims_base.Claim(uuid, 'elsewhere', {'VCPU': 4})
        self.world.claims.claim([claim])

        self.assertRaises(exception.NoValidHost, self.place, uuids=[uuid])

        self.assertEqual([claim], self.world.claims.claims_of([uuid])[uuid])


class TestAlternates(schedulers.PlacingTestCase):

    def test_alternates_are_the_next_best_hosts_of_the_same_cell(self):
        self.restart(weighers=[schedulers.liking('b1', 'b2', 'a3', 'a1')])

        self.assertEqual([['b1', 'b2']], schedulers.hosts(
            self.place(alternates=2)))
        self.fill('b2')
        self.assertEqual([['a3', 'a1', 'a2']], schedulers.hosts(
            self.place(alternates=2)))

    def test_alternates_are_at_most_the_requested_number(self):
        self.assertEqual([['a1', 'a2']], schedulers.hosts(
            self.place(alternates=1)))

    def test_alternates_exclude_the_chosen_hosts(self):
        places = self.place(4, alternates=2)

        self.assertEqual(
            [['a1'], ['a2'], ['a3'], ['b1', 'b2']], schedulers.hosts(places))

    def test_alternates_have_capacity_after_the_chosen_instances(self):
        places = self.place(2, alternates=2, vcpus=3)

        self.assertEqual(
            [['a1', 'a3'], ['a2', 'a3']], schedulers.hosts(places))

    def test_chosen_hosts_with_capacity_are_the_last_alternates(self):
        self.restart(weighers=[builders.plugin(resources.RAMWeigher)])

        for host in 'b1', 'b2':
            self.fill(host)

        (first, *one), (second, *two) = schedulers.hosts(
            self.place(2, alternates=2, vcpus=1))

        [free] = {'a1', 'a2', 'a3'} - {first, second}
        self.assertEqual([free, second], one)
        self.assertEqual([free, first], two)

    def test_chosen_hosts_are_alternates_of_each_other(self):
        self.fill('a3')
        self.restart(weighers=[builders.plugin(resources.RAMWeigher)])

        places = self.place(4, alternates=2, vcpus=1)

        self.assertEqual(
            {('a1', 'a2'), ('a2', 'a1'), ('b1', 'b2'), ('b2', 'b1')},
            {tuple(place) for place in schedulers.hosts(places)})

    def test_alternates_are_not_claimed(self):
        self.place(alternates=2)

        self.assertEqual([4, 0, 0], [
            self.used(host) for host in ('a1', 'a2', 'a3')])
        self.assertTableIsRight()

    def test_repeated_request_gets_alternates(self):
        uuids = samples.uuids(1)
        self.place(uuids=uuids, alternates=2)

        self.assertEqual([['a1', 'a2', 'a3']], schedulers.hosts(
            self.place(uuids=uuids, alternates=2)))


class TestNoValidHost(schedulers.PlacingTestCase):

    def refusal(self, *args, **wishes):
        return self.assertRaises(
            exception.NoValidHost, self.place, *args, **wishes)

    def test_error_has_the_rejections(self):
        error = self.refusal(vcpus=5)

        self.assertEqual(
            [('size:VCPU', 5)],
            [(each['by'], each['hosts']) for each in error.rejections])

    def test_refused_request_claims_no_resources(self):
        self.assertEqual(5, self.refusal(7).kwargs['placed'])

        self.assertUnused()

    def test_silent_cells_are_named(self):
        def fail():
            raise exception.CellUnreachable(cell='cell2', reason='x')

        self.world.targets.behaviour['cell2'] = fail

        error = self.refusal(4)

        self.assertEqual(3, error.kwargs['placed'])
        self.assertEqual(
            [self.world.cells['cell2'].identity],
            error.rejections[-1]['cells'])

    def test_failing_plugin_claims_no_resources(self):
        for calls, count, alternates in ((0, 3, 0), (1, 3, 0), (2, 2, 1)):
            self.restart(weighers=[toys.Weigher(self.failing_after(calls))])

            self.assertRaises(
                exception.PluginFailed, self.place, count, alternates)

            self.assertUnused()

    def test_unknown_column_fails_the_filter_with_a_suggestion(self):
        self.restart(
            filters=[toys.Filter(lambda hosts: hosts['free_ram'] > 0)])

        error = self.assertRaises(exception.PluginFailed, self.place, 1)

        self.assertEqual('Filter Filter failed.', str(error))
        self.assertIn('did you mean free_ram_mb?', str(error.__cause__))

    def test_slow_plugin_is_logged_with_the_request(self):
        slow = toys.Weigher(self.taking(
            0.3, lambda hosts: np.arange(len(hosts))))
        quick = toys.Filter(self.taking(0.2, lambda hosts: None))
        self.restart(filters=[quick], weighers=[slow], slow_plugin_s=0.5)
        context = world.CONTEXT

        # For each instance the weigher is asked again.
        self.place(2)

        [line] = [line for line in self.logs.output.splitlines()
                  if 'seconds in the decision' in line]
        self.assertEqual('Weigher Weigher took 0.6 seconds in the decision '
                         f'on request {context.request_id}', line)

    def test_slow_failing_plugin_is_logged(self):
        def fail(hosts):
            self.world.clock.advance(3)
            raise KeyError('as told')

        self.restart(filters=[toys.Filter(fail)], slow_plugin_s=1)

        self.assertRaises(exception.PluginFailed, self.place, 1)

        self.assertIn('Filter Filter took 3.0 seconds', self.logs.output)

    def taking(self, seconds, answer):
        """Return an answer that takes its time."""
        def late(hosts):
            self.world.clock.advance(seconds)
            return answer(hosts)
        return late

    @staticmethod
    def failing_after(calls):
        left = [None] * calls

        def answer(hosts):
            if not left:
                raise KeyError('as told')
            left.pop()
            return np.arange(len(hosts))

        return answer

    def test_failing_store_leaves_the_table_unchanged(self):
        self.world.claims.failure = exception.DatabaseUnreachable(
            schema='claims', url='x', reason='y')

        self.assertRaises(exception.DatabaseUnreachable, self.place, 3)

        self.assertEqual({name: (4, 0) for name in self.hosts},
                         schedulers.taken(self.loader.table))


class TestDeadline(schedulers.PlacingTestCase):

    def context(self, timeout_s):
        """Return a context whose caller waits for so many seconds."""
        made = copy.copy(world.CONTEXT)
        made.answer_by = self.world.clock.timestamp() + timeout_s
        return made

    def test_request_before_its_deadline_is_placed(self):
        self.assertEqual(1, len(self.place(context=self.context(1.0))))

    def test_late_request_reserves_and_claims_no_resources(self):
        error = self.assertRaises(
            exception.DeadlineExceeded, self.place,
            context=self.context(-3.0))

        self.assertEqual(3, error.kwargs['late_s'])
        self.assertEqual([], self.world.claims.batches)
        self.assertTableIsRight()

    def test_clock_of_the_database_counts(self):
        self.placer.now = lambda: self.world.clock.timestamp() + 10.0

        self.assertRaises(exception.DeadlineExceeded, self.place,
                          context=self.context(5.0))


class TestPlan(schedulers.PlacingTestCase):

    def test_plan_has_the_places_and_claims_no_resources(self):
        places, decision = self.plan(2)

        self.assertEqual([['a1', 'a3'], ['a2', 'a3']],
                         schedulers.hosts(places))
        self.assertEqual(['a1', 'a2'],
                         [pick.first.host for pick in decision.picks])
        self.assertUnused()
        self.assertEqual([], self.world.records)

    def test_plan_has_the_reason_of_a_refusal(self):
        places, decision = self.plan(vcpus=5)

        self.assertEqual([], places)
        self.assertIn('5 are too small in CPUs', decision.reason)
        self.assertEqual([('size:VCPU', 5)], [
            (each['by'], each['hosts']) for each in decision.rejections])

    def test_plan_equals_the_later_decision(self):
        places, _ = self.plan(3, vcpus=2)

        self.assertEqual(
            schedulers.hosts(places),
            schedulers.hosts(self.place(3, vcpus=2, alternates=1)))
