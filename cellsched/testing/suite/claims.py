# SPDX-License-Identifier: Apache-2.0
"""Tests for every claim store.

::

    class TestMyClaims(claims.ClaimStoreSuite, unittest.TestCase):

        def make_store(self):
            return my_claims.MyClaims(…)

A store with the capability ``SHARED`` or ``DURABLE`` also needs ``make_peer``.
"""

from collections.abc import Collection
from collections.abc import Iterable
import dataclasses
from typing import Any
import uuid

from cellsched.claims import base
from cellsched import exception
from cellsched.testing.suite import claim_batches
from cellsched.testing.suite import claim_cases
from cellsched.testing.suite import claim_groups
from cellsched.testing.suite import claim_providers
from cellsched.testing.suite import claim_races


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

    def test_claimed_amount_is_no_room(self) -> None:
        store = self.make_asked()
        provider = self.make_tree(store, VCPU=4)
        claim = self.make_claim(provider, VCPU=3)
        store.claim([claim])

        self.assertEqual([], self.find(store, VCPU=2))
        self.assertEqual([provider], self.find(store, VCPU=1))
        store.release([claim.consumer])
        self.assertEqual([provider], self.find(store, VCPU=4))

    def test_ratio_adds_room_and_reserve_reduces_room(self) -> None:
        store = self.make_asked()
        provider = self.make_tree(store, VCPU=base.Inventory(
            total=4, reserved=1, allocation_ratio=2.0))

        self.assertEqual([provider], self.find(store, VCPU=6))
        self.assertEqual([], self.find(store, VCPU=7))

    def test_query_respects_bounds_on_a_claim(self) -> None:
        store = self.make_asked()
        provider = self.make_tree(store, VCPU=base.Inventory(
            total=64, min_unit=4, max_unit=12, step_size=4))

        for amount in (4, 8, 12):
            self.assertEqual([provider], self.find(store, VCPU=amount))
        for amount in (2, 6, 16):
            self.assertEqual([], self.find(store, VCPU=amount))

    def test_single_fitting_amount_of_several_suffices(self) -> None:
        store = self.make_asked()
        provider = self.make_tree(
            store, VCPU=base.Inventory(total=8, min_unit=4))

        self.assertEqual([provider], store.find_providers(
            base.ProviderQuery({'VCPU': [1, 4]})))
        self.assertEqual([], store.find_providers(
            base.ProviderQuery({'VCPU': [1, 9]})))

    def test_provider_with_emptied_inventory_is_not_found(self) -> None:
        store = self.make_asked()
        provider = self.make_tree(store, VCPU=4)

        store.set_inventory(provider, {})

        self.assertEqual([], self.find(store, VCPU=1))

    def test_classes_may_be_given_by_several_providers_of_a_tree(self) -> None:
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

    def test_forbidden_traits_apply_to_the_root_only(self) -> None:
        store = self.make_asked()
        root = self.make_tree(store, ['CUSTOM_A'], VCPU=4)
        self.make_child(store, root, ['CUSTOM_B'], VGPU=1)

        self.assertEqual([root], self.find(store, (), ['CUSTOM_B'], VCPU=1))
        self.assertEqual([], self.find(
            store, (), ['CUSTOM_B', 'CUSTOM_A'], VCPU=1))

    def test_provider_without_known_traits_matches_any_traits(self) -> None:
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

    def test_roots_of_providers_are_returned(self) -> None:
        store = self.make_asked()
        root = self.make_tree(store, VCPU=4)
        child = self.make_child(store, root, VGPU=1)
        untold = self.make_provider(store, VCPU=4)

        self.assertEqual({root: root, child: root}, store.roots(
            [root, child, untold, str(uuid.uuid4())]))
        self.assertEqual({}, store.roots([]))

    def test_query_without_resources_finds_all_trees(self) -> None:
        store = self.make_asked()
        root = self.make_tree(store, ['CUSTOM_A'], VCPU=4)
        self.make_child(store, root, VGPU=1)
        other = self.make_provider(store)

        self.assertEqual(sorted([root, other]), self.find(store))
        self.assertEqual([other], self.find(store, (), ['CUSTOM_A']))

    def test_number_of_found_providers_respects_the_limit(self) -> None:
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


