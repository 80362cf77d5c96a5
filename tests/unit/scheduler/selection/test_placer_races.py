# SPDX-License-Identifier: Apache-2.0
"""Placing when others place too, and the table is behind."""

from concurrent import futures
import itertools
import threading
import time

import fixtures
import hypothesis
from hypothesis import strategies

from cellsched.claims import base as claims_base
from cellsched.conductor.tasks import saga
from cellsched import exception
from cellsched.filters import all_hosts
from cellsched.host_manager import manager
from cellsched.scheduler.selection import claims
from cellsched.testing import builders
from tests import profile
from tests.unit import base
from tests.unit.db import samples
from tests.unit.hosts import world
from tests.unit import racing
from tests.unit.scheduler import schedulers


class Loader(manager.HostManager):
    """Counts how often cells are read; others may read them in between."""

    reads = 0
    before = staticmethod(lambda: None)

    def refresh(self, context, since=None):
        before, self.before = self.before, lambda: None
        before()
        return super().refresh(context, since)

    def _read_cells(self, *args):
        self.reads += 1
        return super()._read_cells(*args)


class TestStaleTable(schedulers.PlacingTestCase):

    def setUp(self):
        super().setUp()
        self.restart(kind=Loader)
        self.consumers = self.fill(*self.hosts)
        self.refresh()
        self.world.clock.advance(1)

    def test_stale_table_is_read_again_before_a_refusal(self):
        self.world.claims.release(self.consumers[-1:])

        self.assertEqual([['b2']], schedulers.hosts(self.place()))
        self.assertEqual(2, self.loader.reads)

    def test_table_is_read_again_once(self):
        self.assertRaises(exception.NoValidHost, self.place)

        self.assertEqual(2, self.loader.reads)

    def test_recently_read_table_is_not_read_again(self):
        self.restart(1.0, kind=Loader)

        self.assertRaises(exception.NoValidHost, self.place)

        self.assertEqual(1, self.loader.reads)

    def test_table_is_not_read_again_if_a_host_has_capacity(self):
        self.world.claims.release(self.consumers[:1])
        self.loader.reload([self.world.providers['a1']])

        self.place()

        self.assertEqual(1, self.loader.reads)

    def test_selection_is_repeated_after_a_read_by_another_thread(self):
        def somebody_reads():
            self.world.claims.release(self.consumers[-1:])
            self.world.clock.advance(1)
            manager.HostManager.refresh(
                self.loader, world.CONTEXT, self.world.clock.monotonic() - 1)

        self.loader.before = somebody_reads

        self.assertEqual([['b2']], schedulers.hosts(self.place()))

    def test_reservation_before_the_last_selection_causes_no_refusal(self):
        made = self.loader.table
        view, watch = made.view, made.watch
        reserved = []

        def view_after_a_reservation(*args, **named):
            if not reserved:
                reserved.append(None)
                self.release_and_reserve(reserved)
                del reserved[0]
            return view(*args, **named)

        def watch_until_it_is_rolled_back(allocations, make_watcher):
            watch(allocations, make_watcher)
            made.rollback(reserved)

        self.replace(made, 'view', view_after_a_reservation)
        self.replace(made, 'watch', watch_until_it_is_rolled_back)

        self.assertEqual([['b2']], schedulers.hosts(self.place()))

    def test_reservation_after_the_wait_causes_no_refusal(self):
        made = self.loader.table
        watch = made.watch
        reserved, waits = [], []
        self.release_and_reserve(reserved)

        def watch_until_another_one_is_made(allocations, make_watcher):
            watch(allocations, make_watcher)
            made.rollback([reserved.pop()])
            waits.append(reserved)
            self.release_and_reserve(reserved)

        self.replace(made, 'watch', watch_until_another_one_is_made)

        self.assertEqual([['b2']], schedulers.hosts(self.place()))
        # Pending claims that begin later are not awaited.
        self.assertEqual(1, len(waits))

    def release_and_reserve(self, reserved):
        """Release the claim of b2 and reserve that host for another one."""
        made, node = self.loader.table, self.world.providers['b2']
        self.world.claims.release(self.consumers[-1:])
        self.loader.reload([node])
        hosts = made.view(self.world.clock.timestamp())
        hosts.take(hosts.row(node), {'VCPU': 4})
        reserved.extend(made.reserve(hosts))

    def replace(self, owner, name, method):
        self.useFixture(fixtures.MockPatchObject(owner, name, method))

    def test_number_of_placed_instances_is_from_a_single_state(self):
        self.world.claims.release(self.consumers[:2])

        error = self.assertRaises(exception.NoValidHost, self.place, 3)

        self.assertEqual(2, error.kwargs['placed'])


