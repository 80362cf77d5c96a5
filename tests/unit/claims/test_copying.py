# SPDX-License-Identifier: Apache-2.0
"""Copies of claims from one store to another."""

import itertools
import tempfile

import hypothesis
from hypothesis import strategies

from cellsched.claims import base
from cellsched.claims import copying
from cellsched.claims import memory
from cellsched.claims import sql
from cellsched import exception
from cellsched.objects import resources
from tests import profile
from tests.unit import base as tests
from tests.unit.claims import copies
from tests.unit.claims import model

_MOST = resources.AMOUNT_MAX


class Killed(BaseException):
    """Ends a copy like a signal: nothing after it runs."""


class MortalClaims(sql.SQLClaims):
    """A store whose process is killed before one of its writes."""

    def __init__(self, database, lives):
        super().__init__(database)
        self._lives = lives

    def claim(self, claims):
        self._live()
        return super().claim(claims)

    def set_inventory(self, provider, inventory):
        self._live()
        super().set_inventory(provider, inventory)

    def _live(self):
        if not self._lives:
            raise Killed()
        self._lives -= 1


class Groupless(memory.MemoryClaims):
    """A store without server groups."""

    capabilities = memory.MemoryClaims.capabilities - {base.Capability.GROUPS}

    def memberships(self, consumers):
        return {}


class Silent(memory.MemoryClaims):
    """A store that does not list memberships."""

    memberships = base.ClaimStore.memberships


class TestCopy(copies.CopyingTestCase):

    def test_all_is_copied_and_counted(self):
        copies.fill(self.source)
        self.source.set_inventory('empty', {})

        self.assertEqual(copying.CopyResult(4, 5, 9, 5, 0), self.copy())

        self.assertCopied()

    def test_unreadable_record_of_the_source_is_refused(self):
        source = memory.MemoryClaims()
        source.problems = lambda: [
            base.StoreProblem('c/a', 'is junk', 'restore it'),
            base.StoreProblem('g/a', 'has a member too many')]

        error = self.assertRaises(
            exception.ClaimsNotCopied, copying.ClaimCopier(
                source, memory.MemoryClaims()).check)

        self.assertIn('c/a: is junk', str(error))
        self.assertNotIn('g/a', str(error))

    def test_empty_store_is_copied(self):
        self.assertEqual(copying.CopyResult(0, 0, 0, 0, 0), self.copy())

        self.assertCopied()

    def test_source_may_be_another_kind_of_store(self):
        self.source = memory.MemoryClaims()
        copies.fill(self.source)

        self.copy()

        self.assertCopied()

    def test_repeated_copy_changes_no_claim(self):
        copies.fill(self.source)
        self.copy()
        token = self.target.usages().token

        self.assertEqual(copying.CopyResult(3, 5, 9, 0, 0), self.copy())

        self.assertEqual([], self.target.usages(token).usages)

    def test_members_stay_in_groups_beyond_the_policy(self):
        copies.fill(self.source)
        for number, host in enumerate(('h1', 'h1', 'h2')):
            self.source.claim([base.Claim(
                f'm{number}', 'p', {'VCPU': 1}, base.Membership(
                    'g', host, base.ANTI_AFFINITY, 2, 'moved'))])

        self.copy()

        self.assertCopied()
        self.assertEqual(3, len(self.target.memberships(
            self.target.consumers())))
        self.assertRaises(
            exception.GroupPolicyViolated, self.target.claim,
            [base.Claim('late', 'p', {'VCPU': 1}, base.Membership(
                'g', 'h2', base.ANTI_AFFINITY))])

    def test_progress_adds_up_to_the_size(self):
        copies.fill(self.source)
        copier = copying.ClaimCopier(self.source, self.target, 2)
        for work in copier.copy, lambda done: list(copier.compare(done)):
            done = []

            work(done.append)

            self.assertEqual(copier.size(), sum(done))


