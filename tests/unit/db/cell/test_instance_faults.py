# SPDX-License-Identifier: Apache-2.0
"""Queries for what went wrong with servers."""

import oslo_messaging
import sqlalchemy as sa

from cellsched.db.cell import instance_faults
from cellsched.db.cell import instances
from cellsched.db.cell import models
from cellsched import exception
from tests.unit.db.cell import base
from tests.unit.db import samples


class TestInstanceFaults(base.TestCase):

    def setUp(self):
        super().setUp()
        self.uuids = self.write(
            instances.create,
            [samples.instance(uuid) for uuid in samples.uuids(2)],
            samples.NOW)

    def record(self, reason, number=0):
        """Record a fault and return its row."""
        self.write(instance_faults.record, self.uuids[number], reason, 'h',
                   samples.NOW)
        faults = models.instance_faults
        return self.read(lambda connection: connection.execute(
            sa.select(faults).order_by(faults.c.id.desc())).first())

    def test_error_that_is_meant_for_users_is_quoted(self):
        row = self.record(exception.NoValidHost(reason='No room.'))

        self.assertEqual(
            ('No valid host was found. No room.', 500, 'h', 0),
            (row.message, row.code, row.host, row.deleted))
        self.assertEqual('NoValidHost: No valid host was found. No room.',
                         row.details)

    def test_plugin_that_failed_is_named_and_what_it_said_is_not(self):
        failed = exception.PluginFailed(kind='Filter', plugin='FooFilter')
        failed.__cause__ = ValueError('secret-host is on fire')

        row = self.record(failed)

        self.assertEqual('Filter FooFilter failed.', row.message)
        self.assertEqual('PluginFailed: Filter FooFilter failed.',
                         row.details)

    def test_name_of_a_kind_is_without_what_a_transport_appends(self):
        remote = type('CellUnreachable_Remote', (exception.CellUnreachable,),
                      {})(cell='c', reason='r')
        row = self.record(remote)

        self.assertEqual('Build of instance failed: its cell did not answer.',
                         row.message)
        self.assertEqual('CellUnreachable: Cell c did not answer: r',
                         row.details)
        row = self.record(oslo_messaging.RemoteError('KeyError', 'x'))
        self.assertEqual('KeyError: Remote error: KeyError x\nNone.',
                         row.details)

    def test_other_errors_tell_users_only_their_kind_in_words(self):
        for reason, said in (
                (exception.HostMappingNotFound(host='secret-host'),
                 'the host that was chosen has left'),
                (RuntimeError('secret-host is on fire'),
                 'an error that operators find in the logs')):
            row = self.record(reason)

            self.assertEqual(f'Build of instance failed: {said}.',
                             row.message)
            self.assertEqual(f'{type(reason).__name__}: {reason}',
                             row.details)

    def test_fault_says_what_failed(self):
        uuid = self.uuids[0]
        for task, reason, expected in (
                ('migration', KeyError('x'),
                 'Migration of instance failed: an error that operators find '
                 'in the logs.'),
                ('rebuild', exception.BuildFailed(uuid=uuid, reason='no'),
                 f'The rebuild of {uuid} failed: no'),
                ('unshelve', exception.BuildAborted(uuid=uuid, reason='no'),
                 f'The unshelve of {uuid} failed: no'),
                ('evacuation', exception.NoValidHost(reason='Full.'),
                 'No valid host was found. Full.'),
                ('build', exception.BuildFailed(uuid=uuid, reason='no'),
                 f'The build of {uuid} failed on this host: no')):
            self.write(instance_faults.record, uuid, reason, 'h',
                       samples.NOW, task)

            self.assertEqual(expected, self.read(
                instance_faults.latest, [uuid])[uuid])

    def test_code_is_that_of_the_error(self):
        self.assertEqual(
            404, self.record(exception.HostMappingNotFound(host='h')).code)

    def test_code_of_another_kind_is_none(self):
        # SQLAlchemy's errors have texts for codes, or nothing.
        for reason in (sa.exc.TimeoutError(code='3o7r'),
                       sa.exc.ArgumentError(), RuntimeError()):
            self.assertEqual(500, self.record(reason).code)

    def test_long_message_is_cut_and_its_details_are_not(self):
        row = self.record(exception.NoValidHost(reason='é' * 1000))

        self.assertEqual(instance_faults.MESSAGE_MAX, len(row.message))
        self.assertTrue(row.details.endswith('é' * 1000))

    def test_characters_that_no_database_keeps_are_replaced(self):
        row = self.record(exception.NoValidHost(reason='a\0b\ud800c'))

        self.assertEqual('No valid host was found. ab?c', row.message)
        self.assertNotIn('\0', row.details)

    def test_latest_message_is_told(self):
        for reason in 'first', 'last':
            self.record(exception.NoValidHost(reason=reason))

        self.assertEqual(
            {self.uuids[0]: 'No valid host was found. last'},
            self.read(instance_faults.latest, self.uuids))
        self.assertEqual({}, self.read(instance_faults.latest, []))

    def test_deleted_faults_are_not_told(self):
        self.record(exception.NoValidHost(reason='old'))
        self.write(lambda connection: connection.execute(
            sa.update(models.instance_faults).values(deleted=1)))

        self.assertEqual({}, self.read(instance_faults.latest, self.uuids))