class TestLane(schedulers.PlacingTestCase):
    """Requests of one process at the same time."""

    def test_waiting_requests_are_decided_and_claimed_together(self):
        begun, go_on = threading.Event(), threading.Event()
        decided = []

        class Slow(all_hosts.AllHostsFilter):
            def keep(self, hosts, request):
                decided.append(threading.get_ident())
                begun.set()
                assert go_on.wait(60)

        placer, loader = self.world.placer(filters=[Slow(None)])
        loader.refresh(world.CONTEXT)
        first, *others = samples.uuids(4)
        # Requests with other hosts are placed by copies of the placer.
        with futures.ThreadPoolExecutor(4) as pool:
            def ask(uuid):
                return pool.submit(self.place, by=placer.on(loader),
                                   uuids=[uuid], vcpus=1)

            answers = [ask(first)]
            self.assertTrue(begun.wait(60))
            answers += map(ask, others)
            while len(placer.lane) < 3:
                time.sleep(0.001)
            go_on.set()

        self.assertEqual([1] * 4, [len(each.result()) for each in answers])
        self.assertEqual(4, len(decided))
        # One thread has decided on all that waited.
        self.assertEqual(2, len(set(decided)))
        self.assertEqual([1, 3], [
            len(batch) for batch in self.world.claims.batches])
        self.assertTableIsRight(loader)

    def test_request_behind_a_blocked_plugin_is_busy(self):
        begun, go_on = threading.Event(), threading.Event()

        class Stuck(all_hosts.AllHostsFilter):
            def keep(self, hosts, request):
                begun.set()
                assert go_on.wait(60)

        self.useFixture(fixtures.MockPatch(
            'cellsched.scheduler.selection.lane.WAIT_S', 0.0))
        placer, loader = self.world.placer(filters=[Stuck(None)])
        loader.refresh(world.CONTEXT)
        one, other = samples.uuids(2)
        with futures.ThreadPoolExecutor(1) as pool:
            stuck = pool.submit(
                self.place, by=placer, uuids=[one], vcpus=1)
            self.assertTrue(begun.wait(60))

            self.assertRaises(exception.ServiceBusy, self.place, by=placer,
                              uuids=[other], vcpus=1)

            go_on.set()
            self.assertEqual(1, len(stuck.result(60)))
        self.assertTableIsRight(loader)

    def test_abandoned_decision_keeps_no_reservation(self):
        # The decisions of the first and of the third request wait.
        begun = {0: threading.Event(), 2: threading.Event()}
        go_on = {0: threading.Event(), 2: threading.Event()}
        calls = itertools.count()

        class Stuck(all_hosts.AllHostsFilter):
            def keep(self, hosts, request):
                number = next(calls)
                if number in begun:
                    begun[number].set()
                    assert go_on[number].wait(60)

        locks = racing.ExpiringLocks()
        self.useFixture(fixtures.MockPatchObject(
            self.world.clock, 'lock', locks.make))
        placer, loader = self.world.placer(filters=[Stuck(None)])
        loader.refresh(world.CONTEXT)
        with futures.ThreadPoolExecutor(3) as pool:
            answers = []
            for uuid in samples.uuids(3):
                answers.append(pool.submit(
                    self.place, by=placer, uuids=[uuid]))
                self.assertTrue(begun[0].wait(60))
                while len(placer.lane) < len(answers) - 1:
                    time.sleep(0.001)
            go_on[0].set()
            self.assertTrue(begun[2].wait(60))
            # The last lock is that of the first claim.
            answers[0].result(60)
            for _ in range(2):
                locks.expire(-2)
            self.assertRaises(exception.ServiceBusy, answers[2].result, 60)
            go_on[2].set()
            self.assertEqual(
                [1, 1], [len(each.result(60)) for each in answers[:2]])

        self.assertEqual([], loader.table.pending())
        self.assertTableIsRight(loader)


