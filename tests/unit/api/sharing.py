# SPDX-License-Identifier: Apache-2.0
"""What tests of resource providers have in common."""

import futurist

from cellsched.api import aggregates
from cellsched.api import authorization
from cellsched.api import providers
from cellsched.cells import gather
from cellsched.claims import base as claims
from cellsched.claims import memory
from cellsched import context
from tests.unit.cells import base
from tests.unit.db import samples

ADMIN = context.admin()

DISK = {'DISK_GB': {'total': 1000}}


class Killed(BaseException):
    """The process ended here."""


class Store(memory.MemoryClaims):
    """A store before some call of which the process is killed.

    :ivar calls: how many calls are let through; None for all
    :ivar before_change: is called once, before the inventory is set
    :ivar after_change: is called once, after it was set and before usages
        are read
    :ivar told: inventories that were set
    """

    calls = None
    before_change = None
    after_change = None

    def __init__(self):
        super().__init__()
        self.told = []

    def set_inventory(self, provider, inventory):
        meanwhile, self.before_change = self.before_change, None
        if meanwhile is not None:
            meanwhile()
        self._pass()
        self.told.append(inventory)
        super().set_inventory(provider, inventory)
        self._pass()

    def usages(self, since=None, providers=None):
        self._pass()
        meanwhile = self.after_change
        if meanwhile is not None and self.told[-1:] == [{}]:
            self.after_change = None
            meanwhile()
        return super().usages(since, providers)

    def _pass(self):
        if self.calls is not None:
            if not self.calls:
                raise Killed()
            self.calls -= 1


class TestCase(base.TestCase):
    """A test of resource providers, with an aggregate ``racks``."""

    def setUp(self):
        super().setUp()
        self.add_cell0()
        self.store = Store()
        self.aggregates = aggregates.Aggregates(
            authorization.LocalOperator(), self.database, self.targets,
            self.clock, 'nova')
        self.providers = providers.Providers(
            authorization.LocalOperator(), self.database, self.cells,
            gather.Gatherer(futurist.SynchronousExecutor(), self.targets,
                            self.clock, 30),
            lambda: self.store, self.clock)
        self.aggregates.create(ADMIN, 'racks')

    def create(self, name='pool', inventories=DISK, **more):
        return self.providers.create(
            ADMIN, name, 'racks', inventories, **more)

    def update(self, name='pool', **changes):
        return self.providers.update(ADMIN, name, **changes)

    def delete(self, name='pool'):
        self.providers.delete(ADMIN, name)

    def get(self, name='pool'):
        return self.providers.get(ADMIN, name)

    def named(self, **which):
        return [each.name
                for each in self.providers.list(ADMIN, **which).providers]

    def claim(self, provider, **amounts):
        [consumer] = samples.uuids(1)
        self.store.claim([claims.Claim(consumer, provider, amounts)])
        return consumer

    def capacity(self, uuid):
        [usage] = self.store.usages(providers=[uuid]).usages
        return {name: amount for name, amount in usage.capacity.items()
                if amount}
