# SPDX-License-Identifier: Apache-2.0
"""Concurrent creations and deletions end as requested."""

import random
import threading

from cellsched import exception
from cellsched.standalone import deployment
from cellsched.wiring import services
from tests.functional import base

#: By then every lease has run out.
LATE_S = 3600

USERS = 4
REQUESTS = 8


class User(threading.Thread):
    """Creates servers, deletes some of them, and has messages come again.

    :ivar wanted: the servers that are to be there in the end
    :ivar deleted: those that are not
    """

    def __init__(self, case, seed):
        super().__init__()
        self.case = case
        self.random = random.Random(seed)
        self.wanted = []
        self.deleted = []
        self.failure = None

    def run(self):
        try:
            for _ in range(REQUESTS):
                self.create()
                while self.wanted and self.random.random() < 0.6:
                    self.delete()
        except Exception as exc:
            self.failure = exc

    def create(self):
        uuids = self.case.create(
            min_count=1, max_count=self.random.choice([1, 1, 3]))
        self.wanted += uuids
        if self.random.random() < 0.5:
            # A conductor that thinks that the first one is dead.
            self.case.task(late_s=LATE_S).run(base.USER, uuids)
        base.CLOCK.sleep(self.random.choice([0, 0.005, 0.02]))

    def delete(self):
        uuid = self.wanted.pop(self.random.randrange(len(self.wanted)))
        self.deleted.append(uuid)
        for _ in range(self.random.choice([1, 2])):
            try:
                self.case.delete(uuid)
            except exception.InstanceNotFound:
                pass
        if self.random.random() < 0.3:
            self.case.task(late_s=LATE_S).run(base.USER, [uuid])


class Audits(threading.Thread):
    """Audits a deployment until the end.

    :param settle_s: seconds between the two passes of each audit
    :ivar found: all findings that were found twice
    """

    def __init__(self, world, settle_s=0.0):
        super().__init__()
        self.settle_s = settle_s
        self.found = []
        self.auditor = services.auditor(world.api.parts)
        self.ends = threading.Event()
        self.failure = None

    def run(self):
        try:
            while not self.ends.is_set():
                self.found += self.auditor.run(self.settle_s).remaining
        except Exception as exc:
            self.failure = exc

    def end(self):
        self.ends.set()
        self.join()

    def check(self, case):
        """Check that nothing is found in the end."""
        case.assertEqual([], self.auditor.run(settle_s=0.0).remaining)


class TestChurn(base.TestCase):

    def test_each_server_ends_once_and_leaves_no_records(self):
        self.deploy({f'cell{number}': [
            deployment.DeployedHost(f'{name}{number}', vcpus=6, behaviour={
                'fail_builds': 3, 'abort_builds': 1, 'build_delay': delay})
            for name, delay in (('fast', 0), ('slow', 0.02))]
            for number in range(1, 4)})
        users = [User(self, seed) for seed in range(USERS)]
        audits = Audits(self.world)
        for each in *users, audits:
            each.start()
        for user in users:
            user.join()
        audits.end()

        self.assertEqual([None] * (USERS + 1), [
            each.failure for each in (*users, audits)])
        found = self.settled(
            [uuid for user in users for uuid in user.wanted])
        deleted = [uuid for user in users for uuid in user.deleted]
        self.gone(*deleted)
        for each in found:
            self.assertIsIn(each.cell, each.uuid)
        for uuid in deleted:
            self.assertLeftNothing(uuid)
        # A claim that a repeated message made is left to this check if the
        # records do not say whose it is.
        self.release_leaked()
        self.assertClaimsMatch()
        self.assertEqual(
            sorted(each.uuid for each in found if each.status == 'ACTIVE'),
            sorted(uuid for host in self.world.agents
                   for uuid in self.driver(host).list_instances()))
        self.assertEqual(
            sorted(each.uuid for each in found), sorted(self.listed()))
        self.soon(lambda: audits.check(self))
