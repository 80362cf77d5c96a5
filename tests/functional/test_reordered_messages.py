# SPDX-License-Identifier: Apache-2.0
"""Messages that come in another order than they were sent."""

from concurrent import futures

import fixtures

from cellsched.rpc import conductor
from tests.functional import base
from tests.functional import repeating


class TestOrder(repeating.TestCase):

    def test_build_delivered_after_the_deletion_is_ignored(self):
        for times in self.each_time():
            self.post.keep(repeating.BUILD)
            [uuid] = self.create()
            self.post.quiet()
            self.assertEqual(1, self.post.kept(repeating.BUILD))

            self.delete(uuid)
            self.is_gone(uuid)
            self.post.let_go(repeating.BUILD)

            self.is_gone(uuid)
            self.assertDelivered(times)
            self.assertNotIn('Begin', self.done)

    def test_deletion_delivered_after_a_failed_build_removes_the_server(self):
        for times in self.each_time():
            self.driver('a1').fail_builds(1)
            held = self.hold('a1')
            [uuid] = self.create()
            self.until(lambda: 'GiveNetworks' in self.done, 'it is built')
            self.post.keep(repeating.TERMINATE)
            self.delete(uuid)
            held.set()
            self.post.quiet()
            self.assertEqual([], self.post.of(repeating.BUILD_INSTANCES))

            self.post.repeat(
                self.post.of(repeating.TERMINATE, repeating.BUILD))

            self.is_gone(uuid)
            self.assertEqual(1, self.done.count('Begin'))
            self.post.let_go(repeating.TERMINATE)
            self.is_gone(uuid)
            self.assertEqual(
                2 * times, self.post.delivered[repeating.TERMINATE])

    def test_first_build_delivered_before_the_second_is_ignored(self):
        for times in self.each_time():
            self.driver('a1').fail_builds(1)
            self.at['HandOn'] = lambda: self.post.keep(repeating.BUILD)
            [uuid] = self.create()
            self.until(lambda: self.post.count().get(repeating.BUILD) == 2,
                       'the second try is sent')
            self.post.quiet()
            first, second = self.post.of(repeating.BUILD)

            self.post.repeat([first])
            self.post.quiet()

            row = self.row(uuid)
            self.assertEqual(('scheduling', None, 2), (
                row.task_state, row.host, row.build_attempts))
            self.post.let_go(repeating.BUILD)
            self.rests('active', 'a2', uuid)
            self.post.repeat([first, second])
            self.rests('active', 'a2', uuid)
            self.assertEqual(2, self.done.count('Begin'))
            self.assertEqual(5 * times, self.post.delivered[repeating.BUILD])

    def test_next_attempt_delivered_before_the_release_waits(self):
        for times in self.each_time():
            self.driver('a1').fail_builds(1)
            held = self.hold('a1')
            [uuid] = self.create()
            self.until(lambda: 'GiveNetworks' in self.done, 'it is built')
            self.send_next(self.post.of(repeating.BUILD)[0])
            self.until(
                lambda: times == self.post.delivered[
                    repeating.BUILD_INSTANCES], 'the next try is asked for')
            row = self.row(uuid)
            self.assertEqual(('spawning', 'a1', 1), (
                row.task_state, row.host, row.build_attempts))

            held.set()

            self.rests('active', 'a2', uuid)
            self.assertEqual(2, self.get(uuid).attempts)
            self.assertEqual((2, 2), tuple(map(
                self.post.count().get,
                (repeating.BUILD, repeating.BUILD_INSTANCES))))
            self.assertDelivered(times)

    def test_repeated_attempt_before_a_due_attempt_is_ignored(self):
        for _ in self.each_time():
            self.driver('a1').fail_builds(1)
            self.driver('a2').fail_builds(1)
            self.at['HandOn'] = lambda: self.at.update(
                HandOn=lambda: self.post.keep(repeating.BUILD_INSTANCES))
            [uuid] = self.create()
            self.until(
                lambda: self.post.count().get(repeating.BUILD_INSTANCES) == 2,
                'the second try has failed')
            self.post.quiet()

            self.post.repeat(self.post.of(repeating.BUILD_INSTANCES)[:1])
            self.post.quiet()

            row = self.row(uuid)
            self.assertEqual((None, None, 2), (
                row.task_state, row.host, row.build_attempts))
            self.post.let_go(repeating.BUILD_INSTANCES)
            self.rests('active', 'a3', uuid)
            self.assertEqual(3, self.get(uuid).attempts)
            self.assertEqual(3, self.post.count()[repeating.BUILD])

    def test_repeated_selection_during_the_claim_of_the_next_host(self):
        [cell, *_] = self.world._services
        release = cell.parts.claims.release

        def released(consumers):
            release(consumers)
            if asked.pop():
                futures.wait(self.post.repeat(self.post.of(repeating.SELECT)))

        self.useFixture(fixtures.MockPatchObject(
            cell.parts.claims, 'release', released))
        for times in self.each_time():
            asked = [False, True]
            self.driver('a1').fail_builds(1)
            [uuid] = self.create()
            self.settled([uuid])

            self.rests('active', 'a2', uuid)
            self.assertEqual([], asked)
            self.assertEqual(2 * times, self.post.delivered[repeating.SELECT])
            self.assertEqual((1, 2), tuple(map(
                self.post.count().get, (repeating.SELECT, repeating.BUILD))))

    def send_next(self, build):
        """Ask for the next try of a build, as its host would."""
        said = dict(build.body['args'])
        build.driver.send(
            build.target(topic=conductor.TOPIC, server=None,
                         namespace=conductor.NAMESPACE),
            build.context, {
                'method': 'build_instances', 'args': {
                    'instances': [said['instance']],
                    'filter_properties': said['filter_properties'],
                    'request_spec': said['request_spec'],
                    'host_lists': [said['host_list']]},
                'namespace': conductor.NAMESPACE,
                'version': conductor.BUILD_INSTANCES})


