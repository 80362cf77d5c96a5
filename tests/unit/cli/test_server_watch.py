# SPDX-License-Identifier: Apache-2.0

import collections

from cellsched.cli import server_watch
from cellsched import context
from cellsched import exception
from cellsched.listing import server
from cellsched.listing import servers
from cellsched.testing import clock
from tests.unit import base

BUILT = server.Server(
    uuid='a', name='one', project_id='p', status='ACTIVE', task_state=None,
    cell='c', host='h', availability_zone=None, attempts=1, reason='',
    created_at=None)


class Answers:
    """Servers that answer what they were told to, the last for ever."""

    def __init__(self, **answers):
        self.answers = answers
        self.asked = []

    def get(self, context, uuid):
        self.asked.append(uuid)
        left = self.answers[uuid]
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        return BUILT._replace(uuid=uuid, status=answer)

    def list(self, context, filters):
        """Return those that are there."""
        self.asked.append(list(filters['uuid']))
        return servers.Page([
            BUILT._replace(uuid=uuid, status=self.answers[uuid][0])
            for uuid in filters['uuid']
            if isinstance(self.answers[uuid][0], str)], [])


class TestWatch(base.TestCase):

    def setUp(self):
        super().setUp()
        self.clock = clock.FakeClock()
        self.steps = []

    def watch(self, **answers):
        self.servers = Answers(**answers)
        return server_watch.Watch(self.servers, context.admin(), answers)

    def wait(self, watch, timeout_s=60):
        return watch.wait(lambda found: found.status == 'ACTIVE', timeout_s,
                          self.clock, self.steps.append)

    def test_watch_ends_when_all_servers_are_settled(self):
        watch = self.watch(a=['BUILD', 'ACTIVE'],
                           b=['BUILD', 'BUILD', 'ACTIVE'])

        self.assertEqual([], self.wait(watch))
        self.assertEqual([0, 1, 2], self.steps)
        self.assertEqual({'ACTIVE'}, {
            found.status for found in watch.found.values()})

    def test_settled_servers_are_not_read_again(self):
        self.wait(self.watch(a=['ACTIVE'], b=['BUILD', 'ACTIVE']))

        self.assertEqual(['a', 'b', 'b'], self.servers.asked)

    def test_watch_ends_at_the_timeout_with_unsettled_servers(self):
        watch = self.watch(a=['ACTIVE'], b=['BUILD'])

        self.assertEqual(['b'], self.wait(watch, timeout_s=5))
        self.assertEqual(5, self.clock.monotonic())

    def test_watch_without_time_reads_once(self):
        self.assertEqual([], self.wait(self.watch(a=['ACTIVE']), timeout_s=0))

    def test_unreachable_cell_is_read_again(self):
        watch = self.watch(a=[
            exception.CellUnreachable(cell='c', reason='r'), 'ACTIVE'])

        self.assertEqual([], self.wait(watch))
        self.assertIsNone(watch.problem)

    def test_lasting_problem_is_kept(self):
        problem = exception.CellUnreachable(cell='c', reason='r')
        watch = self.watch(a=[problem])

        self.assertEqual(['a'], self.wait(watch, timeout_s=1))
        self.assertIs(problem, watch.problem)
        self.assertEqual('UNKNOWN', watch.found['a'].status)

    def test_deleted_server_keeps_its_name(self):
        watch = self.watch(
            a=['BUILD', exception.InstanceNotFound(uuid='a')])
        watch.look()
        watch.look()

        self.assertEqual(('one', 'DELETED'),
                         (watch.found['a'].name, watch.found['a'].status))

    def test_many_servers_are_read_in_batches(self):
        gone = [exception.InstanceNotFound(uuid='gone')]
        watch = self.watch(
            gone=gone, **{f's{number}': ['ACTIVE'] for number in range(101)})

        watch.look()

        self.assertEqual(
            [100, 2, 'gone'], [each if isinstance(each, str) else len(each)
                               for each in self.servers.asked])
        self.assertEqual({'ACTIVE': 101, 'DELETED': 1}, collections.Counter(
            found.status for found in watch.found.values()))
