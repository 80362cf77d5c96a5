# SPDX-License-Identifier: Apache-2.0
"""Who asks, in which request, and which cell it is aimed at."""

from oslo_context import context as oslo_context
from oslo_context import fixture

from cellsched import context
from tests.unit import base
from tests.unit.db import samples

CELL = context.CellTarget(
    'u', 'u(cell)', database=object(), open_transport=lambda: None)
OTHER = context.CellTarget(
    'v', 'v(other)', database=object(), open_transport=lambda: None)


class TestRequestContext(base.TestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(fixture.ClearRequestContext())
        self.context = context.RequestContext(
            user_id='user', project_id='project', roles=['member'],
            is_admin=False, auth_token='token', project_name='Project',
            global_request_id='req-1', read_only=True)

    def test_context_is_aimed_at_no_cell(self):
        self.assertIsNone(self.context.cell)
        self.assertIsNone(context.admin().cell)

    def test_aiming_makes_a_new_context_of_the_same_request(self):
        cell_context = self.context.for_cell(CELL)

        self.assertIsInstance(cell_context, context.RequestContext)
        self.assertIs(CELL, cell_context.cell)
        self.assertEqual(self.context.get_logging_values(),
                         cell_context.get_logging_values())
        self.assertEqual(self.context.request_id, cell_context.request_id)

    def test_aiming_does_not_change_the_original(self):
        cell_context = self.context.for_cell(CELL)
        cell_context.for_cell(OTHER)
        cell_context.project_id = 'other'

        self.assertIsNone(self.context.cell)
        self.assertIs(CELL, cell_context.cell)
        self.assertEqual('project', self.context.project_id)

    def test_cell_does_not_travel(self):
        values = self.context.for_cell(CELL).to_dict()

        self.assertNotIn('cell', values)
        self.assertIsNone(context.RequestContext.from_dict(values).cell)

    def test_context_of_the_thread_is_not_replaced(self):
        self.context.update_store()

        self.context.for_cell(CELL)
        context.admin()

        self.assertIs(self.context, oslo_context.get_current())

    def test_each_admin_context_has_its_own_request_id(self):
        self.assertTrue(context.admin().is_admin)
        self.assertNotEqual(
            context.admin().request_id, context.admin().request_id)

    def test_owner_of_a_server_is_the_user_of_the_request(self):
        found = context.of_owner(samples.instance(samples.uuids(1)[0]))

        self.assertEqual(('user', 'project', True), (
            found.user_id, found.project_id, found.is_admin))