class TestConflict(schedulers.PlacingTestCase):
    """Another scheduler took the room since the table was read."""

    def setUp(self):
        super().setUp()
        self.other, self.other_loader = self.world.placer()
        for each in (self.loader, self.other_loader):
            each.refresh(world.CONTEXT)

    def test_later_scheduler_selects_another_host(self):
        first = self.place(2)
        second = self.place(2, by=self.other)

        self.assertEqual([['a1'], ['a2']], schedulers.hosts(first))
        self.assertEqual([['a3'], ['b1']], schedulers.hosts(second))
        for host in ('a1', 'a2', 'a3', 'b1'):
            self.assertEqual(4, self.used(host))
        self.assertTableIsRight(self.other_loader)

    def test_last_capacity_has_a_single_winner(self):
        self.place(4)
        winner = self.place()

        error = self.assertRaises(
            exception.NoValidHost, self.place, by=self.other)

        self.assertEqual([['b2']], schedulers.hosts(winner))
        self.assertEqual(0, error.kwargs['placed'])
        self.assertTableIsRight(self.other_loader)

    def test_claims_of_other_schedulers_are_read_at_the_first_refusal(self):
        self.place(4)

        before = len(self.world.claims.batches)

        self.assertEqual([['b2']], schedulers.hosts(self.place(by=self.other)))
        self.assertEqual(5, len(self.world.claims.batches) - before)

        self.assertRaises(exception.NoValidHost, self.place, by=self.other)
        self.assertEqual(5, len(self.world.claims.batches) - before)

    def test_plugin_failing_after_the_claim_ends_the_reservation(self):
        numbers = itertools.count()

        class Limits(all_hosts.AllHostsFilter):
            def limits(self, hosts, request):
                if next(numbers):
                    raise KeyError('as told')
                return {}

        placer, loader = self.world.placer(filters=[Limits(None)])
        loader.refresh(world.CONTEXT)
        self.world.claims.refuses = [self.world.providers['a1']]

        self.assertRaises(exception.PluginFailed, self.place, by=placer)

        # The claim of the other host is counted once.
        self.assertEqual([], loader.table.pending())
        self.assertTableIsRight(loader)

    def test_host_refused_by_the_store_is_skipped(self):
        self.world.claims.refuses = [self.world.providers['a1']]

        self.assertEqual([['a2']], schedulers.hosts(self.place()))
        self.assertEqual(2, len(self.world.claims.batches))
        self.refresh()
        self.assertTableIsRight()

    def test_host_with_locked_rows_is_passed_over(self):
        self.world.claims.locked = [self.world.providers['a1']]

        self.assertEqual([['a2']], schedulers.hosts(self.place()))

        self.assertEqual(2, len(self.world.claims.batches))
        self.assertTableIsRight()

    def test_failed_read_of_a_refused_host_does_not_fail_the_claim(self):
        self.world.claims.refuses = [self.world.providers['a1']]

        def fail(providers):
            raise exception.DatabaseUnreachable(
                schema='claims', url='x', reason='y')

        self.loader.reload = fail

        with self.assertLogs(
                'cellsched.scheduler.selection.placer', 'WARNING') as logged:
            [[chosen]] = self.place()

        self.assertNotEqual('a1', chosen.service_host)
        self.assertIn('1 providers was not read', logged.output[0])

    def test_only_host_with_locked_rows_is_no_reason_to_refuse(self):
        self.world.claims.locked = [*self.world.providers.values()]

        error = self.assertRaises(exception.ClaimBusy, self.place)

        self.assertTrue(saga.is_transient(error))
        # Each of them is tried once.
        self.assertEqual(5, len(self.world.claims.batches))
        self.assertTableIsRight()
        self.world.claims.locked = ()
        self.world.clock.advance(claims.BUSY_S)
        self.assertEqual([['a1']], schedulers.hosts(self.place()))

    def test_host_with_an_incompatible_step_size_is_skipped(self):
        self.world.claims.set_inventory(self.world.providers['a1'], {
            'VCPU': claims_base.Inventory(4, step_size=3),
            'MEMORY_MB': claims_base.Inventory(8192)})

        self.assertEqual([['a2', 'a3']], schedulers.hosts(
            self.place(alternates=2)))

    def test_choices_are_bounded(self):
        self.world.claims.refuses = self.world.providers.values()

        error = self.assertRaises(exception.NoValidHost, self.place)

        # Each is tried again after the table is refreshed.
        self.assertEqual(2 * 5, len(self.world.claims.batches))
        self.assertEqual(('claims', 5), (
            error.rejections[-1]['by'], error.rejections[-1]['hosts']))
        self.assertEqual(0, error.kwargs['placed'])
        self.assertTableIsRight()

    def test_single_attempt_tries_each_host(self):
        self.placer, _ = self.world.placer(attempts_max=1)
        self.world.claims.refuses = self.world.providers.values()

        self.assertRaises(exception.NoValidHost, self.place)

        self.assertEqual(5, len(self.world.claims.batches))

    def test_many_at_once_never_overcommit(self):
        placers = [self.world.placer(1.0, attempts_max=20)
                   for _ in range(2)]

        answers = racing.race(*[
            lambda by=by: self.place(2, vcpus=1, by=by)
            for by, _ in placers * 6])

        self.assertEqual([], [
            each for each in answers if isinstance(each, Exception)
            and not isinstance(each, exception.NoValidHost)])
        placed = [each for each in answers if isinstance(each, list)]
        used = [self.used(host) for host in self.hosts]
        # There is room for 20 in pairs, so that 2 of 12 do not fit.
        self.assertEqual([4] * 5, used)
        self.assertEqual(10, len(placed))
        for _, made in placers:
            made.refresh(world.CONTEXT, since=self.world.clock.monotonic())
            self.assertTableIsRight(made)


