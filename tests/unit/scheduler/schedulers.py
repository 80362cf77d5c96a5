# SPDX-License-Identifier: Apache-2.0
"""Schedulers of one deployment, and a store that can refuse them."""

import random

import numpy as np

from cellsched.claims import base as claims
from cellsched.claims import memory
from cellsched import exception
from cellsched.host_manager import manager
from cellsched import migrations
from cellsched.scheduler.decision import mandatory_stages
from cellsched.scheduler.decision import pipeline
from cellsched.scheduler.selection.claims import ClaimQueue
from cellsched.scheduler.selection import placer
from cellsched.scheduler.selection import selector
from cellsched.testing import builders
from tests.unit import base
from tests.unit.db import samples
from tests.unit.hosts import world
from tests.unit.scheduler import toys

#: A loader that uses this reads once and then only when it is told to.
FOR_EVER_S = 1e9

ATTEMPTS_MAX = 4


class Claims(memory.MemoryClaims):
    """A store that says what it is asked, and refuses what it is told to."""

    def __init__(self):
        super().__init__()
        self.batches = []
        self.refuses = ()
        #: Providers whose rows another session has locked.
        self.locked = ()
        self.failure = None
        #: What happens before the next claim.
        self.before = lambda: None
        #: What happens after the next one, before who claims hears of it.
        self.after = lambda: None

    # They claim one batch after the other, by the method below.
    claim_any = claims.ClaimStore.claim_any

    def claim(self, claims):
        before, self.before = self.before, lambda: None
        before()
        self.batches.append(claims)
        if self.failure is not None:
            raise self.failure
        locked = {claim.provider for claim in claims}.intersection(self.locked)
        if locked:
            raise exception.ClaimBusy(
                schema='claims', providers=sorted(locked), reason='locked')
        for claim in claims:
            if claim.provider in self.refuses:
                raise exception.ClaimRefused(
                    provider=claim.provider, resource='VCPU', amount=1,
                    consumer=claim.consumer)
        after, self.after = self.after, lambda: None
        new = super().claim(claims)
        after()
        return new


class World(world.World):

    def _setUp(self):
        super()._setUp()
        self.claims = Claims()
        #: What was decided: request, instances and decision.
        self.records = []
        #: On whose behalf, decision by decision.
        self.contexts = []

    def placer(self, interval_s=FOR_EVER_S, kind=manager.HostManager,
               filters=(), weighers=None, attempts_max=ATTEMPTS_MAX,
               policy=None, first=(), slow_plugin_s=1e9,
               ignores_demands=False):
        """Return another scheduler's placer, and its loader."""
        made = self.loader(interval_s, kind)
        if weighers is None:
            # In which order cells are read is chance.
            weighers = [liking()]
        return placer.Placer(
            made, pipeline.Pipeline(filters, weighers, first),
            ClaimQueue(self.claims, self.clock), self.clock,
            policy or selector.SelectionPolicy(random.Random(0)),
            attempts_max, self.record, slow_plugin_s=slow_plugin_s,
            ignores_demands=ignores_demands), made

    def record(self, context, request, uuids, decision):
        self.records.append((request, uuids, decision))
        self.contexts.append(context)


def liking(*names):
    """Return a weigher that likes hosts in this order, others by name."""
    def score(hosts):
        order = [*names, *sorted(set(hosts['host']) - {*names})]
        return -np.array([float(order.index(host))
                          for host in hosts['host']])
    return toys.Weigher(score)


def hosts(places):
    """Return the hosts that were chosen for each instance."""
    return [[each.service_host for each in place] for place in places]


def taken(table):
    """Return what is left on each host, and how many servers it has."""
    return {host: (int(room), int(count)) for host, room, count in zip(
        table['host'], table['available:VCPU'], table['num_instances'])}


def destinations():
    """Return the stages that read where a request may go."""
    return mandatory_stages.destination_stages(FOR_EVER_S)


def request(**wishes):
    """Return a request that takes all CPUs of a host."""
    return builders.request(
        **{'vcpus': 4, 'memory_mb': 1, 'root_gb': 0, **wishes})


class PlacingTestCase(base.TestCase):

    #: CPUs of hosts by name; those with an a are in cell1, others in cell2.
    hosts = {'a1': 4, 'a2': 4, 'a3': 4, 'b1': 4, 'b2': 4}

    def setUp(self):
        super().setUp()
        self.world = self.useFixture(World('cell1', 'cell2'))
        for host, vcpus in self.hosts.items():
            self.world.add_host(
                'cell1' if host[0] == 'a' else 'cell2', host, vcpus=vcpus)
        self.restart()

    def restart(self, *args, **options):
        """Place by another scheduler, which has read no host yet."""
        self.placer, self.loader = self.world.placer(*args, **options)

    def refresh(self):
        self.loader.refresh(world.CONTEXT)

    def place(self, count=1, alternates=0, by=None, uuids=None,
              context=world.CONTEXT, claim=True, **wishes):
        return (by or self.placer).place(
            context, request(**wishes),
            samples.uuids(count) if uuids is None else uuids, alternates,
            claim)

    def plan(self, count=1, alternates=1, **wishes):
        return self.placer.plan(
            world.CONTEXT, request(**wishes), samples.uuids(count),
            alternates)

    def fill(self, *names):
        return [self.world.claim(host, self.hosts[host]) for host in names]

    def used(self, host):
        [usage] = self.world.claims.usages(
            providers=[self.world.providers[host]]).usages
        return usage.used.get('VCPU', 0)

    def assertTableIsRight(self, made=None):
        made = made or self.loader
        before = taken(made.table)
        made.reload([*self.world.providers.values()])
        self.assertEqual(taken(made.table), before)

    def assertUnused(self):
        """Check that no host is reserved, and that no claim was made."""
        self.assertEqual(
            {name: (vcpus, 0) for name, vcpus in self.hosts.items()},
            taken(self.loader.table))
        self.assertEqual([], self.world.claims.batches)


class MovingTestCase(PlacingTestCase):
    """``self.uuids`` is one instance, which is placed again."""

    def setUp(self):
        super().setUp()
        self.restart(first=destinations())
        self.uuids = samples.uuids(1)

    def held(self):
        """Return host and CPUs of each claim of the instance."""
        hosts = {uuid: host for host, uuid in self.world.providers.items()}
        return {name: (hosts[claim.provider], claim.resources['VCPU'])
                for name, [claim] in self.world.claims.claims_of(
                    migrations.consumers(self.uuids)).items()}
