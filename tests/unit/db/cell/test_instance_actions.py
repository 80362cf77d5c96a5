# SPDX-License-Identifier: Apache-2.0
"""Queries for what was done with servers, and in which request."""

import sqlalchemy as sa

from cellsched import context
from cellsched.db.cell import instance_actions
from cellsched.db.cell import instances
from cellsched.db.cell import models
from cellsched import exception
from tests.unit.db.cell import base
from tests.unit.db import samples


class TestInstanceActions(base.TestCase):

    def record(self, uuids, **options):
        """Record an action for servers and return all rows."""
        self.context = context.RequestContext(
            user_id='user', project_id='project')
        self.write(instance_actions.create_all,
                   dict.fromkeys(uuids, self.context), 'create', samples.NOW,
                   **options)
        return self.read(lambda connection: connection.execute(
            sa.select(models.instance_actions)
            .order_by(models.instance_actions.c.id)).all())

    def servers(self, count):
        return self.write(
            instances.create,
            [samples.instance(uuid) for uuid in samples.uuids(count)],
            samples.NOW)

    def test_action_says_who_asked_for_it_and_in_which_request(self):
        uuids = self.servers(2)

        rows = self.record(uuids)

        self.assertEqual(uuids, [row.instance_uuid for row in rows])
        for row in rows:
            self.assertEqual(
                ('create', self.context.request_id, 'user', 'project'),
                (row.action, row.request_id, row.user_id, row.project_id))
            self.assertEqual((samples.NOW, None, None),
                             (row.start_time, row.finish_time, row.message))

    def test_action_that_failed_is_over(self):
        row, = self.record(self.servers(1), message='Error')

        self.assertEqual((samples.NOW, 'Error'),
                         (row.finish_time, row.message))

    def events(self):
        table = models.instance_actions_events
        return self.read(lambda connection: connection.execute(
            sa.select(table, models.instance_actions.c.instance_uuid)
            .join(models.instance_actions).order_by(table.c.id)).all())

    def fail(self, uuids, reason):
        self.write(
            instance_actions.create_failed, uuids, 'create', 'event',
            context.admin(), samples.NOW, reason, 'conductor')

    def test_action_that_failed_says_where_and_why(self):
        uuids = self.servers(2)

        self.fail(uuids, exception.NoValidHost(reason='None is up.'))

        rows = self.events()
        self.assertEqual({*uuids}, {row.instance_uuid for row in rows})
        for row in rows:
            self.assertEqual(
                ('event', 'Error', 'conductor', None, samples.NOW,
                 samples.NOW),
                (row.event, row.result, row.host, row.traceback,
                 row.start_time, row.finish_time))
            self.assertIn('None is up.', row.details)

    def test_error_that_nobody_expected_has_its_traceback(self):
        uuids = self.servers(1)
        try:
            raise KeyError('secret' * 5000)
        except KeyError as exc:
            self.fail(uuids, exc)

        [row] = self.events()
        self.assertEqual('Build of instance failed: an error that operators '
                         'find in the logs.', row.details)
        self.assertIn('secret', row.traceback)
        self.assertEqual(10000, len(row.traceback))

    def test_later_action_has_an_event_of_its_own(self):
        uuids = self.servers(1)
        for reason in 'first', 'second':
            self.fail(uuids, exception.NoValidHost(reason=reason))

        self.assertEqual(2, len({row.action_id for row in self.events()}))

    def test_no_servers_are_no_action(self):
        self.assertEqual([], self.record([]))
        self.fail([], KeyError('x'))
        self.assertEqual([], self.events())