class TestPendingClaims(schedulers.PlacingTestCase):
    """Requests are refused for what others have, not for what they want."""

    def setUp(self):
        super().setUp()
        self.fill('a3', 'b1', 'b2')
        self.refresh()
        self.threads = futures.ThreadPoolExecutor()
        self.addCleanup(self.threads.shutdown)

    def ask(self, **wishes):
        """Have somebody else ask, who has time enough to be refused."""
        self.other = self.threads.submit(self.place, **wishes)
        futures.wait([self.other], 0.2)

    def test_claim_reported_before_its_end_counts_once(self):
        self.fill('a2')

        def store_tells():
            self.loader.reload([self.world.providers['a1']])
            self.ask(vcpus=2)

        self.world.claims.after = store_tells
        self.place(vcpus=2)

        self.assertEqual([['a1']], schedulers.hosts(self.other.result()))
        self.assertEqual(4, self.used('a1'))
        self.refresh()
        self.assertTableIsRight()

    def test_capacity_of_a_failed_claim_is_available(self):
        def win_a_race():
            self.fill('a2')
            self.ask()

        self.world.claims.before = win_a_race
        self.assertRaises(exception.NoValidHost, self.place, 2)

        self.assertEqual([['a1']], schedulers.hosts(self.other.result()))
        self.assertTableIsRight()