class TestMovesInOtherOrders(repeating.TestCase):

    def at_rest(self):
        """Return a server on the first host of its cell."""
        uuid = self.active()
        self.rests('active', 'a1', uuid)
        return uuid

    def test_repeated_migrate_out_of_a_returned_server_is_ignored(self):
        for _ in self.each_time():
            uuid = self.at_rest()
            self.post.keep(repeating.MIGRATE_OUT)
            self.moves.migrate(base.ADMIN, uuid)
            self.post.quiet()
            [leave] = self.post.of(repeating.MIGRATE_OUT)
            self.post.keep(repeating.MIGRATE_IN)
            self.moves.migrate(base.ADMIN, uuid)

            for _ in range(2):
                self.post.quiet()
                self.post.repeat([leave])
                self.post.quiet()
                self.assertEqual(['a1', 'a2'], self.running(uuid))
                if self.done.count('MoveBegin') == 1:
                    self.post.let_go(repeating.MIGRATE_IN)

            self.post.let_go(repeating.MIGRATE_OUT)
            self.rests('active', 'a1', uuid)
            self.assertEqual(['done', 'done'], self.statuses(uuid))

    def test_migrate_in_delivered_after_a_failed_move_is_ignored(self):
        for times in self.each_time():
            uuid = self.at_rest()
            self.post.keep(repeating.MIGRATE_IN)
            self.moves.migrate(base.ADMIN, uuid)
            self.post.quiet()
            self.strand()
            self.post.quiet()

            self.post.let_go(repeating.MIGRATE_IN)

            self.rests('active', 'a1', uuid)
            self.assertEqual(['error'], self.statuses(uuid))
            self.assertNotIn('MoveBegin', self.done)
            self.assertDelivered(times)

    def test_migrate_in_delivered_after_the_deletion_is_ignored(self):
        for times in self.each_time():
            uuid = self.at_rest()
            self.post.keep(repeating.MIGRATE_IN)
            self.moves.migrate(base.ADMIN, uuid)
            self.post.quiet()
            self.delete(uuid)
            self.post.quiet()

            self.post.let_go(repeating.MIGRATE_IN)

            self.is_gone(uuid)
            self.assertDelivered(times)
            self.assertNotIn('MoveBegin', self.done)
