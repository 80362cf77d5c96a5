# SPDX-License-Identifier: Apache-2.0
"""Copies from each kind of store to the next, with models of the servers."""

import uuid

from cellsched.claims import base
from cellsched.claims import copying
from cellsched.simulator import servers
from tests.unit.claims import copies

PROVIDERS = [str(uuid.UUID(int=number)) for number in range(1, 5)]
CONSUMERS = [str(uuid.UUID(int=100 + number)) for number in range(12)]
GROUP = str(uuid.UUID(int=1000))


def fill(store):
    """Claim for twelve consumers on four providers, and reduce one of them."""
    for provider in PROVIDERS:
        store.set_inventory(provider, {
            'VCPU': base.Inventory(16, 1, 2.0, 1, 4, 1),
            'MEMORY_MB': base.Inventory(4096, max_unit=512, step_size=64)})
    for number, consumer in enumerate(CONSUMERS):
        store.claim([base.Claim(
            consumer, provider, {'VCPU': 1 + number % 4, 'MEMORY_MB': 64},
            base.Membership(GROUP, f'h{number}', base.ANTI_AFFINITY)
            if number < 3 else None,
            f'project-{number % 2}' if number % 3 else None,
            f'user-{number}' if number % 3 else None)
            for provider in PROVIDERS[number % 4:number % 4 + 2]])
    store.set_inventory(PROVIDERS[0], {'VCPU': base.Inventory(3)})


class TestEachKind(copies.CopyingTestCase):

    def setUp(self):
        super().setUp()
        fill(self.source)
        self.servers = {
            name: kind.direct()
            for name, kind in servers.KINDS.items()}

    def carry(self, names):
        """Copy from the first store to the last through all stores between."""
        remaining, source = [], self.source
        for target in (*(self.servers[name] for name in names), self.target):
            copier = copying.ClaimCopier(source, target, 5)
            copier.check()
            copied = copier.copy()
            self.assertEqual(12, copied.consumers)
            self.assertEqual([], [*copier.compare()])
            remaining.append(copied.memberships_lost)
            source = target
        return remaining

    def owners(self, store):
        return {(consumer, claim.project_id, claim.user_id)
                for consumer, claims in store.claims_of(CONSUMERS).items()
                for claim in claims}

    def test_copy_through_etcd_keeps_claims_and_groups(self):
        self.assertEqual([0, 0], self.carry(['etcd']))

        self.assertCopied()
        self.assertEqual(self.owners(self.source), self.owners(self.target))

    def test_copy_through_cassandra_and_placement_loses_groups_only(self):
        self.assertEqual([3, 0, 0, 0],
                         self.carry(['cassandra', 'placement', 'etcd']))

        self.assertEqual(self.owners(self.source), self.owners(self.target))
        self.assertEqual({}, self.target.memberships(CONSUMERS))
        text = [copies.facts(store) for store in (self.source, self.target)]
        for what in 'held', 'used', 'capacity', 'consumers':
            self.assertEqual(text[0][what], text[1][what])