class ClaimTransfers(claim_cases.ClaimStoreCase):
    """Tests of transfers, and of lists of consumers."""

    # Transfers.

    def test_transfer_replaces_the_claims_of_the_target(self) -> None:
        store = self.make_store()
        first, second, third = (
            self.make_provider(store, VCPU=8, DISK_GB=8) for _ in range(3))
        source, target, stays = (str(uuid.uuid4()) for _ in range(3))
        store.claim([
            base.Claim(target, first, {'VCPU': 3, 'DISK_GB': 2}),
            base.Claim(target, second, {'VCPU': 1}),
            base.Claim(source, second, {'VCPU': 4}),
            base.Claim(source, third, {'DISK_GB': 5}),
            base.Claim(stays, first, {'VCPU': 1})])

        self.assertTrue(store.transfer(source, target))

        held = store.claims_of([source, target, stays])
        self.assertEqual({target, stays}, set(held))
        self.assertEqual({second: {'VCPU': 4}, third: {'DISK_GB': 5}},
                         self.by_provider(held[target]))
        self.assertEqual({target}, {claim.consumer for claim in held[target]})
        self.assertUsed(store, first, 1, VCPU=1)
        self.assertUsed(store, second, 1, VCPU=4)
        self.assertUsed(store, third, 1, DISK_GB=5)

    def test_target_without_claims_gets_the_transferred_claim(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8)
        claim, target = self.make_claim(provider, VCPU=8), str(uuid.uuid4())
        store.claim([claim])

        self.assertTrue(store.transfer(claim.consumer, target))

        self.assertHolds(store, base.Claim(target, provider, {'VCPU': 8}))
        self.assertEqual({}, store.claims_of([claim.consumer]))
        self.assertUsed(store, provider, 1, VCPU=8)

    def test_transfer_from_an_unknown_consumer_has_no_effect(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8)
        claim = self.make_claim(provider, VCPU=3)
        store.claim([claim])

        self.assertFalse(store.transfer(str(uuid.uuid4()), claim.consumer))

        self.assertHolds(store, claim)
        self.assertUsed(store, provider, 1, VCPU=3)

    def test_second_transfer_has_no_effect(self) -> None:
        store = self.make_store()
        first, second = (self.make_provider(store, VCPU=8) for _ in range(2))
        before = self.make_claim(first, VCPU=3)
        after = self.make_claim(second, VCPU=4)
        store.claim([before, after])

        self.assertEqual([True, False], [
            store.transfer(after.consumer, before.consumer)
            for _ in range(2)])

        self.assertHolds(
            store, base.Claim(before.consumer, second, {'VCPU': 4}))
        self.assertUsed(store, first, 0)
        self.assertUsed(store, second, 1, VCPU=4)

    def test_transfer_needs_no_room(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8)
        claims = [self.make_claim(provider, VCPU=4) for _ in range(2)]
        store.claim(claims)
        store.set_inventory(provider, {'VCPU': base.Inventory(total=1)})

        self.assertTrue(store.transfer(claims[0].consumer, claims[1].consumer))

        self.assertUsed(store, provider, 1, VCPU=4)

    def test_amount_freed_by_a_transfer_can_be_claimed(self) -> None:
        store = self.make_store()
        first, second = (self.make_provider(store, VCPU=8) for _ in range(2))
        before = self.make_claim(first, VCPU=8)
        after = self.make_claim(second, VCPU=8)
        store.claim([before, after])
        token = store.usages().token

        store.transfer(after.consumer, before.consumer)

        reported = {usage.provider: usage
                    for usage in store.usages(token).usages}
        self.assertEqual(0, reported[first].used.get('VCPU', 0))
        self.assertEqual(0, reported[first].consumers)
        store.claim([self.make_claim(first, VCPU=8)])
        late = self.make_claim(second, VCPU=1)
        self.assertRefused(store, [late], late, 'VCPU')

    def test_transferred_claim_can_be_repeated_and_released(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8)
        claim, target = self.make_claim(provider, VCPU=2), str(uuid.uuid4())
        store.claim([claim])
        store.transfer(claim.consumer, target)

        self.assertEqual(0, store.claim(
            [base.Claim(target, provider, {'VCPU': 2})]))
        self.assertEqual(1, store.claim([claim]))
        store.release([target])

        self.assertHolds(store, claim)
        self.assertUsed(store, provider, 1, VCPU=2)

    def test_transfer_to_a_wrong_consumer_is_invalid(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8)
        claim = self.make_claim(provider, VCPU=2)
        store.claim([claim])

        for target in '', 'x' * 37, '\x00', '\u00e9', claim.consumer:
            self.assertRaises(exception.InvalidField, store.transfer,
                              claim.consumer, target)

        self.assertHolds(store, claim)

    # All consumers.

    def test_consumers_are_listed_in_order_and_in_pages(self) -> None:
        store = self.make_store()
        self.need(store, base.Capability.CONSUMER_LIST)
        provider = self.make_provider(store, VCPU=100)
        other = self.make_provider(store, VCPU=100, DISK_GB=100)
        # The order is that of bytes, in any database.
        names = ['-', '00', '10', '9', 'A', 'Z-', 'Za', '_', 'a', 'b', 'z']
        self.assertEqual([], store.consumers())
        store.claim([base.Claim(name, provider, {'VCPU': 1})
                     for name in reversed(names)])
        store.claim([base.Claim('B', provider, {'VCPU': 1}),
                     base.Claim('B', other, {'VCPU': 1, 'DISK_GB': 1})])
        store.release(['B', '9', 'gone'])
        store.claim([base.Claim('B', other, {'VCPU': 1, 'DISK_GB': 1})])
        expected = sorted({'B', *names} - {'9'})

        self.assertEqual(expected, store.consumers())
        for limit in 1, 3, len(expected), 1000:
            reported: list[str] = []
            while piece := store.consumers(
                    reported[-1] if reported else '', limit):
                self.assertLessEqual(len(piece), limit)
                reported += piece
            self.assertEqual(expected, reported)
        self.assertEqual(expected[-2:], store.consumers('a0'))

    def test_limit_below_1_is_invalid(self) -> None:
        store = self.make_store()
        self.need(store, base.Capability.CONSUMER_LIST)
        for limit in 0, -1:
            self.assertRaises(
                exception.InvalidField, store.consumers, limit=limit)

    # The consumers of a provider.

    def test_providers_in_use_are_listed(self) -> None:
        store = self.make_store()
        one, two, _ = (self.make_provider(store, VCPU=8) for _ in range(3))
        claims = [self.make_claim(provider, VCPU=1)
                  for provider in (one, two, two)]
        store.claim(claims)
        self.assertLessEqual({one, two}, {*store.providers_in_use()})
        store.release([claims[1].consumer])
        store.transfer(claims[0].consumer, claims[2].consumer)

        self.assertIn(one, store.providers_in_use())

    def test_store_without_list_has_the_consumers_of_a_provider(self) -> None:
        store = self.make_store()
        if base.Capability.CONSUMER_LIST in store.capabilities:
            self.skipTest('the store has a list of its consumers')
        one, two = (self.make_provider(store, VCPU=8) for _ in range(2))
        gone, moved, *rest = (self.make_claim(one, VCPU=1) for _ in range(4))
        name = str(uuid.uuid4())
        both = [base.Claim(name, provider, {'VCPU': 1})
                for provider in (one, two)]
        store.claim([gone, moved, *rest, *both])
        store.release([gone.consumer])
        target = str(uuid.uuid4())
        store.transfer(moved.consumer, target)

        self.assertEqual(
            sorted([target, name, *(claim.consumer for claim in rest)]),
            sorted(store.consumers_of(one)))
        self.assertEqual([name], store.consumers_of(two))
        self.assertEqual([], store.consumers_of(str(uuid.uuid4())))


