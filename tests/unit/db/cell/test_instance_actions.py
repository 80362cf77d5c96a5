# SPDX-License-Identifier: Apache-2.0
"""Queries for what was done with servers, and in which request."""

import sqlalchemy as sa

from cellsched import context
from cellsched.db.cell import instance_actions
from cellsched.db.cell import instances
from cellsched.db.cell import models
from tests.unit.db.cell import base
from tests.unit.db import samples


class TestInstanceActions(base.TestCase):

    def record(self, uuids, **options):
        """Record an action for servers and return all rows."""
        self.context = context.RequestContext(
            user_id='user', project_id='project')
        self.write(instance_actions.create_all, uuids, 'create',
                   self.context, samples.NOW, **options)
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

    def test_no_servers_are_no_action(self):
        self.assertEqual([], self.record([]))
