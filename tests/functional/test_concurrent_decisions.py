# SPDX-License-Identifier: Apache-2.0
"""Many callers ask one scheduler at once, while a cell comes and goes."""

import random
import threading
import uuid

from cellsched import context
from cellsched import exception
from cellsched import plugins
from cellsched.standalone import deployment
from cellsched.testing import builders
from cellsched.wiring import services
from tests.functional import base

CALLERS = 8
REQUESTS = 12

#: Until threads that wait for each other are given up.
DEADLINE_S = base.TIMEOUT_S / 2

#: What tables have to agree on.
COLUMNS = ('available:VCPU', 'available:MEMORY_MB', 'available:DISK_GB',
           'num_instances', 'vcpus_used', 'free_ram_mb')


class Caller:
    """Asks for servers of all sorts, and gives some of them back."""

    def __init__(self, driver, seed):
        self._driver = driver
        # What is asked for does not hang on what others got.
        self._random = random.Random(seed)
        self._giving = random.Random(seed)
        #: Nodes by instance, of what is there; and who got nothing.
        self.there, self.refused = {}, []
        #: Nodes of servers that were not to share any.
        self.apart = []

    def run(self):
        for _ in range(REQUESTS):
            self._ask()
            if self._giving.random() < 0.4:
                self._give_back()

    def _ask(self):
        count = self._random.randint(1, 20)
        uuids = [str(uuid.uuid4()) for _ in range(count)]
        kind = self._random.choice(('any', 'any', 'apart', 'nowhere'))
        wishes = {'memory_mb': 256, 'num_instances': count}
        if kind == 'apart':
            wishes['group'] = {
                'uuid': str(uuid.uuid4()), 'policy': 'anti-affinity'}
        if kind == 'nowhere':
            wishes['vcpus'] = 1000
        try:
            places = self._driver.select_destinations(
                context.admin(), builders.request(**wishes), uuids, 2)
        except exception.NoValidHost:
            self.refused += uuids
            return
        nodes = [first.compute_node_uuid for first, *_ in places]
        self.there.update(zip(uuids, nodes))
        if kind == 'apart':
            self.apart.append(nodes)
        assert kind != 'nowhere'

    def _give_back(self):
        gone = self._giving.sample(
            sorted(self.there), len(self.there) // 2)
        self._driver.parts.claims.release(gone)
        for each in gone:
            del self.there[each]


class TestConcurrentDecisions(base.TestCase):

    def setUp(self):
        super().setUp()
        self.deploy(
            {f'cell{cell}': [
                deployment.DeployedHost(f'{cell}-{number}', vcpus=10 + number)
                for number in range(6)] for cell in range(3)},
            filter_scheduler={'enabled_filters': (
                'ComputeFilter', 'RamFilter', 'NumInstancesFilter',
                'ServerGroupAntiAffinityFilter')})
        # Who reports to a cell would be in the way of its coming and going.
        for agent in self.world.agents.values():
            agent.stop()
        self.driver = self.make_driver()
        self.driver.loader.refresh(context.admin())
        self.done = threading.Event()
        self.errors = []
        self.silences = 0

    def make_driver(self):
        parts = services.Components(self.world.conf('api'))
        self.addCleanup(parts.close)
        return plugins.load(
            plugins.DRIVERS, 'filter_scheduler')(parts.conf, parts)

    def table(self, driver):
        """Return what a driver knows of each host."""
        # A periodic refresh may leave out the claims on a busy machine.
        driver.loader.refresh(context.admin(), base.CLOCK.monotonic())
        self.assertEqual([], driver.loader.silent)
        table = driver.loader.table
        return {host: tuple(table[name][row] for name in COLUMNS)
                for row, host in enumerate(table['host'])}

    def thread(self, function):
        def run():
            try:
                function()
            except BaseException as exc:
                self.errors.append(exc)

        made = threading.Thread(target=run, daemon=True)
        made.start()
        return made

    def refresh(self):
        while not self.done.is_set():
            self.driver.loader.refresh(context.admin())

    def flap(self):
        """Take a cell's database away and bring it back."""
        while not self.done.is_set():
            # Connections that are open would not feel that a file is gone.
            self.take_down('cell1')
            self.driver.loader.refresh(context.admin())
            self.silences += len(self.driver.loader.silent)
            self.bring_back('cell1')
            self.driver.loader.refresh(context.admin())

    def join(self, threads):
        deadline = base.CLOCK.monotonic() + DEADLINE_S
        for each in threads:
            each.join(max(deadline - base.CLOCK.monotonic(), 0))
            self.assertFalse(each.is_alive(), 'threads hold up each other')

    def test_concurrent_decisions_lose_and_duplicate_no_claims(self):
        callers = [Caller(self.driver, seed) for seed in range(CALLERS)]
        asking = [self.thread(each.run) for each in callers]
        others = [self.thread(self.refresh), self.thread(self.flap)]

        self.join(asking)
        self.done.set()
        self.join(others)

        self.assertEqual([], self.errors)
        there = {}
        for each in callers:
            there.update(each.there)
            for nodes in each.apart:
                self.assertEqual(len(nodes), len({*nodes}))
        claims = self.driver.parts.claims
        held = claims.claims_of([*there, *(
            each for caller in callers for each in caller.refused)])
        self.assertEqual(there, {
            each: claim.provider for each, [claim] in held.items()})
        for usage in claims.usages().usages:
            for name, amount in usage.used.items():
                self.assertLessEqual(amount, usage.capacity.get(name, 0))
        known = self.table(self.driver)
        self.assertEqual(self.table(self.make_driver()), known)
        self.assertEqual(len(there), sum(row[3] for row in known.values()))
        self.assertGreater(self.silences, 0)
        self.assertTrue(any(each.apart for each in callers))
        self.assertTrue(all(each.refused for each in callers))
