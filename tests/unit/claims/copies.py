# SPDX-License-Identifier: Apache-2.0
"""Stores for copies, and all of their contents."""

import itertools
import pathlib

from cellsched.claims import base
from cellsched.claims import copying
from cellsched.claims import sql
from cellsched.claims.sql import schema
from cellsched import clock
from cellsched.db import session
from cellsched.standalone import sqlite_template
from tests.unit import base as tests


class Stores:
    """Makes stores in files of a directory."""

    def __init__(self, directory):
        self._directory = pathlib.Path(directory)
        self._numbers = itertools.count()
        self._open = []

    def database(self, name=None):
        """Return a database; it is new unless it has a name."""
        path = self._directory / (name or f'{next(self._numbers)}.sqlite')
        if not path.exists():
            path.write_bytes(sqlite_template.content(schema.SCHEMA))
        self._open.append(session.Database(
            f'sqlite:///{path}', 'claims', {'sqlite_synchronous': False},
            clock=clock.Clock()))
        return self._open[-1]

    def store(self, name=None):
        return sql.SQLClaims(self.database(name))

    def close(self):
        for database in self._open:
            database.close()


def facts(store):
    """Return the contents of a store, without parts equal to missing ones."""
    consumers = store.consumers()
    usages = store.usages().usages
    return {
        'held': {
            consumer: {claim.provider: dict(claim.resources)
                       for claim in claims}
            for consumer, claims in store.claims_of(consumers).items()},
        'memberships': store.memberships(consumers),
        'inventories': {
            (provider, resource): has
            for provider, inventory in store.inventories().items()
            for resource, has in inventory.items() if has.capacity},
        'capacity': {
            (usage.provider, resource): amount for usage in usages
            for resource, amount in usage.capacity.items() if amount},
        'used': {
            (usage.provider, resource): amount for usage in usages
            for resource, amount in usage.used.items() if amount},
        'consumers': {usage.provider: usage.consumers for usage in usages},
    }


def fill(store):
    """Claim for five consumers on three providers."""
    for provider in 'pqr':
        store.set_inventory(provider, {
            'VCPU': base.Inventory(8, 1, 2.0, 1, 4, 1),
            'MEMORY_MB': base.Inventory(1024, max_unit=512,
                                        step_size=64)})
    store.claim([
        base.Claim(f'c{number}', provider,
                   {'VCPU': 1 + number % 2, 'MEMORY_MB': 64})
        for number in range(4) for provider in 'pq'])
    store.claim([base.Claim('c4', 'r', {'VCPU': 4})])


class CopyingTestCase(tests.TestCase):

    def setUp(self):
        super().setUp()
        self.directory = self.temporary_directory()
        self.stores = Stores(self.directory)
        self.addCleanup(self.stores.close)
        self.source = self.stores.store()
        self.target = self.stores.store()

    def copy(self, source=None, target=None, batch=2):
        copier = copying.ClaimCopier(
            source or self.source, target or self.target, batch)
        copier.check()
        return copier.copy()

    def differences(self):
        return [(each.kind, each.name) for each in copying.ClaimCopier(
            self.source, self.target, 2).compare()]

    def assertCopied(self):
        self.assertEqual(facts(self.source), facts(self.target))
        self.assertEqual([], self.differences())