class TestAlternatives(schedulers.PlacingTestCase):
    """A store that claims the first of several hosts with room."""

    def setUp(self):
        super().setUp()
        self.restart()
        self.refresh()
        self.calls = []
        store = self.world.claims
        claim_any = type(store).claim_any

        def noted(batches):
            self.calls.append([
                claim.provider for [claim] in batches])
            return claim_any(store, batches)

        store.claim_any = noted

    def test_claim_names_hosts_in_the_order_of_weights(self):
        self.place()

        self.assertEqual([[self.world.providers[host] for host in (
            'a1', 'a2', 'a3', 'b1', 'b2')]], self.calls)

    def test_host_claimed_by_the_store_is_returned_and_recorded(self):
        self.fill('a1', 'a2')

        [[chosen, *others]] = self.place(alternates=2)

        self.assertEqual('a3', chosen.service_host)
        self.assertEqual({self.world.providers['a3']}, {*chosen.requested()})
        # Neither of the other hosts of its cell has room.
        self.assertEqual([], others)
        [(_, _, decision)] = self.world.records
        [pick] = decision.picks
        self.assertEqual('a3', pick.first.host)
        self.refresh()
        self.assertTableIsRight()

    def test_host_of_another_cell_has_alternates_of_the_cell(self):
        self.fill('a1', 'a2', 'a3')

        [[chosen, *others]] = self.place(alternates=2)

        self.assertEqual(['b1', 'b2'], [
            each.service_host for each in (chosen, *others)])
        self.assertEqual({chosen.cell_uuid}, {
            each.cell_uuid for each in others})
        self.refresh()
        self.assertTableIsRight()

    def test_reservation_is_of_the_claimed_host(self):
        self.fill('a1')
        before = self.loader.table['available:VCPU'].copy()

        self.place(vcpus=1)

        hosts = self.loader.table.view(0.0)
        for name in 'a2', 'a3':
            row = hosts.row(self.world.providers[name])
            self.assertEqual(
                before[row] - (name == 'a2'), hosts['available:VCPU'][row])

    def test_several_instances_are_claimed_on_the_selected_hosts(self):
        self.patch(self.world.claims, 'claim_any',
                   lambda batches: self.calls.append(batches) or type(
                       self.world.claims).claim_any(
                           self.world.claims, batches))

        self.place(2)

        [[batch]] = self.calls
        self.assertEqual(2, len(batch))


class TestReason(schedulers.PlacingTestCase):
    """Others are always faster."""

    def setUp(self):
        super().setUp()
        self.refresh()
        self.left = [*self.hosts]

    def win_a_race(self):
        self.fill(self.left.pop(0))
        self.world.claims.before = self.win_a_race

    def test_each_host_is_counted_by_its_first_rejection(self):
        self.world.claims.before = self.win_a_race

        error = self.assertRaises(exception.NoValidHost, self.place)

        self.assertIn(
            'of 5 hosts 4 lack CPUs (by 4 VCPU), 1 lost its room to another '
            'request', str(error))
        self.assertEqual([('capacity:VCPU', 4), ('claims', 1)], [
            (each['by'], each['hosts']) for each in error.rejections])
        [(_, _, decision)] = self.world.records
        self.assertEqual(['a1'], decision.examples['claims'])

    def test_host_full_before_the_request_is_not_counted_as_lost(self):
        self.fill('a1', 'a2')
        self.loader.reload([*self.world.providers.values()])
        self.left = ['a3', 'b1', 'b2']
        self.world.claims.before = self.win_a_race
        self.restart(attempts_max=10)

        error = self.assertRaises(exception.NoValidHost, self.place)

        self.assertEqual([('capacity:VCPU', 4), ('claims', 1)], [
            (each['by'], each['hosts']) for each in error.rejections])
        self.assertIn('4 lack CPUs (by 4 VCPU), 1 lost its room',
                      str(error))


