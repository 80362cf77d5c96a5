# SPDX-License-Identifier: Apache-2.0
"""Tests of queries for providers by capacity and traits."""

from collections.abc import Collection
from typing import Any
import uuid

from cellsched.claims import base
from cellsched import exception
from cellsched.testing.suite import claim_cases


class ClaimQueries(claim_cases.ClaimStoreCase):
    """Tests of :meth:`.base.ClaimStore.find_providers` and of traits."""

    def make_asked(self) -> base.ClaimStore:
        """Return a store with the capability ``QUERY``."""
        store = self.make_store()
        self.need(store, base.Capability.QUERY)
        return store

    def make_tree(
        self, store: base.ClaimStore, traits: Collection[str] = (),
        **has: Any,
    ) -> str:
        """Return a new root provider with traits."""
        provider = self.make_provider(store, **has)
        store.set_traits(provider, traits, provider)
        return provider

    def make_child(
        self, store: base.ClaimStore, root: str,
        traits: Collection[str] = (), **has: Any,
    ) -> str:
        """Return a new provider in a tree."""
        provider = self.make_provider(store, **has)
        store.set_traits(provider, traits, root)
        return provider

    def find(
        self, store: base.ClaimStore, required: Collection[str] = (),
        forbidden: Collection[str] = (), **amounts: int,
    ) -> list[str]:
        """Return the sorted roots of matching trees."""
        return sorted(store.find_providers(base.ProviderQuery(
            {name: [amount] for name, amount in amounts.items()},
            frozenset(required), frozenset(forbidden))))

    def test_providers_with_room_are_found(self) -> None:
        store = self.make_asked()
        small, large = (self.make_tree(store, VCPU=total, MEMORY_MB=1024)
                        for total in (2, 4))
        self.make_tree(store, VCPU=4)

        self.assertEqual(sorted([small, large]), self.find(
            store, VCPU=2, MEMORY_MB=1024))
        self.assertEqual([large], self.find(store, VCPU=3, MEMORY_MB=1))
        self.assertEqual([], self.find(store, VCPU=3, MEMORY_MB=1025))
        self.assertEqual([], self.find(store, VCPU=1, VGPU=1))

    def test_what_is_taken_is_no_room(self) -> None:
        store = self.make_asked()
        provider = self.make_tree(store, VCPU=4)
        claim = self.make_claim(provider, VCPU=3)
        store.claim([claim])

        self.assertEqual([], self.find(store, VCPU=2))
        self.assertEqual([provider], self.find(store, VCPU=1))
        store.release([claim.consumer])
        self.assertEqual([provider], self.find(store, VCPU=4))

    def test_ratio_offers_more_and_what_is_reserved_less(self) -> None:
        store = self.make_asked()
        provider = self.make_tree(store, VCPU=base.Inventory(
            total=4, reserved=1, allocation_ratio=2.0))

        self.assertEqual([provider], self.find(store, VCPU=6))
        self.assertEqual([], self.find(store, VCPU=7))

    def test_bounds_on_one_claim_are_kept(self) -> None:
        store = self.make_asked()
        provider = self.make_tree(store, VCPU=base.Inventory(
            total=64, min_unit=4, max_unit=12, step_size=4))

        for amount in (4, 8, 12):
            self.assertEqual([provider], self.find(store, VCPU=amount))
        for amount in (2, 6, 16):
            self.assertEqual([], self.find(store, VCPU=amount))

    def test_one_of_several_amounts_is_enough(self) -> None:
        store = self.make_asked()
        provider = self.make_tree(
            store, VCPU=base.Inventory(total=8, min_unit=4))

        self.assertEqual([provider], store.find_providers(
            base.ProviderQuery({'VCPU': [1, 4]})))
        self.assertEqual([], store.find_providers(
            base.ProviderQuery({'VCPU': [1, 9]})))

    def test_provider_that_has_nothing_any_more_is_not_found(self) -> None:
        store = self.make_asked()
        provider = self.make_tree(store, VCPU=4)

        store.set_inventory(provider, {})

        self.assertEqual([], self.find(store, VCPU=1))

    def test_classes_may_be_given_by_several_providers_of_a_tree(
        self
    ) -> None:
        store = self.make_asked()
        root = self.make_tree(store, VCPU=4)
        self.make_child(store, root, VGPU=1)
        self.make_child(store, root, VGPU=2)
        self.make_tree(store, VCPU=4)

        self.assertEqual([root], self.find(store, VCPU=4, VGPU=2))
        self.assertEqual([], self.find(store, VCPU=4, VGPU=3))

    def test_tree_of_a_root_without_inventory_is_found(self) -> None:
        store = self.make_asked()
        root = str(uuid.uuid4())
        self.make_child(store, root, VGPU=1)

        self.assertEqual([root], self.find(store, VGPU=1))

    def test_required_traits_may_be_of_any_provider_of_a_tree(self) -> None:
        store = self.make_asked()
        root = self.make_tree(store, ['CUSTOM_A'], VCPU=4)
        self.make_child(store, root, ['CUSTOM_B'], VGPU=1)
        other = self.make_tree(store, ['CUSTOM_B'], VCPU=4)

        self.assertEqual([root], self.find(
            store, ['CUSTOM_A', 'CUSTOM_B'], VCPU=1))
        self.assertEqual(sorted([root, other]), self.find(
            store, ['CUSTOM_B'], VCPU=1))
        self.assertEqual([], self.find(
            store, ['CUSTOM_A', 'CUSTOM_C'], VCPU=1))

    def test_forbidden_traits_are_those_of_the_root(self) -> None:
        store = self.make_asked()
        root = self.make_tree(store, ['CUSTOM_A'], VCPU=4)
        self.make_child(store, root, ['CUSTOM_B'], VGPU=1)

        self.assertEqual([root], self.find(store, (), ['CUSTOM_B'], VCPU=1))
        self.assertEqual([], self.find(
            store, (), ['CUSTOM_B', 'CUSTOM_A'], VCPU=1))

    def test_provider_of_which_nothing_was_said_may_have_any_traits(
        self
    ) -> None:
        store = self.make_asked()
        untold = self.make_provider(store, VCPU=4)
        self.make_tree(store, VCPU=4)

        self.assertEqual([untold], self.find(store, ['CUSTOM_A'], VCPU=1))
        self.assertIn(untold, self.find(store, (), ['CUSTOM_A'], VCPU=1))

    def test_traits_are_replaced(self) -> None:
        store = self.make_asked()
        provider = self.make_tree(store, ['CUSTOM_A', 'CUSTOM_B'], VCPU=4)

        for _ in range(2):
            store.set_traits(provider, ['CUSTOM_B', 'CUSTOM_C'], provider)

        self.assertEqual([provider], self.find(
            store, ['CUSTOM_B', 'CUSTOM_C'], VCPU=1))
        self.assertEqual([], self.find(store, ['CUSTOM_A'], VCPU=1))

    def test_provider_may_change_its_tree(self) -> None:
        store = self.make_asked()
        one, other = (self.make_tree(store, VCPU=4) for _ in range(2))
        child = self.make_child(store, one, VGPU=1)

        store.set_traits(child, [], other)

        self.assertEqual([other], self.find(store, VCPU=1, VGPU=1))

    def test_roots_are_told(self) -> None:
        store = self.make_asked()
        root = self.make_tree(store, VCPU=4)
        child = self.make_child(store, root, VGPU=1)
        untold = self.make_provider(store, VCPU=4)

        self.assertEqual({root: root, child: root}, store.roots(
            [root, child, untold, str(uuid.uuid4())]))
        self.assertEqual({}, store.roots([]))

    def test_where_nothing_is_asked_for_all_trees_are_found(self) -> None:
        store = self.make_asked()
        root = self.make_tree(store, ['CUSTOM_A'], VCPU=4)
        self.make_child(store, root, VGPU=1)
        other = self.make_provider(store)

        self.assertEqual(sorted([root, other]), self.find(store))
        self.assertEqual([other], self.find(store, (), ['CUSTOM_A']))

    def test_no_more_are_returned_than_asked_for(self) -> None:
        store = self.make_asked()
        providers = {self.make_tree(store, VCPU=4) for _ in range(5)}
        query = base.ProviderQuery({'VCPU': [1]})

        for limit in (1, 4):
            found = store.find_providers(query, limit)
            self.assertEqual(limit, len(set(found)))
            self.assertLessEqual(set(found), providers)
        self.assertEqual(providers, set(store.find_providers(query, 5)))

    def test_nonsense_is_no_query(self) -> None:
        store = self.make_asked()
        provider = self.make_tree(store, VCPU=4)

        for query, limit, field in (
                (base.ProviderQuery({'VCPU': [0]}), None, 'VCPU'),
                (base.ProviderQuery({'VCPU': []}), None, 'VCPU'),
                (base.ProviderQuery({}, frozenset({'a'})), None, 'required'),
                (base.ProviderQuery({}, forbidden=frozenset({'\0'})), None,
                 'forbidden'),
                (base.ProviderQuery({}), 0, 'limit')):
            with self.assertRaises(exception.InvalidField) as caught:
                store.find_providers(query, limit)
            self.assertIn(field, caught.exception.field)
        for traits, root, field in ((['x'], provider, 'traits'),
                                    (['X'], '', 'root')):
            with self.assertRaises(exception.InvalidField) as caught:
                store.set_traits(provider, traits, root)
            self.assertEqual(field, caught.exception.field)
