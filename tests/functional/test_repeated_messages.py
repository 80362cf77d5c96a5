# SPDX-License-Identifier: Apache-2.0
"""A message that is delivered often does its work once."""

from concurrent import futures

from cellsched.rpc import compute
from cellsched.rpc import conductor
from cellsched.rpc import scheduler
from tests.functional import post
from tests.functional import repeating
from tests.unit import base


class TestKinds(base.TestCase):

    def test_each_message_is_repeated_by_a_test(self):
        self.assertEqual(
            post.kinds((compute.TOPIC, compute.ComputeAPI),
                       (conductor.TOPIC, conductor.ConductorAPI),
                       (scheduler.TOPIC, scheduler.SchedulerAPI)),
            {*repeating.LIFE, repeating.TERMINATE, *repeating.SILENT})


class TestAtOnce(repeating.TestCase):

    def test_messages_delivered_several_times_act_once(self):
        for times in self.each_time():
            uuid = self.live()

            self.assertEqual(repeating.LIFE, self.post.count())
            self.assertDelivered(times)
            self.delete(uuid)
            self.is_gone(uuid)
            self.assertEqual({**repeating.LIFE, repeating.TERMINATE: 1},
                             self.post.count())
            self.assertDelivered(times)
            self.assertEqual((1, 2, 1, 5), tuple(map(self.done.count, (
                'Cast', 'Begin', 'Finish', 'MoveSpawn'))))


class TestAfterwards(repeating.TestCase):

    def assertUnchangedBy(self, times, *uuids):
        """What was sent so far comes again; nobody says or does more."""
        before = list(map(self.seen, uuids))
        sent, done = self.post.count(), self.done.count('Begin')
        for number, messages in enumerate(self.orders(times), 2):
            self.post.repeat(messages)
            self.post.quiet()
            self.release_leaked()

            self.assertEqual(before, list(map(self.seen, uuids)))
            self.assertEqual(sent, self.post.count())
            self.assertDelivered(number * times)
        self.assertEqual(done, self.done.count('Begin'))
        self.assertEqual([], self.unexpected())
        self.assertClaimsMatch()

    def test_repeated_message_changes_no_server(self):
        for times in self.each_time():
            uuid = self.live()

            self.assertUnchangedBy(times, uuid)

    def test_repeated_message_restores_no_deleted_server(self):
        for times in self.each_time():
            uuid = self.live()
            self.delete(uuid)
            self.is_gone(uuid)

            self.assertUnchangedBy(times, uuid)

            self.is_gone(uuid)
            self.assertEqual({*repeating.LIFE, repeating.TERMINATE},
                             set(self.post.count()))

    def test_repeated_message_of_a_batch_changes_no_server(self):
        for times in self.each_time():
            for host in ('a1', 'a2'):
                self.driver(host).fail_builds(1)
            running = self.create(min_count=4)
            [buried] = self.create(flavor='huge')
            self.settled([*running, buried])
            self.post.quiet()

            self.assertUnchangedBy(times, *running, buried)

            self.assertIsIn('cell0', buried)
            self.assertEqual(
                {each.uuid for each in self.settled(running)
                 if each.status == 'ACTIVE'},
                {uuid for uuid in running if self.running(uuid)})


class TestAtEachStep(repeating.TestCase):
    """At each step of a task, all earlier messages are repeated."""

    #: The steps at which it came already, since the server was at rest.
    met = frozenset()

    def reach(self, step):
        if step not in self.met:
            self.met |= {step}
            self.post.repeat(self.post.of(
                *self.post.count().keys() - {repeating.SELECT}))
            if step != 'Select':
                # What is claimed is there before the step is gone on with.
                futures.wait(self.post.repeat(
                    self.post.of(repeating.SELECT)))
        super().reach(step)

    def rests(self, vm_state, host, uuid):
        self.post.quiet()
        self.release_leaked()
        super().rests(vm_state, host, uuid)
        self.met = frozenset()

    def test_life_is_the_same(self):
        for times in self.each_time(2):
            uuid = self.live()

            self.assertEqual(repeating.LIFE, self.post.count())
            for kind, sent in self.post.count().items():
                self.assertGreater(self.post.delivered[kind], times * sent)
            self.assertEqual((1, 2, 1, 5), tuple(map(self.done.count, (
                'Cast', 'Begin', 'Finish', 'MoveSpawn'))))
            self.delete(uuid)
            self.post.quiet()
            self.release_leaked()
            self.is_gone(uuid)