#: A project and a user; None if not known.
Owner = tuple[str | None, str | None]


class ClaimOwners(claim_cases.ClaimStoreCase):
    """Tests of the projects and users of claims."""

    def make_owned(
        self, provider: str, owner: Owner, consumer: str | None = None,
        **resources: int,
    ) -> base.Claim:
        """Return a claim with an owner, by default of a new consumer."""
        return base.Claim(
            consumer or str(uuid.uuid4()), provider, resources or {'VCPU': 1},
            None, *owner)

    def assertOwned(
        self, store: base.ClaimStore, claims: Iterable[base.Claim]
    ) -> None:
        """Check that claims are held, with their owners."""
        requested: dict[str, set[tuple[str, Owner]]] = {}
        for claim in claims:
            requested.setdefault(claim.consumer, set()).add(
                (claim.provider, _owner(claim)))
        self.assertEqual(requested, {
            consumer: {(claim.provider, _owner(claim)) for claim in held}
            for consumer, held in store.claims_of(requested).items()})

    def test_project_and_user_of_a_claim_are_returned(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8, DISK_GB=8, MEMORY_MB=8)
        for owner in (('a', 'b'), ('a', None), (None, 'b'), (None, None)):
            claim = self.make_owned(
                provider, owner, VCPU=1, DISK_GB=1, MEMORY_MB=1)
            store.claim([claim])

            self.assertOwned(store, [claim])
            self.assertHolds(store, claim)

    def test_project_and_user_are_returned_for_each_provider(self) -> None:
        store = self.make_store()
        consumer = str(uuid.uuid4())
        claims = [self.make_owned(
            self.make_provider(store, VCPU=8, DISK_GB=8), ('a', 'b'),
            consumer, VCPU=1, DISK_GB=2) for _ in range(3)]

        store.claim(claims)

        self.assertOwned(store, claims)

    def test_claims_of_a_batch_may_have_different_owners(self) -> None:
        store = self.make_store()
        first, second = (
            self.make_provider(store, VCPU=100, DISK_GB=100)
            for _ in range(2))
        owners: list[Owner] = [
            ('a', 'b'), (None, None), ('c', None), (None, 'b')]
        alike = [self.make_owned(provider, owner, VCPU=1, DISK_GB=1)
                 for provider in (first, second) for owner in owners]
        unlike = [self.make_owned(first, owner, VCPU=number + 1)
                  for number, owner in enumerate(owners)]
        parted = [self.make_owned(provider, owner, consumer, VCPU=1)
                  for owner in owners for consumer in (str(uuid.uuid4()),)
                  for provider in (first, second)]
        unknown = [self.make_claim(first, VCPU=1) for _ in range(3)]
        batches = [alike, unlike, parted, unknown]

        for batch in batches:
            store.claim(batch)

        self.assertOwned(store, [
            claim for batch in batches for claim in batch])

    def test_members_of_server_groups_have_project_and_user(self) -> None:
        store = self.make_store()
        self.need(store, base.Capability.GROUPS)
        joins = base.Membership(str(uuid.uuid4()), 'h', base.AFFINITY)
        claim = dataclasses.replace(self.make_owned(
            self.make_provider(store, VCPU=8), ('a', 'b')), group=joins)

        store.claim([claim])

        self.assertOwned(store, [claim])

    def test_repeat_for_a_different_owner_has_no_effect(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8)
        known = self.make_owned(provider, ('a', 'b'))
        unknown = self.make_owned(provider, (None, None))
        store.claim([known, unknown])

        for project_id, user_id in (
                ('c', 'd'), ('a', None), (None, 'b'), (None, None)):
            again = [dataclasses.replace(
                claim, project_id=project_id, user_id=user_id)
                for claim in (known, unknown)]
            new = self.make_owned(provider, (project_id, user_id))

            self.assertEqual(0, store.claim(again[:1]))
            self.assertEqual(1, store.claim([*again, new]))
            self.assertOwned(store, [known, unknown, new])
        self.assertUsed(store, provider, 6, VCPU=6)

    def test_project_and_user_follow_a_transfer(self) -> None:
        store = self.make_store()
        first, second = (
            self.make_provider(store, VCPU=8, DISK_GB=8) for _ in range(2))
        for source, target in ((('a', 'b'), ('c', 'd')),
                               (('a', 'b'), (None, None)),
                               ((None, None), ('c', 'd'))):
            before = self.make_owned(first, target)
            after = self.make_owned(second, source, VCPU=1, DISK_GB=1)
            store.claim([before, after])

            store.transfer(after.consumer, before.consumer)

            self.assertOwned(store, [
                dataclasses.replace(after, consumer=before.consumer)])

    def test_project_and_user_end_with_a_release(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8)
        claim = self.make_owned(provider, ('a', 'b'))
        store.claim([claim])
        store.release([claim.consumer])

        for owner in (None, None), ('c', 'd'):
            later = self.make_owned(provider, owner, claim.consumer)
            store.claim([later])

            self.assertOwned(store, [later])
            store.release([claim.consumer])

    def test_other_processes_get_project_and_user(self) -> None:
        store = self.make_store()
        self.need(store, base.Capability.SHARED)
        claim = self.make_owned(self.make_provider(store, VCPU=8), ('a', 'b'))
        store.claim([claim])

        self.assertOwned(self.make_peer(store), [claim])

    def test_project_and_user_ids_are_kept_unchanged(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=100)
        ids = ['x' * 255, '\U0001f600' * 255, ' a ', 'a', 'A', '\u00e4',
               'a\u0308', "'", '"', '\\', '{a,b}', 'NULL', '%s %(a)s', ':a',
               '\n\t\x01', '0', 'None']
        claims = [self.make_owned(provider, (each, other))
                  for each, other in zip(ids, reversed(ids))]

        store.claim(claims[:1])
        store.claim(claims[1:])

        self.assertOwned(store, claims)

    def test_wrong_project_or_user_id_is_invalid(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8)
        good = self.make_owned(provider, ('a', 'b'))
        values: list[Any] = [
            '', 'x' * 256, 'a\0', '\ud800', 7, True, b'a', ['a']]
        for bad in values:
            for field in 'project_id', 'user_id':
                claim = dataclasses.replace(
                    self.make_owned(provider, ('a', 'b')), **{field: bad})
                with self.assertRaises(exception.InvalidField) as caught:
                    store.claim([good, claim])
                self.assertEqual(field, caught.exception.field)
        self.assertUsed(store, provider, 0)

    def test_consumer_has_a_single_project_and_user(self) -> None:
        store = self.make_store()
        first, second = (self.make_provider(store, VCPU=8) for _ in range(2))
        claim = self.make_owned(first, ('a', 'b'))
        rest: list[tuple[Owner, str]] = [
            (('c', 'b'), 'project_id'), ((None, 'b'), 'project_id'),
            (('a', 'd'), 'user_id'), (('a', None), 'user_id')]
        for owner, field in rest:
            with self.assertRaises(exception.InvalidField) as caught:
                store.claim([
                    claim, self.make_owned(second, owner, claim.consumer)])
            self.assertEqual(field, caught.exception.field)
        self.assertUsed(store, first, 0)


