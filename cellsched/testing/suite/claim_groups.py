# SPDX-License-Identifier: Apache-2.0
"""Tests of claim stores with the capability ``GROUPS``."""

from collections.abc import Sequence
import dataclasses
import random
import uuid

from cellsched.claims import base
from cellsched import exception
from cellsched.testing.suite import claim_cases

_THREADS = 16
_HOSTS = ('h0', 'h1', 'h2', 'h3')
_ROUNDS = 6


class GroupCase(claim_cases.ClaimStoreCase):
    """Makes claims of members of server groups."""

    def make_grouping(self) -> base.ClaimStore:
        """Return a store with a provider for each of some hosts."""
        store = self.make_store()
        self.need(store, base.Capability.GROUPS)
        self.hosts = {
            host: self.make_provider(store, VCPU=100) for host in _HOSTS}
        return store

    def member(
        self, group: str, host: str, policy: str, most: int = 1,
        member: str = '', consumer: str = '',
    ) -> base.Claim:
        """Return the claim of a member of a group on a host."""
        return base.Claim(
            consumer or str(uuid.uuid4()), self.hosts[host], {'VCPU': 1},
            base.Membership(group, host, policy, most, member))

    def assertViolates(
        self, store: base.ClaimStore, claims: Sequence[base.Claim],
        claim: base.Claim, *hosts: str,
    ) -> None:
        """Check the error of a batch that violates a policy."""
        with self.assertRaises(exception.GroupPolicyViolated) as caught:
            store.claim(claims)
        found, joins = caught.exception, claim.group
        assert joins is not None
        self.assertEqual(
            (claim.consumer, claim.provider, joins.group, joins.policy,
             list(hosts)),
            (found.consumer, found.provider, found.group, found.policy,
             found.hosts))
        for host in _HOSTS:
            self.assertNotIn(host, str(found))
        self.assertEqual({}, store.claims_of(each.consumer for each in claims))


