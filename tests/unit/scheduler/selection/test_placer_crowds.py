# SPDX-License-Identifier: Apache-2.0
"""Many schedulers that choose at the same time, on a cloud nearly full."""

import random

from cellsched import exception
from cellsched.scheduler.selection import selector
from cellsched.testing import builders
from cellsched.weighers import resources
from tests.unit import base
from tests.unit.db import samples
from tests.unit.hosts import world
from tests.unit.scheduler import rounds
from tests.unit.scheduler import schedulers

SCHEDULERS = 8
HOSTS = 40

#: CPUs of each host, and those that are free.
VCPUS, FREE = 10, 1

REQUESTS = SCHEDULERS * 4
ATTEMPTS_MAX = 10


class Crowd:
    """Schedulers that race for hosts, and what became of their requests.

    :param policy: of the scheduler of a number
    :param multiplier: less than zero, hosts are preferred that are full
    """

    def __init__(self, policy, multiplier=1.0, hosts=HOSTS):
        with schedulers.World('cell1') as deployment:
            self.claims = deployment.claims = rounds.Rounds(seed=1)
            for number in range(hosts):
                name = f'host{number}'
                deployment.add_host('cell1', name, vcpus=VCPUS,
                                    memory_mb=1024 * VCPUS)
                deployment.claim(name, VCPUS - FREE)
            self.errors = []
            self.used = []
            self.placed = sum(self.claims.race(*[
                self.asking(deployment, policy(number), multiplier)
                for number in range(SCHEDULERS)]))
            self.used = [usage.used['VCPU']
                         for usage in self.claims.usages().usages]
        self.refused = self.claims.refused

    def asking(self, deployment, policy, multiplier):
        placer, loader = deployment.placer(
            weighers=[builders.plugin(resources.RAMWeigher,
                                      ram_weight_multiplier=multiplier)],
            policy=policy, attempts_max=ATTEMPTS_MAX)
        loader.refresh(world.CONTEXT)

        def ask():
            placed = 0
            for _ in range(REQUESTS // SCHEDULERS):
                try:
                    placer.place(
                        world.CONTEXT, builders.request(
                            vcpus=1, memory_mb=1024, root_gb=0),
                        samples.uuids(1), 0)
                    placed += 1
                except exception.NoValidHost as exc:
                    self.errors.append(exc)
            return placed
        return ask


def alike(number):
    """Return the policy of schedulers that choose the best in any case."""
    return selector.SelectionPolicy(random.Random(number))


def apart(number, **options):
    """Return the policy of schedulers that learn from refusals."""
    return selector.SelectionPolicy(
        random.Random(number), refused_subset_size=32, **options)


def rotated(number):
    return apart(number, start=random.Random(number).random())


class TestCrowd(base.TestCase):

    def assertAllPlaced(self, crowd):
        self.assertEqual((REQUESTS, []), (crowd.placed, crowd.errors))
        # Some of what is left of them is free.
        self.assertEqual({VCPUS, VCPUS - FREE}, set(crowd.used))
        self.assertEqual(
            HOSTS * (VCPUS - FREE) + REQUESTS, sum(crowd.used))

    def test_wider_choice_after_a_refusal_reduces_refusals(self):
        for multiplier in (1.0, -1.0):
            before = Crowd(alike, multiplier)
            crowd = Crowd(apart, multiplier)

            self.assertAllPlaced(before)
            self.assertAllPlaced(crowd)
            self.assertLess(crowd.refused, before.refused)

    def test_different_start_rows_reduce_refusals(self):
        crowd, other = Crowd(rotated), Crowd(apart)

        self.assertAllPlaced(crowd)
        self.assertLess(crowd.refused * 2, other.refused)

    def test_result_depends_only_on_the_random_sources(self):
        first, second = Crowd(apart), Crowd(apart)

        self.assertEqual((first.refused, first.used),
                         (second.refused, second.used))

    def test_as_many_are_placed_as_fit(self):
        crowd = Crowd(apart, hosts=REQUESTS - 5)

        self.assertEqual([VCPUS] * (REQUESTS - 5), crowd.used)
        self.assertEqual(REQUESTS - 5, crowd.placed)
        self.assertEqual(5, len(crowd.errors))
        for error in crowd.errors:
            self.assertEqual(REQUESTS - 5, sum(
                each['hosts'] for each in error.rejections))