class TestOvercommit(copies.CopyingTestCase):

    def shrink(self, **has):
        copies.fill(self.source)
        self.source.set_inventory('p', has)

    def test_claims_beyond_the_inventory_are_copied(self):
        for has, full in (
                ({'VCPU': base.Inventory(2),
                  'MEMORY_MB': base.Inventory(1024)}, 'VCPU'),
                ({'VCPU': base.Inventory(20)}, 'MEMORY_MB'), ({}, 'VCPU'),
                ({'VCPU': base.Inventory(20, min_unit=2, max_unit=8),
                  'MEMORY_MB': base.Inventory(1024, step_size=100)}, 'VCPU')):
            with self.subTest(has=has):
                self.source, self.target = (
                    self.stores.store() for _ in range(2))
                self.shrink(**has)

                self.copy()

                self.assertCopied()
                self.assertRaises(exception.ClaimRefused, self.target.claim, [
                    base.Claim('late', 'p', {full: 1})])

    def test_shrunk_providers_are_copied_in_a_batch(self):
        copies.fill(self.source)
        for provider in 'pqr':
            self.source.set_inventory(
                provider, {'VCPU': base.Inventory(1)})

        self.copy(batch=100)

        self.assertCopied()

    def test_claims_above_the_largest_total_are_copied(self):
        self.source.set_inventory(
            'p', {'DISK_GB': base.Inventory(_MOST, allocation_ratio=3.0)})
        self.source.claim([base.Claim(f'c{number}', 'p', {'DISK_GB': _MOST})
                           for number in range(3)])
        self.source.set_inventory('p', {'DISK_GB': base.Inventory(1)})

        self.copy()

        self.assertCopied()

    def test_room_is_never_more_than_is_taken(self):
        reported = []

        class Watched(sql.SQLClaims):

            def claim(self, claims):
                try:
                    return super().claim(claims)
                finally:
                    reported.extend(self.usages(providers=['p']).usages)

        self.shrink(VCPU=base.Inventory(2), MEMORY_MB=base.Inventory(8))

        self.copy(target=Watched(self.stores.database()))

        self.assertEqual({True, False}, {
            usage.used['VCPU'] > 2 for usage in reported})
        for usage in reported:
            for resource, least in (('VCPU', 2), ('MEMORY_MB', 8)):
                self.assertLessEqual(usage.capacity[resource], max(
                    usage.used[resource], least))

    def test_refusal_by_the_target_restores_its_inventories(self):
        class Full(memory.MemoryClaims):

            def claim(self, claims):
                raise exception.ClaimRefused(
                    provider='p', resource='VCPU', amount=1, consumer='c')

        self.shrink(VCPU=base.Inventory(2))
        full = Full()

        self.assertRaises(exception.ClaimRefused, self.copy, target=full)

        # It says what is true again.
        self.assertEqual(self.source.inventories(), full.inventories())


class TestKilledCopy(copies.CopyingTestCase):

    def test_copy_killed_at_any_write_can_be_repeated(self):
        copies.fill(self.source)
        self.source.set_inventory('p', {'VCPU': base.Inventory(1)})
        before = copies.facts(self.source)
        for lives in itertools.count():
            name = f'killed{lives}'
            self.target = self.stores.store(name)
            try:
                self.copy(target=MortalClaims(
                    self.stores.database(name), lives))
            except Killed:
                self.copy()
                self.assertCopied()
            else:
                break
        # Three providers, and three batches of which two are refused.
        self.assertEqual(3 + 3 + 2 * 3, lives)
        self.assertCopied()
        self.assertEqual(before, copies.facts(self.source))


class TestIncompleteStores(copies.CopyingTestCase):

    def setUp(self):
        super().setUp()
        copies.fill(self.source)
        self.source.claim([base.Claim(
            'm', 'p', {'VCPU': 1}, base.Membership('g', 'h', base.AFFINITY))])

    def test_memberships_unsupported_by_the_target_are_counted(self):
        self.target = Groupless()

        self.assertEqual(1, self.copy().memberships_lost)

        self.assertEqual([], self.differences())

    def test_store_without_a_list_of_memberships_is_refused(self):
        for source, target in ((Silent(), self.target),
                               (self.source, Silent())):
            with self.assertRaises(
                    exception.ConfigurationInvalid) as caught:
                self.copy(source, target)
            self.assertIn('Silent', str(caught.exception))

    def test_batch_has_bounds(self):
        for batch in 0, -1, copying.BATCH_MAX + 1:
            with self.assertRaises(exception.InvalidField) as caught:
                self.copy(batch=batch)
            self.assertIn(f'{batch} is out of range; expected 1 to '
                          f'{copying.BATCH_MAX}', str(caught.exception))


class TestAnyStore(tests.TestCase):

    @hypothesis.given(
        calls=model.CALLS, batch=strategies.integers(1, 4),
        lives=strategies.integers(0, 20))
    @hypothesis.settings(
        profile.few_examples,
        suppress_health_check=profile.SHARED)
    def test_killed_copy_of_any_claims_can_be_repeated(
            self, calls, batch, lives):
        source = memory.MemoryClaims()
        _make(source, calls)
        with tempfile.TemporaryDirectory() as directory:
            stores = copies.Stores(directory)
            try:
                # The second time it is one database to another.
                for name in 'first', 'second':
                    copied = _copied(stores, name, source, batch, lives)
                    self.assertEqual(
                        copies.facts(source), copies.facts(copied))
                    source = copied
            finally:
                stores.close()


def _copied(stores, name, source, batch, lives):
    """Return a copy that is killed once before it is complete."""
    target = stores.store(name)
    for each in MortalClaims(stores.database(name), lives), target:
        copier = copying.ClaimCopier(source, each, batch)
        copier.check()
        try:
            copier.copy()
        except Killed:
            continue
    assert not [*copier.compare()]
    return target


def _make(store, calls):
    """Make calls of a store, some of which are refused."""
    for name, *args in calls:
        if name == 'claim':
            claims, joins, owners = args
            groups = [each and base.Membership(
                each[0], f'h{each[2]}', each[0], each[1]) for each in joins]
            try:
                store.claim([
                    base.Claim(f'c{consumer}', f'p{provider}', amounts,
                               groups[consumer], *owners[consumer])
                    for consumer, provider, amounts in claims])
            except (exception.ClaimConflict, exception.ClaimRefused):
                pass
        elif name == 'release':
            store.release(f'c{number}' for number in args[0])
        elif name == 'transfer':
            store.transfer(*(f'c{number}' for number in args[0]))
        elif name == 'set_inventory':
            store.set_inventory(f'p{args[0]}', args[1])
