# SPDX-License-Identifier: Apache-2.0
"""What hosts and conductors are told of builds, and how long they have."""

from cellsched.conductor import recovery
from cellsched.db.cell import build_casts
from cellsched.db.cell import build_message
from cellsched.db.cell import models
from tests.unit.conductor import base
from tests.unit.conductor import lost


class TestRetryPolicy(base.base.TestCase):

    def test_time_doubles_with_each_try_up_to_a_bound(self):
        policy = recovery.RetryPolicy(10, 9, 90)

        self.assertEqual(
            [0, 10, 30, 70, 70, 70],
            [policy.more_s(casts) for casts in range(6)])


class TestTold(lost.StalledBuildsTestCase):

    def test_conductor_is_told_of_the_whole_build(self):
        message = build_message.BuildMessage.read(self.kept)
        self.clock.advance(lost.PATIENCE.down_s + 1)

        self.lost.run()

        [client] = self.conductors.clients.values()
        [sent] = client.sent
        self.assertTrue(sent.context.is_admin)
        self.assertEqual('build_instances', sent.method)
        self.assertEqual(
            message.request_spec.obj_to_primitive(),
            sent.arguments['request_spec'].obj_to_primitive())
        properties = dict(sent.arguments['filter_properties'])
        retry = properties.pop('retry')
        self.assertEqual(
            ({'limits': message.filter_properties['limits']},
             message.filter_properties['retry']['hosts'], 1),
            (properties, retry['hosts'], retry['num_attempts']))
        self.assertIn(self.uuid, retry['exc_reason'])
        self.assertIn('its host did not take it up', retry['exc_reason'])

    def test_each_is_told_in_its_own_cell(self):
        self.clock.advance(lost.PATIENCE.down_s + 1)
        self.lost.run()
        self.put(task_state='scheduling')
        self.wait(121)
        self.lost.run()

        transport = self.transports.get(self.cells['cell1'].transport_url)
        self.assertEqual([transport], [*self.conductors.clients])
        self.assertEqual([transport], [*self.compute.clients])
        [sent] = self.compute.clients[transport].sent
        self.assertTrue(sent.context.is_admin)

    def test_conductor_that_was_told_has_longer_each_time(self):
        self.clock.advance(lost.PATIENCE.down_s + 1)
        self.lost.run()

        self.clock.advance(119)
        self.lost.run()
        self.assertEqual(1, len(self.handed_on))

        self.clock.advance(2)
        self.lost.run()
        self.assertEqual(2, len(self.handed_on))
        self.assertEqual(3, self.kept.casts)

    def test_host_is_up_as_long_as_it_reported_lately(self):
        for late_s, told, handed_on in (
                (lost.PATIENCE.down_s - 1, 1, 0),
                (lost.PATIENCE.down_s + 1, 0, 1)):
            with self.cell.writer() as connection:
                build_casts.replace(connection, self.original())
            self.report('a1')
            self.clock.advance(late_s)

            self.lost.run()

            self.assertEqual((told, handed_on),
                             (len(self.sent()), len(self.handed_on)))
            self.compute.clients.clear()

    def original(self):
        return build_message.BuildMessage.first(
            [self.selection('a1'), self.selection('a2')], None).kept(
                self.uuid, self.clock.steady())

    def test_builds_are_looked_at_a_page_at_a_time(self):
        [other] = self.accept()
        self.task().run(base.USER, [other])
        self.compute.clients.clear()
        self.wait()
        looks = []

        class Compute(type(self.compute)):

            def get(this, transport):
                # What is not on the first page counts as told of long ago.
                with self.cell.reader() as connection:
                    looks.append(build_casts.is_any_before(
                        connection, self.clock.steady() - 60))
                return super().get(transport)

        self.compute = Compute()
        self.make_lost(page=1).run()

        self.assertEqual([True, False], looks)
        self.assertEqual(2, len(self.sent()))

    def test_failure_of_a_cell_is_told_and_is_not_the_last(self):
        self.wait()
        table = models.build_casts
        tell = self.compute.get

        def fail(transport):
            with self.cell.writer() as connection:
                connection.exec_driver_sql(
                    f'ALTER TABLE {table.name} RENAME TO away')
            self.compute.get = tell
            return tell(transport)

        self.compute.get = fail
        self.make_lost(page=1).run()
        self.assertIn('cell1', self.logs.output)
        with self.cell.writer() as connection:
            connection.exec_driver_sql(
                f'ALTER TABLE away RENAME TO {table.name}')

        self.wait(1000)
        self.lost.run()

        self.assertEqual(2, len(self.sent()))
