# SPDX-License-Identifier: Apache-2.0
"""Listing of consumers in stores with and without ``CONSUMER_LIST``."""

from cellsched.audit import checks
from cellsched.claims import base as claims
from cellsched.claims import copying
from cellsched.claims import listing
from cellsched.claims import memory
from cellsched import exception
from cellsched.testing.suite import claims as suite
from tests.unit import base


class UnlistedClaims(memory.MemoryClaims):
    """A store that lists only the consumers of a provider."""

    capabilities = memory.MemoryClaims.capabilities - {
        claims.Capability.CONSUMER_LIST}

    consumers = claims.ClaimStore.consumers

    def consumers_of(self, provider):
        with self._lock:
            return [consumer for consumer, held in self._held.items()
                    if any(claim.provider == provider for claim in held)]


class TestUnlistedClaims(suite.ClaimStoreSuite, base.TestCase):

    def make_store(self):
        return UnlistedClaims()


class TestListing(base.TestCase):

    def setUp(self):
        super().setUp()
        self.stores = memory.MemoryClaims(), UnlistedClaims()
        for store in self.stores:
            for provider in 'pq':
                store.set_inventory(
                    provider, {'VCPU': claims.Inventory(total=8)})
            for number in range(5):
                store.claim([
                    claims.Claim(f'c{number}', provider, {'VCPU': 1})
                    for provider in 'pq'[:1 + number % 2]])

    def test_pages_are_the_same_with_and_without_a_list(self):
        for limit, expected in (
            (1, [['c0'], ['c1'], ['c2'], ['c3'], ['c4']]),
            (2, [['c0', 'c1'], ['c2', 'c3'], ['c4']]),
            (5, [['c0', 'c1', 'c2', 'c3', 'c4']]),
        ):
            for store in self.stores:
                self.assertEqual(expected, [*listing.pages(store, limit)])

    def test_empty_store_has_no_page(self):
        for store in memory.MemoryClaims(), UnlistedClaims():
            self.assertEqual([], [*listing.pages(store, 3)])

    def test_limit_below_1_is_invalid(self):
        for store in self.stores:
            with self.assertRaises(exception.InvalidField):
                next(listing.pages(store, 0))

    def test_unsupported_list_is_refused_with_its_name(self):
        listed, unlisted = self.stores
        for call, name in ((unlisted.consumers, 'consumers()'),
                           (lambda: listed.consumers_of('p'),
                            'consumers_of()')):
            with self.assertRaises(
                    exception.ConfigurationInvalid) as caught:
                call()
            self.assertIn(name, str(caught.exception))

    def test_store_without_a_list_is_copied_and_compared(self):
        listed, unlisted = self.stores
        for source, target in ((unlisted, UnlistedClaims()),
                               (unlisted, memory.MemoryClaims()),
                               (listed, UnlistedClaims())):
            copier = copying.ClaimCopier(source, target, 2)
            copier.check()
            self.assertEqual(5, copier.copy().consumers)
            self.assertEqual([], [*copier.compare()])
            target.release(['c3'])
            self.assertEqual(
                ['p', 'q', 'c3'], [each.name for each in copier.compare()])

    def test_store_without_a_list_is_audited(self):
        store = self.stores[1]
        self.assertEqual([], checks.check_capacity(store, 2))

        store._used['q'] = {'VCPU': 7}

        self.assertEqual(
            [('miscounted:VCPU', 'q')],
            [(each.kind, each.of) for each in checks.check_capacity(store, 2)])


class TestProbe(base.TestCase):

    def setUp(self):
        super().setUp()
        self.stores = memory.MemoryClaims(), UnlistedClaims()
        for store in self.stores:
            store.set_inventory('p', {'VCPU': claims.Inventory(4)})
            store.claim([claims.Claim('c', 'p', {'VCPU': 1})])

    def test_probe_releases_its_claim(self):
        for store in self.stores:
            before = store.usages().token
            for _ in range(2):
                self.assertEqual('', listing.probe(store, 'host1'))

            [usage] = store.usages(since=before).usages
            self.assertTrue(listing.is_probe(usage.provider))
            self.assertEqual(0, usage.consumers)

    def test_claim_of_a_dead_probe_is_released(self):
        for store in self.stores:
            release, store.release = store.release, lambda consumers: None
            listing.probe(store, 'host1')
            store.release = release
            listing.probe(store, 'host1')

            self.assertEqual(['p'], store.providers_in_use())

    def test_few_providers_serve_many_hosts(self):
        store = memory.MemoryClaims()
        for number in range(200):
            listing.probe(store, f'host{number}')

        self.assertLessEqual(len(store.usages().usages), 16)

    def test_error_of_the_store_is_raised(self):
        class Broken(memory.MemoryClaims):

            def release(self, consumers):
                raise OSError('away')

        self.assertRaises(
            exception.ClaimStoreFailed, listing.probe, Broken(), 'host1')

    def test_probe_is_in_no_listing_audit_or_copy(self):
        for store in self.stores:
            release, store.release = store.release, lambda consumers: None
            listing.probe(store, 'host1')
            store.release = release

            self.assertEqual([['c']], [*listing.pages(store, 10)])
            self.assertEqual(['p'], [
                each.provider for each in listing.usages(store).usages])
            self.assertEqual({'p'}, set(listing.inventories(store)))
            self.assertEqual([], checks.check_capacity(store, 10))
            target = memory.MemoryClaims()
            copying.ClaimCopier(store, target).copy()
            self.assertEqual(['p'], [
                each.provider for each in target.usages().usages])
