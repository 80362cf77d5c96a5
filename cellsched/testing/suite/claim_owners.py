# SPDX-License-Identifier: Apache-2.0
"""Tests of the projects and users of claims."""

from collections.abc import Iterable
import dataclasses
from typing import Any
import uuid

from cellsched.claims import base
from cellsched import exception
from cellsched.testing.suite import claim_cases

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

    def test_project_and_user_of_a_claim_are_told(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8, DISK_GB=8, MEMORY_MB=8)
        for owner in (('a', 'b'), ('a', None), (None, 'b'), (None, None)):
            claim = self.make_owned(
                provider, owner, VCPU=1, DISK_GB=1, MEMORY_MB=1)
            store.claim([claim])

            self.assertOwned(store, [claim])
            self.assertHolds(store, claim)

    def test_they_are_told_with_what_is_held_of_each_provider(self) -> None:
        store = self.make_store()
        consumer = str(uuid.uuid4())
        claims = [self.make_owned(
            self.make_provider(store, VCPU=8, DISK_GB=8), ('a', 'b'),
            consumer, VCPU=1, DISK_GB=2) for _ in range(3)]

        store.claim(claims)

        self.assertOwned(store, claims)

    def test_claims_of_a_batch_may_be_for_different_ones(self) -> None:
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

    def test_members_of_server_groups_have_them_too(self) -> None:
        store = self.make_store()
        self.need(store, base.Capability.GROUPS)
        joins = base.Membership(str(uuid.uuid4()), 'h', base.AFFINITY)
        claim = dataclasses.replace(self.make_owned(
            self.make_provider(store, VCPU=8), ('a', 'b')), group=joins)

        store.claim([claim])

        self.assertOwned(store, [claim])

    def test_repeat_for_others_or_nobody_changes_nothing(self) -> None:
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

    def test_they_follow_a_transfer(self) -> None:
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

    def test_they_go_with_a_release(self) -> None:
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

    def test_other_processes_are_told_them(self) -> None:
        store = self.make_store()
        self.need(store, base.Capability.SHARED)
        claim = self.make_owned(
            self.make_provider(store, VCPU=8), ('a', 'b'))
        store.claim([claim])

        self.assertOwned(self.make_peer(store), [claim])

    def test_ids_are_kept_as_they_are(self) -> None:
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

    def test_what_is_no_id_is_invalid(self) -> None:
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

    def test_consumer_is_for_one_project_and_user(self) -> None:
        store = self.make_store()
        first, second = (
            self.make_provider(store, VCPU=8) for _ in range(2))
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