class ClaimGroups(GroupCase):
    """Tests of memberships, one at a time and concurrent."""

    # One at a time.

    def test_anti_affinity_refuses_a_second_member_on_the_host(self) -> None:
        store, group = self.make_grouping(), str(uuid.uuid4())
        store.claim([self.member(group, 'h1', 'anti-affinity')])

        late = self.member(group, 'h1', 'anti-affinity')
        self.assertViolates(store, [late], late, 'h1')

        store.claim([self.member(group, 'h2', 'anti-affinity'),
                     self.member(str(uuid.uuid4()), 'h1', 'anti-affinity'),
                     self.make_claim(self.hosts['h1'], VCPU=1)])
        self.assertUsed(store, self.hosts['h1'], 3, VCPU=3)

    def test_anti_affinity_may_allow_several_on_a_host(self) -> None:
        store, group = self.make_grouping(), str(uuid.uuid4())
        store.claim([self.member(group, 'h1', 'anti-affinity', 2)])
        store.claim([self.member(group, 'h1', 'anti-affinity', 2),
                     self.member(group, 'h2', 'anti-affinity', 2)])

        late = self.member(group, 'h1', 'anti-affinity', 2)
        self.assertViolates(store, [late], late, 'h1')

    def test_affinity_keeps_further_members_on_the_host(self) -> None:
        store, group = self.make_grouping(), str(uuid.uuid4())
        store.claim([self.member(group, 'h1', 'affinity') for _ in range(2)])

        late = self.member(group, 'h2', 'affinity')
        self.assertViolates(store, [late], late, 'h1')

        store.claim([self.member(group, 'h1', 'affinity')])

    def test_members_on_lost_hosts_do_not_bind_the_affinity(self) -> None:
        store, group = self.make_grouping(), str(uuid.uuid4())
        store.claim([self.member(group, 'h1', 'affinity') for _ in range(2)])

        def follower(
            host: str, policy: str, *lost_hosts: str
        ) -> base.Claim:
            claim = self.member(group, host, policy)
            assert claim.group is not None
            return dataclasses.replace(claim, group=dataclasses.replace(
                claim.group, lost_hosts=frozenset(lost_hosts)))

        late = follower('h2', 'affinity', 'h3')
        self.assertViolates(store, [late], late, 'h1')
        store.claim([follower('h2', 'affinity', 'h1', 'h3')])

        # The first one that moved binds the others.
        late = follower('h3', 'affinity', 'h1')
        self.assertViolates(store, [late], late, 'h2')
        store.claim([follower('h2', 'affinity', 'h1')])
        # Another policy counts them all the same.
        late = follower('h1', 'anti-affinity', 'h1')
        self.assertViolates(store, [late], late, 'h1', 'h2')

    def test_members_of_a_batch_count_for_each_other(self) -> None:
        store, group = self.make_grouping(), str(uuid.uuid4())
        apart = [self.member(group, host, 'anti-affinity')
                 for host in ('h1', 'h2', 'h1')]
        self.assertViolates(store, apart, apart[2])
        near = [self.member(group, host, 'affinity')
                for host in ('h1', 'h1', 'h2')]
        self.assertViolates(store, near, near[2])
        self.assertUsed(store, self.hosts['h1'], 0)

        store.claim(apart[:2])

    def test_repeated_claim_of_a_member_has_no_effect(self) -> None:
        store, group = self.make_grouping(), str(uuid.uuid4())
        claims = [self.member(group, host, 'anti-affinity')
                  for host in ('h1', 'h2')]

        self.assertEqual([1, 1, 0], [
            store.claim(batch) for batch in (claims[:1], claims, claims)])

        self.assertEqual(
            {claim.consumer for claim in claims}, {*self.consumers(store)})
        late = self.member(group, 'h2', 'anti-affinity')
        self.assertViolates(store, [late], late, 'h1', 'h2')

    def test_claims_are_returned_without_membership(self) -> None:
        store = self.make_grouping()
        claim = self.member(str(uuid.uuid4()), 'h1', 'affinity')
        store.claim([claim])

        [held] = store.claims_of([claim.consumer])[claim.consumer]
        self.assertIsNone(held.group)

    def test_memberships_are_returned_of_consumers_with_claims(self) -> None:
        store, group = self.make_grouping(), str(uuid.uuid4())
        moved, other = str(uuid.uuid4()), str(uuid.uuid4())
        first = self.member(group, 'h1', 'anti-affinity')
        second = self.member(group, 'h2', 'anti-affinity', 3, member=moved)
        alone = self.make_claim(self.hosts['h3'], VCPU=1)
        remaining = self.member(group, 'h3', 'anti-affinity')
        everybody = [claim.consumer
                     for claim in (first, second, alone, remaining)]
        store.claim([first, second, alone, remaining])
        store.release([remaining.consumer])

        self.assertEqual(
            {first.consumer: base.joined(group, 'h1', first.consumer),
             second.consumer: base.joined(group, 'h2', moved)},
            store.memberships([*everybody, other]))

        store.transfer(second.consumer, other)
        self.assertEqual({other: base.joined(group, 'h2', moved)},
                         store.memberships([second.consumer, other]))

    def test_members_of_a_renamed_host_count_under_its_name(self) -> None:
        store, group = self.make_grouping(), str(uuid.uuid4())
        moved = self.member(
            group, 'h1', 'anti-affinity', member=str(uuid.uuid4()))
        alone = self.make_claim(self.hosts['h1'], VCPU=1)
        other = self.member(str(uuid.uuid4()), 'h2', 'anti-affinity')
        store.claim([moved, alone, other])

        for _ in range(2):
            store.rename_host('h1', 'h3')

        joins, kept = moved.group, other.group
        assert joins is not None and kept is not None
        self.assertEqual(
            {moved.consumer: base.joined(group, 'h3', joins.member),
             other.consumer: base.joined(kept.group, 'h2', other.consumer)},
            store.memberships(
                [moved.consumer, alone.consumer, other.consumer]))
        late = self.member(group, 'h3', 'anti-affinity')
        self.assertViolates(store, [late], late, 'h3')
        store.claim([self.member(group, 'h1', 'anti-affinity')])
        self.assertUsed(store, self.hosts['h1'], 3, VCPU=3)
        store.release([moved.consumer])
        store.claim([late])

    def test_joined_membership_is_accepted_despite_the_policy(self) -> None:
        store, group = self.make_grouping(), str(uuid.uuid4())
        store.claim([self.member(group, 'h1', 'anti-affinity')])
        late = self.make_claim(self.hosts['h1'], VCPU=1)

        store.claim([dataclasses.replace(
            late, group=base.joined(group, 'h1', late.consumer))])

        after = self.member(group, 'h1', 'anti-affinity', 2)
        self.assertViolates(store, [after], after, 'h1')

    def test_member_with_a_different_claim_is_a_conflict(self) -> None:
        store, group = self.make_grouping(), str(uuid.uuid4())
        first = self.member(group, 'h1', 'affinity')
        store.claim([first, self.member(group, 'h1', 'affinity')])

        self.assertRaises(exception.ClaimConflict, store.claim, [self.member(
            group, 'h2', 'affinity', consumer=first.consumer)])

    def test_consumer_of_several_providers_is_a_single_member(self) -> None:
        store, group = self.make_grouping(), str(uuid.uuid4())
        first = self.member(group, 'h1', 'anti-affinity')
        second = base.Claim(
            first.consumer, self.make_provider(store, VCPU=1), {'VCPU': 1},
            first.group)

        self.assertEqual(2, store.claim([first, second]))

        late = self.member(group, 'h1', 'anti-affinity')
        self.assertViolates(store, [late], late, 'h1')

    def test_member_without_room_is_refused_and_is_none(self) -> None:
        store, group = self.make_grouping(), str(uuid.uuid4())
        store.claim([self.make_claim(self.hosts['h1'], VCPU=100)])
        claim = self.member(group, 'h1', 'affinity')
        self.assertRefused(store, [claim], claim, 'VCPU')

        store.claim([self.member(group, 'h2', 'affinity')])

    def test_released_consumer_leaves_the_group(self) -> None:
        store, group = self.make_grouping(), str(uuid.uuid4())
        for policy in ('anti-affinity', 'affinity'):
            for host in ('h1', 'h2'):
                claims = [self.member(group, host, policy, 2)
                          for _ in range(2)]
                store.claim(claims)
                store.release([claim.consumer for claim in claims])
        self.assertEqual([], self.consumers(store))

    def test_moved_member_does_not_conflict_with_its_old_host(self) -> None:
        store = self.make_grouping()
        for policy in base.HARD_POLICIES:
            group, moved = str(uuid.uuid4()), str(uuid.uuid4())
            store.claim([self.member(group, 'h1', policy, consumer=moved)])

            store.claim([self.member(group, 'h2', policy, member=moved)])

            # During a migration it is the same member in two places.
            late = self.member(group, 'h1', policy)
            self.assertViolates(store, [late], late, 'h1', 'h2')

    def test_member_is_in_its_own_way_in_no_name(self) -> None:
        store = self.make_grouping()
        for policy, existing in (('anti-affinity', 'h1'), ('affinity', 'h2')):
            group, moved = str(uuid.uuid4()), str(uuid.uuid4())
            store.claim([self.member(group, 'h1', policy, member=moved)])

            store.claim([self.member(group, existing, policy, consumer=moved)])

    def test_membership_follows_a_transfer(self) -> None:
        store = self.make_grouping()
        for policy, free, closed in (
            ('anti-affinity', 'h1', 'h2'), ('affinity', 'h2', 'h1')):
            group = str(uuid.uuid4())
            before = self.member(group, 'h1', policy)
            after = self.member(group, 'h2', policy, member=before.consumer)
            store.claim([before])
            store.claim([after])

            store.transfer(after.consumer, before.consumer)

            late = self.member(group, closed, policy)
            self.assertViolates(store, [late], late, 'h2')
            store.claim([self.member(group, free, policy)])
            # It is the same member as before.
            store.claim([self.member(group, free, policy, 2, before.consumer)])

    def test_transferred_membership_ends_with_a_release(self) -> None:
        store, group = self.make_grouping(), str(uuid.uuid4())
        before = self.member(group, 'h1', 'anti-affinity')
        store.claim([before])
        store.transfer(before.consumer, after := str(uuid.uuid4()))

        store.release([after])

        store.claim([self.member(group, 'h1', 'anti-affinity')])

    def test_transfer_from_outside_the_group_ends_membership(self) -> None:
        store, group = self.make_grouping(), str(uuid.uuid4())
        before = self.member(group, 'h1', 'anti-affinity')
        after = self.make_claim(self.hosts['h1'], VCPU=1)
        store.claim([before, after])

        store.transfer(after.consumer, before.consumer)

        store.claim([self.member(group, 'h1', 'anti-affinity')])

    # Races.

    def test_racing_members_of_anti_affinity_get_a_host_each(self) -> None:
        store = self.make_grouping()
        for _ in range(_ROUNDS):
            group = str(uuid.uuid4())
            claims = [self.member(group, _HOSTS[number % 4], 'anti-affinity')
                      for number in range(_THREADS)]

            winners = self.winners(store, claims)

            self.assertEqual(
                {self.hosts[host] for host in _HOSTS},
                {claim.provider for claim in winners})
            self.assertEqual(len(_HOSTS), len(winners))

    def test_racing_members_of_affinity_get_the_same_host(self) -> None:
        store = self.make_grouping()
        for _ in range(_ROUNDS):
            group = str(uuid.uuid4())
            claims = [self.member(group, _HOSTS[number % 4], 'affinity')
                      for number in range(_THREADS)]

            winners = self.winners(store, claims)

            self.assertEqual(1, len({claim.provider for claim in winners}))
            self.assertEqual(_THREADS // 4, len(winners))

    def winners(
        self, store: base.ClaimStore, claims: Sequence[base.Claim]
    ) -> list[base.Claim]:
        """Return the claims that succeed; all others violate the policy."""
        outcomes = self.race(store, [
            lambda it, claim=claim: it.claim([claim])  # type: ignore[misc]
            for claim in claims])
        for outcome in outcomes:
            if outcome is not None:
                self.assertIsInstance(outcome, exception.GroupPolicyViolated)
        won = [claim for claim, outcome in zip(claims, outcomes)
               if outcome is None]
        self.assertEqual(
            {claim.consumer for claim in won},
            set(store.claims_of(claim.consumer for claim in claims)))
        return won

    def test_concurrent_claims_and_releases_keep_group_policies(self) -> None:
        """Concurrent batches of two groups, and releases."""
        store = self.make_grouping()
        apart, near = str(uuid.uuid4()), str(uuid.uuid4())
        claims: list[base.Claim] = []

        def churn(number: int) -> claim_cases.Call:
            chance = random.Random(number)

            def call(it: base.ClaimStore) -> None:
                for _ in range(4):
                    batch = [
                        self.member(apart, chance.choice(_HOSTS),
                                    'anti-affinity'),
                        self.member(near, chance.choice(_HOSTS), 'affinity')]
                    chance.shuffle(batch)
                    claims.extend(batch)
                    try:
                        it.claim(batch)
                    except exception.GroupPolicyViolated:
                        continue
                    if chance.random() < 0.6:
                        it.release([claim.consumer for claim in batch])
            return call

        outcomes = self.race(
            store, [churn(number) for number in range(_THREADS)])

        self.assertEqual([None] * _THREADS, outcomes)
        existing = store.claims_of(claim.consumer for claim in claims)
        hosts: dict[str, list[str]] = {apart: [], near: []}
        for claim in claims:
            if claim.consumer in existing:
                assert claim.group is not None
                hosts[claim.group.group].append(claim.group.host)
        self.assertEqual(len(set(hosts[apart])), len(hosts[apart]))
        self.assertLessEqual(len(set(hosts[near])), 1)
        # Only members with claims are counted.
        store.release(existing)
        store.claim([self.member(apart, host, 'anti-affinity')
                     for host in _HOSTS])
        store.claim([self.member(near, 'h0', 'affinity')])
