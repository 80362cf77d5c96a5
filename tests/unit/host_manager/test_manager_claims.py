# SPDX-License-Identifier: Apache-2.0
"""Filling the host table from the claim store."""

from concurrent import futures
import threading

from cellsched.claims import base as claims_base
from cellsched.claims import memory
from cellsched.db.cell import compute_nodes
from cellsched import exception
from tests.unit.db import samples
from tests.unit.hosts import allocation
from tests.unit.hosts import loading
from tests.unit.hosts import world


class Claims(memory.MemoryClaims):
    """A store that fails when it is told to, and notes what it is asked."""

    def __init__(self):
        super().__init__()
        self.failing_after = None
        self.asked = []
        #: Called before each answer.
        self.delay = lambda: None

    def usages(self, since=None, providers=None):
        if self.failing_after == 0:
            raise exception.DatabaseUnreachable(
                schema='claims', url='x', reason='y')
        if self.failing_after:
            self.failing_after -= 1
        self.asked.append((since, providers and sorted(providers)))
        self.delay()
        return super().usages(since, providers)


class TestClaims(loading.LoaderTestCase):

    def setUp(self):
        super().setUp()
        claims = Claims()
        for usage in self.world.claims.usages().usages:
            claims.set_inventory(usage.provider, {
                name: claims_base.Inventory(total)
                for name, total in usage.capacity.items()})
        self.world.claims = claims
        self.loader = self.world.loader()

    def test_usage_is_read_from_the_claim_store(self):
        self.world.claim('a1', 3)

        self.refresh()

        self.assertEqual(
            (5, 3, 1), (self.value('a1', 'available:VCPU'),
                        self.value('a1', 'vcpus_used'),
                        self.value('a1', 'num_instances')))
        self.assertEqual(4, self.value('b1', 'available:VCPU'))

    def test_changed_claims_and_inventories_are_applied(self):
        self.refresh()
        consumer = self.world.claim('a1', 3)
        self.refresh()
        self.assertEqual(5, self.value('a1', 'available:VCPU'))
        self.world.claims.release([consumer])
        self.world.claims.set_inventory(
            self.b1, {'VCPU': claims_base.Inventory(9)})

        self.refresh()

        self.assertEqual([8, 9], [
            self.value(host, 'available:VCPU') for host in ('a1', 'b1')])

    def test_slow_store_is_read_less_often_unless_a_request_waits(self):
        now = self.world.clock
        self.refresh()
        claims = self.world.claims
        claims.delay = lambda: now.advance(2.0)
        self.refresh()
        self.world.claim('a1', 3)
        claims.asked.clear()

        for _ in range(7):
            self.refresh()
        self.assertEqual(([], 8), (
            claims.asked, self.value('a1', 'available:VCPU')))
        # That reading of the hosts was not one of the claims.
        self.assertTrue(self.loader.refresh(
            world.CONTEXT, since=now.monotonic() - 1.5))
        self.assertEqual(5, self.value('a1', 'available:VCPU'))
        self.assertFalse(self.loader.refresh(
            world.CONTEXT, since=now.monotonic() - 3.5))
        claims.asked.clear()
        now.advance(8.0)
        self.refresh()

        self.assertEqual(1, len(claims.asked))

    def test_only_changed_usage_is_read(self):
        self.refresh()
        self.refresh()

        (first, _), (second, _) = self.world.claims.asked
        self.assertIsNone(first)
        self.assertIsNotNone(second)

    def test_host_unknown_to_the_store_has_no_capacity(self):
        with self.world.writer('cell1') as connection:
            self.world.providers['a2'] = compute_nodes.save(
                connection, samples.uuids(1)[0], 'a2', 'a2',
                self.world.node_values(8, 8192, 100), samples.NOW)
        self.world.report('cell1', 'a2')

        self.refresh()

        self.assertEqual(0, self.value('a2', 'available:VCPU'))

    def test_reload_corrects_only_the_named_hosts(self):
        self.refresh()
        for host in ('a1', 'b1'):
            allocation.take(
                self.loader.table,
                self.loader.table.row(self.world.providers[host]),
                {'VCPU': 2})

        self.loader.reload([self.a1])

        self.assertEqual([8, 2], [
            self.value(host, 'available:VCPU') for host in ('a1', 'b1')])

    def test_changed_host_is_read_once_by_a_reload(self):
        self.refresh()
        self.world.claim('a1', 3)
        del self.world.claims.asked[:]

        self.loader.reload([self.a1])

        self.assertEqual([None], [
            providers for _, providers in self.world.claims.asked])
        self.assertEqual(5, self.available('a1'))

    def test_failed_reload_is_repeated_by_the_next_refresh(self):
        self.refresh()
        allocation.take(self.loader.table, self.loader.table.row(self.a1),
                        {'VCPU': 2})
        self.world.claims.failing_after = 0
        self.assertRaises(exception.DatabaseUnreachable,
                          self.loader.reload, [self.a1])
        self.assertEqual(6, self.value('a1', 'available:VCPU'))
        self.world.claims.failing_after = None

        self.refresh()
        self.assertEqual(8, self.value('a1', 'available:VCPU'))

        asked = len(self.world.claims.asked)
        self.refresh()
        self.assertEqual(asked + 1, len(self.world.claims.asked))

    def test_threads_waiting_for_a_read_share_the_next_read(self):
        self.refresh()
        claims, begun, go = self.world.claims, *(
            threading.Event() for _ in range(2))

        def wait():
            begun.set()
            go.wait(30)

        claims.delay = wait
        del claims.asked[:]
        with futures.ThreadPoolExecutor(4) as pool:
            reading = [pool.submit(self.loader.reload, [self.a1])]
            begun.wait(30)
            reading += [pool.submit(self.loader.reload, [self.a1])
                        for _ in range(3)]
            futures.wait(reading, 0.1)
            go.set()
            for each in reading:
                each.result()

        # A reading takes two calls: of what changed, and of the host.
        self.assertIn(len(claims.asked), (2, 4))

    def test_host_marked_during_a_reading_is_read_again(self):
        self.refresh()
        claims = self.world.claims

        def mark_again():
            if claims.asked[-1][1]:
                claims.delay = lambda: None
                self.loader.mark_stale([self.a1])

        claims.delay = mark_again
        self.loader.reload([self.a1])
        del claims.asked[:]

        self.refresh()

        self.assertIn([self.a1], [each for _, each in claims.asked])

    def test_refresh_skips_claims_reloaded_after_the_request(self):
        self.refresh()
        self.world.clock.advance(1)
        asked_at = self.world.clock.monotonic()
        self.world.clock.advance(1)
        self.loader.reload([self.a1])
        del self.world.claims.asked[:]
        self.disable('cell1', 'a1')

        self.assertTrue(self.loader.refresh(world.CONTEXT, since=asked_at))

        self.assertTrue(self.value('a1', 'service_disabled'))
        self.assertEqual([], self.world.claims.asked)

    def test_refusal_waits_for_a_reading_of_stale_hosts(self):
        self.refresh()
        asked_at = self.world.clock.monotonic()
        self.refresh()
        self.world.claim('a1', 3)
        begun, go = threading.Event(), threading.Event()

        def wait():
            begun.set()
            go.wait(30)

        self.world.claims.delay = wait
        with futures.ThreadPoolExecutor(2) as pool:
            reading = pool.submit(self.loader.reload, [self.a1])
            begun.wait(30)
            refreshing = pool.submit(
                self.loader.refresh, world.CONTEXT, asked_at)
            done, _ = futures.wait([refreshing], 0.1)
            go.set()
            reading.result()

        self.assertEqual(set(), done)
        self.assertTrue(refreshing.result())
        self.assertEqual(5, self.available('a1'))

    def test_follow_reads_changed_claims(self):
        now = self.loader.clock
        monotonic = now.monotonic

        def tick():
            self.world.clock.advance(0.001)
            return monotonic()

        now.monotonic = tick
        self.loader.follow(world.CONTEXT)
        self.world.claim('a1', 3)
        self.world.clock.advance(3)

        self.assertTrue(self.loader.follow(world.CONTEXT))

        self.assertEqual(5, self.available('a1'))

    def test_stale_host_is_read_before_a_refusal(self):
        self.refresh()
        asked_at = self.world.clock.monotonic()
        self.refresh()
        self.world.claim('a1', 3)
        self.loader.mark_stale([self.a1])

        self.assertTrue(self.loader.refresh(world.CONTEXT, since=asked_at))
        self.assertEqual(5, self.available('a1'))
        self.assertFalse(self.loader.refresh(world.CONTEXT, since=asked_at))

    def test_host_added_while_the_store_fails_has_capacity_later(self):
        self.refresh()
        self.world.add_host('cell1', 'a2')
        # The store has nothing new to tell of it, and fails when it is asked
        # about what came.
        self.loader.reload([self.a1])
        self.world.claims.failing_after = 1
        self.world.clock.advance(1)
        self.assertRaises(exception.DatabaseUnreachable,
                          self.loader.refresh, world.CONTEXT)
        self.assertEqual(['a1', 'a2', 'b1'], self.names())
        self.assertEqual(0, self.available('a2'))
        self.world.claims.failing_after = None

        self.refresh()

        self.assertEqual(8, self.available('a2'))

    def test_new_host_has_its_usage(self):
        self.refresh()
        self.world.add_host('cell1', 'a2')
        self.world.claim('a2', 3)
        self.loader.reload([self.a1])

        self.refresh()

        self.assertEqual((5, 1), (
            self.available('a2'), self.value('a2', 'num_instances')))

    def test_unreported_build_counts_for_a_limited_time(self):
        self.refresh()
        now = self.world.own_clock.timestamp()
        allocation.take(self.loader.table, self.loader.table.row(self.a1),
                        {'VCPU': 2}, now)
        self.world.clock.advance(58)
        self.refresh()
        self.assertEqual(1, self.value('a1', 'num_io_ops'))

        self.refresh()
        self.refresh()

        self.assertEqual(0, self.value('a1', 'num_io_ops'))

    def test_table_is_read_again_after_the_store_failed(self):
        self.world.claims.failing_after = 0
        self.assertRaises(exception.DatabaseUnreachable,
                          self.loader.refresh, world.CONTEXT)
        self.world.claims.failing_after = None

        self.assertTrue(self.loader.refresh(world.CONTEXT))
        self.assertEqual(8, self.value('a1', 'available:VCPU'))