#: What happens in a deployment of two schedulers: which of them places, how
#: many of which size, with how many alternates; or the end of a request.
EVENTS = strategies.lists(strategies.one_of(
    strategies.tuples(
        strategies.integers(0, 1), strategies.integers(1, 4),
        strategies.integers(1, 4), strategies.integers(0, 2)),
    strategies.integers(0, 5)), max_size=12)

HOSTS = strategies.lists(
    strategies.tuples(strategies.sampled_from(['cell1', 'cell2']),
                      strategies.integers(0, 6)), max_size=5)


class TestAnyHistory(base.TestCase):

    @profile.few_examples
    @hypothesis.given(hosts=HOSTS, events=EVENTS)
    def test_capacity_is_kept_and_tables_are_right(self, hosts, events):
        with schedulers.World('cell1', 'cell2') as deployment:
            for number, (cell, vcpus) in enumerate(hosts):
                deployment.add_host(cell, f'host{number}', vcpus=vcpus)
            self.check(deployment, events)

    def check(self, deployment, events):
        schedulers = [deployment.placer(
            filters=[all_hosts.AllHostsFilter(None)]) for _ in range(2)]
        requests = []
        for event in events:
            if isinstance(event, int):
                for uuids in requests[event:event + 1]:
                    deployment.claims.release(uuids)
                continue
            who, count, vcpus, alternates = event
            uuids = samples.uuids(count)
            by, made = schedulers[who]
            try:
                places = by.place(world.CONTEXT, builders.request(
                    vcpus=vcpus, memory_mb=1, root_gb=0), uuids, alternates)
            except exception.NoValidHost as error:
                self.check_refusal(deployment, error, count, vcpus, uuids)
            else:
                requests.append(uuids)
                self.check_places(deployment, places, uuids, alternates)
            deployment.clock.advance(1)
            self.check_capacity(deployment)
        for _, made in schedulers:
            made.refresh(
                world.CONTEXT, since=deployment.clock.monotonic())
            self.check_table(deployment, made)

    def check_refusal(self, deployment, error, count, vcpus, uuids):
        """There was no room, and nothing is claimed."""
        self.assertEqual({}, deployment.claims.claims_of(uuids))
        fit = sum((usage.capacity['VCPU'] - usage.used.get('VCPU', 0))
                  // vcpus for usage in deployment.claims.usages().usages)
        self.assertEqual(error.kwargs['placed'], fit)
        self.assertLess(fit, count)

    def check_places(self, deployment, places, uuids, alternates):
        held = deployment.claims.claims_of(uuids)
        chosen = [first.compute_node_uuid for first, *_ in places]
        self.assertEqual(
            chosen, [held[uuid][0].provider for uuid in uuids])
        for first, *others in places:
            self.assertLessEqual(len(others), alternates)
            self.assertEqual({first.cell_uuid} if others else set(),
                             {each.cell_uuid for each in others})
            names = [each.compute_node_uuid for each in others]
            self.assertEqual(len(names), len(set(names)))
            self.assertNotIn(first.compute_node_uuid, names)
            # Hosts of other instances come last.
            again = [name in chosen for name in names]
            self.assertEqual(sorted(again), again)

    def check_capacity(self, deployment):
        for usage in deployment.claims.usages().usages:
            for resource, amount in usage.used.items():
                self.assertLessEqual(amount, usage.capacity[resource])

    def check_table(self, deployment, made):
        usages = {usage.provider: usage
                  for usage in deployment.claims.usages().usages}
        self.assertEqual(set(usages), set(made.table['uuid']))
        for uuid, usage in usages.items():
            row = made.table.row(uuid)
            for resource, capacity in usage.capacity.items():
                self.assertEqual(
                    capacity - usage.used.get(resource, 0),
                    made.table[f'available:{resource}'][row])
            self.assertEqual(
                (usage.consumers, usage.used.get('VCPU', 0)),
                (made.table['num_instances'][row],
                 made.table['vcpus_used'][row]))
