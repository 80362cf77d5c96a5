# SPDX-License-Identifier: Apache-2.0
"""Building again what was buried."""

import sqlalchemy as sa

from cellsched.db.api import build_requests
from cellsched.db.api import instance_mappings
from cellsched.db.api import models
from cellsched import exception
from tests.unit.api import test_servers
from tests.unit import racing

DISK = {'source_type': 'volume', 'destination_type': 'volume',
        'volume_id': 'v'}


class TestRetry(test_servers.ServersTestCase):

    def setUp(self):
        super().setUp()
        [self.uuid] = self.create(hints={'different_host': ['x']})
        self.cell0 = self.cells.cell0()

    def bury(self):
        self.put(self.uuid, self.cell0, vm_state='error', task_state=None,
                 display_name='renamed')

    def retry(self):
        self.servers.retry(self.context, self.uuid)

    def mapped(self):
        return self.read(self.database, instance_mappings.get_many,
                         [self.uuid])[self.uuid].cell_mapping

    def assertRefused(self, text):
        error = self.assertRaises(exception.InstanceInvalidState, self.retry)
        self.assertIn(text, str(error))

    def test_request_is_made_anew_and_a_conductor_told(self):
        self.bury()
        self.conductor.sent.clear()

        self.retry()

        [leased] = self.write(
            self.database, build_requests.lease, [self.uuid], 'me', 0, 1)
        instance = leased.request.instance
        self.assertEqual(
            ('renamed', 'building', 'scheduling', None, 2),
            (instance.display_name, instance.vm_state, instance.task_state,
             instance.host, instance.flavor.vcpus))
        self.assertTrue(leased.request.buried)
        self.assertEqual(['x'], leased.spec.hint('different_host'))
        self.assertEqual(1, leased.min_count)
        self.assertIsNone(self.mapped())
        [sent] = self.conductor.sent
        self.assertEqual({'instance_uuids': [self.uuid]}, sent.arguments)

    def test_server_is_refused_with_its_state(self):
        self.assertRefused('BUILD')
        self.bury()
        self.retry()
        self.assertRefused('BUILD')

        [self.uuid] = self.create()
        self.put(self.uuid, self.cell, vm_state='active', task_state=None)
        self.assertRefused('ACTIVE in cell1')
        self.assertEqual('cell1', self.mapped().name)

    def test_server_without_its_request_spec_is_refused(self):
        self.bury()
        self.write(self.database, lambda connection: connection.execute(
            sa.delete(models.request_specs)))

        self.assertRefused('record of what was asked for')
        self.assertEqual('cell0', self.mapped().name)

    def test_deleted_server_is_not_there(self):
        self.bury()
        self.servers.delete(self.context, self.uuid)

        self.assertRaises(exception.InstanceNotFound, self.retry)
        self.assertEqual([0], self.rows(models.build_requests))

    def test_deletion_after_it_was_looked_at_wins(self):
        self.bury()
        aimed = self.targets.database(self.cell0)

        class Deleting:

            @staticmethod
            def database(cell):
                self.servers.delete(self.context, self.uuid)
                return aimed

        self.servers._retry._targets = Deleting
        self.assertRaises(exception.InstanceNotFound, self.retry)
        self.assertEqual([0], self.rows(models.build_requests))

    def test_change_after_it_was_looked_at_is_kept(self):
        self.bury()
        waiting = ['newest']

        def rename(conn, cursor, text, *others):
            if waiting and text.startswith('BEGIN'):
                self.servers.update(
                    self.context, self.uuid, name=waiting.pop())

        sa.event.listen(
            self.database.engine, 'before_cursor_execute', rename)
        self.retry()

        self.assertEqual(
            'newest', self.servers.get(self.context, self.uuid).name)
        self.assertEqual([1], self.rows(models.build_requests))

    def test_record_that_is_not_there_is_not_found(self):
        self.decide(self.uuid, self.cell0)
        self.write(self.database, build_requests.delete, [self.uuid])

        error = self.assertRaises(
            exception.InstanceNotFound, self.servers._retry.run, self.uuid)

        self.assertEqual(self.uuid, error.kwargs['uuid'])
        self.assertEqual('cell0', self.mapped().name)
        self.assertEqual([0], self.rows(models.build_requests))

    def test_one_of_several_retries_is_taken(self):
        self.bury()

        outcomes = racing.race(*[self.retry] * 6)

        self.assertEqual(1, outcomes.count(None))
        self.assertEqual(
            {exception.InstanceInvalidState},
            {type(each) for each in outcomes if each is not None})
        self.assertEqual([1], self.rows(models.build_requests))
