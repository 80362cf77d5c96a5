# SPDX-License-Identifier: Apache-2.0
"""Tests of the providers of claim stores, in one and in several processes."""

from collections.abc import Iterable
from typing import Any
import uuid

from cellsched.claims import base
from cellsched.claims import memory
from cellsched import exception
from cellsched.testing.suite import claim_cases


class ClaimProviders(claim_cases.ClaimStoreCase):
    """Tests of inventories, changes, counters, and of shared stores."""

    # Inventories.

    def test_inventory_may_shrink_below_the_usage(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8)
        claims = [self.make_claim(provider, VCPU=3) for _ in range(2)]
        store.claim(claims)

        store.set_inventory(provider, {'VCPU': base.Inventory(total=4)})

        self.assertUsed(store, provider, 2, VCPU=6)
        self.assertCapacity(store, provider, VCPU=4)
        late = self.make_claim(provider, VCPU=1)
        self.assertRefused(store, [late], late, 'VCPU')
        store.claim(claims)
        store.release([claims[0].consumer])
        store.claim([late])
        self.assertUsed(store, provider, 2, VCPU=4)

    def test_class_missing_from_the_inventory_has_no_room(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8, DISK_GB=8)
        held = self.make_claim(provider, VCPU=3, DISK_GB=3)
        store.claim([held])

        store.set_inventory(provider, {'VCPU': base.Inventory(total=8)})

        self.assertCapacity(store, provider, VCPU=8)
        self.assertUsed(store, provider, 1, VCPU=3, DISK_GB=3)
        claim = self.make_claim(provider, DISK_GB=1)
        self.assertRefused(store, [claim], claim, 'DISK_GB')
        store.release([held.consumer])
        self.assertUsed(store, provider, 0)

    def test_inventory_may_grow(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=1)
        store.claim([self.make_claim(provider, VCPU=1)])

        store.set_inventory(provider, {
            'VCPU': base.Inventory(total=2),
            'CUSTOM_GPU': base.Inventory(total=1)})

        store.claim([self.make_claim(provider, VCPU=1, CUSTOM_GPU=1)])
        self.assertUsed(store, provider, 2, VCPU=2, CUSTOM_GPU=1)

    def test_usage_has_the_bounds_on_amounts(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store)
        for inventory, units in (
                ({'VCPU': base.Inventory(8, max_unit=4),
                  'CUSTOM_X': base.Inventory(8, min_unit=2, step_size=3),
                  'DISK_GB': base.Inventory(8)},
                 {'VCPU': base.Units(max_unit=4),
                  'CUSTOM_X': base.Units(min_unit=2, step_size=3)}),
                ({'VCPU': base.Inventory(8)}, {})):
            store.set_inventory(provider, inventory)
            reported = {name: bounds for name, bounds
                        in self.usage(store, provider).units.items()
                        if bounds != base.Units()}
            self.assertEqual(units, reported)

    def test_inventories_are_returned_with_capacity_and_units(self) -> None:
        store = self.make_store()
        inventory = {'VCPU': base.Inventory(8, 2, 4.0, 2, 4, 2),
                     'CUSTOM_X': base.Inventory(3)}
        provider = self.make_provider(store)
        other = self.make_provider(store, DISK_GB=5)
        store.set_inventory(provider, inventory)
        store.claim([self.make_claim(provider, VCPU=2)])

        for asked, existing in ((None, {provider, other}),
                                ([provider, str(uuid.uuid4())], {provider}),
                                ([], set())):
            reported = store.inventories(asked)
            # Other tests may use the same store.
            self.assertLessEqual(existing, reported.keys())
            if asked is not None:
                self.assertEqual(existing, reported.keys())
        self.assertEqual(
            {name: (each.capacity, each.units)
             for name, each in inventory.items()},
            {name: (each.capacity, each.units)
             for name, each in store.inventories(
                 [provider])[provider].items() if each.capacity})

    def test_inventory_with_wrong_values_is_invalid(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8)

        bad: list[dict[str, Any]] = [
            {'total': -1}, {'total': 2 ** 31}, {'total': 1, 'reserved': -1},
            {'total': 1, 'step_size': 0}, {'total': 1, 'min_unit': 0},
            {'total': 1, 'max_unit': 0}, {'total': 1.5},
            {'total': 1, 'allocation_ratio': 0.0},
            {'total': 1, 'allocation_ratio': float('nan')},
            {'total': 1, 'allocation_ratio': float('inf')},
        ]
        for fields in bad:
            self.assertRaises(
                exception.InvalidField, store.set_inventory, provider,
                {'VCPU': base.Inventory(**fields)})
        self.assertRaises(
            exception.InvalidField, store.set_inventory, 'x' * 37, {})

        self.assertCapacity(store, provider, VCPU=8)

    # The feed.

    def test_usages_without_token_have_all_providers(self) -> None:
        store = self.make_store()
        providers = {self.make_provider(store, VCPU=8) for _ in range(3)}

        self.assertEqual(providers, self.names_of(store.usages().usages))

    def test_usages_have_the_changes_since_a_token(self) -> None:
        store = self.make_store()
        providers = [self.make_provider(store, VCPU=8) for _ in range(5)]
        claims = [self.make_claim(provider, VCPU=1) for provider in providers]
        store.claim(claims[1:])
        token = store.usages().token

        store.claim(claims[:1])
        store.release([claims[1].consumer])
        store.set_inventory(providers[2], {'VCPU': base.Inventory(total=9)})
        new = self.make_provider(store, VCPU=8)

        changes = store.usages(token)
        self.assertLessEqual(
            {*providers[:3], new}, self.names_of(changes.usages))
        reported = {usage.provider: usage for usage in changes.usages}
        self.assertEqual(1, reported[providers[0]].used['VCPU'])
        self.assertEqual(0, reported[providers[1]].used.get('VCPU', 0))
        self.assertEqual(9, reported[providers[2]].capacity['VCPU'])
        self.assertEqual(
            [1, 0, 1], [reported[provider].consumers
                        for provider in providers[:3]])

    def test_each_token_leads_to_the_later_changes(self) -> None:
        store = self.make_store()
        providers = [self.make_provider(store, VCPU=8) for _ in range(5)]
        tokens = []
        for provider in providers:
            tokens.append(store.usages().token)
            store.claim([self.make_claim(provider, VCPU=1)])

        for number, token in enumerate(tokens):
            self.assertLessEqual(
                set(providers[number:]),
                self.names_of(store.usages(token).usages))

    def test_usages_of_given_providers_are_returned(self) -> None:
        store = self.make_store()
        providers = [self.make_provider(store, VCPU=8) for _ in range(3)]
        token = store.usages().token

        for since in None, token:
            changes = store.usages(
                since, [providers[0], providers[2], str(uuid.uuid4())])

            self.assertEqual({providers[0], providers[2]},
                             self.names_of(changes.usages))
            self.assertEqual(2, len(changes.usages))
            self.assertEqual(since, changes.token)
        self.assertEqual([], list(store.usages(providers=[]).usages))

    def names_of(self, usages: Iterable[base.Usage]) -> set[str]:
        return {usage.provider for usage in usages}

    # Figures.

    def test_recount_keeps_correct_figures(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8, MEMORY_MB=100)
        claims = [self.make_claim(provider, VCPU=2, MEMORY_MB=1)
                  for _ in range(2)]
        store.claim(claims)
        store.release([claims[0].consumer])
        token = store.usages().token

        self.assertFalse(store.recount(provider))

        self.assertUsed(store, provider, 1, VCPU=2, MEMORY_MB=1)
        self.assertCapacity(store, provider, VCPU=8, MEMORY_MB=100)
        self.assertEqual(token, store.usages().token)

    def test_unknown_provider_has_no_figures(self) -> None:
        self.assertFalse(self.make_store().recount(str(uuid.uuid4())))

    # Processes.

    def test_peer_is_the_same_store(self) -> None:
        store = self.make_store()
        self.need(store, base.Capability.SHARED)
        peer = self.make_peer(store)

        self.assertTrue(store.same_backend(store))
        self.assertTrue(store.same_backend(peer) and peer.same_backend(store))
        # A store in memory never has the same backend.
        self.assertFalse(store.same_backend(memory.MemoryClaims()))

    def test_peer_sees_claims(self) -> None:
        store = self.make_store()
        self.need(store, base.Capability.SHARED)
        peer = self.make_peer(store)
        token = peer.usages().token
        provider = self.make_provider(store, VCPU=2)
        claim = self.make_claim(provider, VCPU=2)
        store.claim([claim])

        self.assertHolds(peer, claim)
        self.assertIn(provider, self.names_of(peer.usages(token).usages))
        late = self.make_claim(provider, VCPU=1)
        self.assertRefused(peer, [late], late, 'VCPU')
        peer.release([claim.consumer])
        self.assertUsed(store, provider, 0)

    def test_claims_outlive_their_store(self) -> None:
        store = self.make_store()
        self.need(store, base.Capability.DURABLE)
        provider = self.make_provider(store, VCPU=2)
        claim = self.make_claim(provider, VCPU=2)
        store.claim([claim])
        later = self.make_peer(store)
        del store

        self.assertHolds(later, claim)
        self.assertUsed(later, provider, 1, VCPU=2)