def _owner(claim: base.Claim) -> Owner:
    return claim.project_id, claim.user_id


class ClaimStoreSuite(
        claim_providers.ClaimProviders, ClaimTransfers,
        claim_groups.ClaimGroups, ClaimOwners,
        claim_races.ClaimRaces, claim_batches.ClaimBatches,
        claim_batches.ClaimAlternatives, ClaimQueries):
    """Tests of the claim store that ``make_store`` returns."""

    # Claims.

    def test_claimed_amounts_are_held(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8, MEMORY_MB=1024)
        claim = self.make_claim(provider, VCPU=2, MEMORY_MB=512)

        store.claim([claim])

        self.assertHolds(store, claim)
        self.assertUsed(store, provider, 1, VCPU=2, MEMORY_MB=512)

    def test_batch_is_taken_whole(self) -> None:
        store = self.make_store()
        providers = [self.make_provider(store, VCPU=8) for _ in range(3)]
        claims = [self.make_claim(providers[number % 3], VCPU=1 + number // 3)
                  for number in range(6)]

        store.claim(claims)

        for claim in claims:
            self.assertHolds(store, claim)
        for provider in providers:
            self.assertUsed(store, provider, 2, VCPU=3)

    def test_batch_may_be_large(self) -> None:
        store = self.make_store()
        providers = [self.make_provider(store, VCPU=9) for _ in range(7)]
        claims = [self.make_claim(providers[number % 7], VCPU=1)
                  for number in range(60)]

        store.claim(claims)

        self.assertEqual(60, len(store.claims_of(c.consumer for c in claims)))
        store.release(claim.consumer for claim in claims)
        for provider in providers:
            self.assertUsed(store, provider, 0, VCPU=0)

    def test_empty_batch_is_taken(self) -> None:
        self.make_store().claim([])

    def test_provider_can_be_filled(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=3)

        store.claim([self.make_claim(provider, VCPU=2)])
        store.claim([self.make_claim(provider, VCPU=1)])

        self.assertUsed(store, provider, 2, VCPU=3)

    def test_consumer_may_hold_of_several_providers(self) -> None:
        store = self.make_store()
        compute = self.make_provider(store, VCPU=8)
        storage = self.make_provider(store, DISK_GB=100)
        consumer = _uuid()
        claims = [base.Claim(consumer, storage, {'DISK_GB': 50}),
                  base.Claim(consumer, compute, {'VCPU': 2})]

        store.claim(claims)
        store.claim(list(reversed(claims)))

        held = store.claims_of([consumer])[consumer]
        self.assertEqual(self.by_provider(claims), self.by_provider(held))
        self.assertUsed(store, compute, 1, VCPU=2)
        self.assertUsed(store, storage, 1, DISK_GB=50)

    def test_claims_are_returned_of_the_given_consumers_only(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8)
        claim, other = (self.make_claim(provider, VCPU=1) for _ in range(2))
        store.claim([claim, other])

        self.assertEqual(
            {claim.consumer}, set(store.claims_of([claim.consumer, _uuid()])))
        self.assertEqual({}, store.claims_of([]))

    # Refusals.

    def test_refusal_names_the_claim_and_the_lacking_resource(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8, MEMORY_MB=1024)
        claim = self.make_claim(provider, VCPU=2, MEMORY_MB=1025)

        self.assertRefused(store, [claim], claim, 'MEMORY_MB')

    def test_refused_batch_claims_no_amount(self) -> None:
        store = self.make_store()
        roomy = self.make_provider(store, VCPU=8, MEMORY_MB=1024)
        full = self.make_provider(store, VCPU=2, MEMORY_MB=1024)
        claims = [self.make_claim(roomy, VCPU=2, MEMORY_MB=512),
                  self.make_claim(full, VCPU=3, MEMORY_MB=512),
                  self.make_claim(roomy, VCPU=2, MEMORY_MB=512)]

        self.assertRefused(store, claims, claims[1], 'VCPU')

        self.assertUsed(store, roomy, 0)
        self.assertUsed(store, full, 0)
        store.claim([claims[0], claims[2]])

    def test_claims_of_a_batch_add_up(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=3)
        claims = [self.make_claim(provider, VCPU=2) for _ in range(2)]

        self.assertRefused(store, claims, claims[1], 'VCPU')

        store.claim(claims[1:])

    def test_unknown_provider_has_no_room(self) -> None:
        claim = self.make_claim(_uuid(), VCPU=1)

        self.assertRefused(self.make_store(), [claim], claim, 'VCPU')

    def test_unknown_resource_class_has_no_room(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8)
        claim = self.make_claim(provider, VCPU=1, CUSTOM_GPU=1)

        self.assertRefused(store, [claim], claim, 'CUSTOM_GPU')

    def test_reserve_and_ratio_bound_the_claimed_amount(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=base.Inventory(
            total=10, reserved=1, allocation_ratio=1.5))
        store.claim([self.make_claim(provider, VCPU=13)])
        claim = self.make_claim(provider, VCPU=1)

        self.assertRefused(store, [claim], claim, 'VCPU')

    def test_each_claim_keeps_to_the_units(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=base.Inventory(
            total=100, min_unit=4, max_unit=8, step_size=2))
        for amount in 2, 5, 10:
            claims = [self.make_claim(provider, VCPU=given)
                      for given in (4, amount, 6)]

            self.assertRefused(store, claims, claims[1], 'VCPU')

        store.claim([self.make_claim(provider, VCPU=given)
                     for given in (4, 6, 8)])
        self.assertUsed(store, provider, 3, VCPU=18)

    def test_units_bound_claims_and_not_their_sum(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=base.Inventory(
            total=100, min_unit=2, max_unit=3))
        claims = [self.make_claim(provider, VCPU=given) for given in (1, 2)]

        self.assertRefused(store, claims, claims[0], 'VCPU')

        store.claim([self.make_claim(provider, VCPU=3) for _ in range(2)])

    # Repeats and conflicts.

    def test_repeated_claim_has_no_effect(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=2)
        claim = self.make_claim(provider, VCPU=2)

        self.assertEqual([1, 0, 0], [store.claim([claim]) for _ in range(3)])

        self.assertHolds(store, claim)
        self.assertUsed(store, provider, 1, VCPU=2)

    def test_part_of_a_batch_may_be_a_repeat(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=4)
        claims = [self.make_claim(provider, VCPU=1) for _ in range(4)]

        self.assertEqual([2, 2], [
            store.claim(batch) for batch in (claims[1:3], claims)])

        self.assertUsed(store, provider, 4, VCPU=4)

    def test_different_claim_of_a_consumer_is_a_conflict(self) -> None:
        store = self.make_store()
        first, second = (
            self.make_provider(store, VCPU=8, DISK_GB=8) for _ in range(2))
        held = self.make_claim(first, VCPU=2)
        store.claim([held])
        consumer = held.consumer

        for rest in (
            [base.Claim(consumer, first, {'VCPU': 3})],
            [base.Claim(consumer, first, {'DISK_GB': 2})],
            [base.Claim(consumer, first, {'VCPU': 2, 'DISK_GB': 1})],
            [base.Claim(consumer, second, {'VCPU': 2})],
            [held, base.Claim(consumer, second, {'VCPU': 2})],
        ):
            with self.assertRaises(exception.ClaimConflict) as caught:
                store.claim([self.make_claim(second, VCPU=1), *rest])
            self.assertEqual(consumer, caught.exception.consumer)
            self.assertHolds(store, held)
            self.assertUsed(store, first, 1, VCPU=2)
            self.assertUsed(store, second, 0)

    def test_part_of_a_held_batch_is_a_conflict(self) -> None:
        store = self.make_store()
        consumer = _uuid()
        claims = [base.Claim(consumer, self.make_provider(store, VCPU=8),
                             {'VCPU': 1}) for _ in range(2)]
        store.claim(claims)

        self.assertRaises(exception.ClaimConflict, store.claim, claims[:1])

    def test_claim_with_wrong_values_is_invalid(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8)
        good, consumer = self.make_claim(provider, VCPU=1), _uuid()

        for bad in (
            base.Claim('', provider, {'VCPU': 1}),
            base.Claim('x' * 37, provider, {'VCPU': 1}),
            base.Claim('\x00', provider, {'VCPU': 1}),
            base.Claim(consumer, '\u00e9', {'VCPU': 1}),
            base.Claim(consumer, provider, {}),
            base.Claim(consumer, provider, {'VCPU': 0}),
            base.Claim(consumer, provider, {'VCPU': -1}),
            base.Claim(consumer, provider, {'VCPU': 2 ** 31}),
            base.Claim(consumer, provider, {'VCPU': True}),
            base.Claim(consumer, provider, {'VCPU': 1.5}),  # type: ignore
            base.Claim(consumer, provider, {"'": 1}),
            base.Claim(good.consumer, provider, {'VCPU': 1}),
        ):
            self.assertRaises(exception.InvalidField, store.claim, [good, bad])

        self.assertUsed(store, provider, 0)

    # Releases.

    def test_release_gives_back_all_claims_of_a_consumer(self) -> None:
        store = self.make_store()
        first, second = (self.make_provider(store, VCPU=8) for _ in range(2))
        consumer = _uuid()
        stays = self.make_claim(first, VCPU=1)
        store.claim([base.Claim(consumer, first, {'VCPU': 2}), stays,
                     base.Claim(consumer, second, {'VCPU': 3})])

        store.release([consumer])

        self.assertEqual({}, store.claims_of([consumer]))
        self.assertHolds(store, stays)
        self.assertUsed(store, first, 1, VCPU=1)
        self.assertUsed(store, second, 0)

    def test_release_of_unknown_consumers_has_no_effect(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8)
        claim = self.make_claim(provider, VCPU=2)
        store.claim([claim, self.make_claim(provider, VCPU=3)])

        for consumers in ([], [_uuid()], [claim.consumer, _uuid()],
                          [claim.consumer, claim.consumer]):
            store.release(consumers)

        self.assertUsed(store, provider, 1, VCPU=3)

    def test_released_room_can_be_taken(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=2)
        claim = self.make_claim(provider, VCPU=2)
        store.claim([claim])
        store.release([claim.consumer])

        store.claim([self.make_claim(provider, VCPU=1)])
        store.claim([base.Claim(claim.consumer, provider, {'VCPU': 1})])

        self.assertUsed(store, provider, 2, VCPU=2)


def _uuid() -> str:
    return str(uuid.uuid4())
