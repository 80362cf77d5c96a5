# SPDX-License-Identifier: Apache-2.0
"""Queries for what was done with servers, and in which request."""

import oslo_messaging
import sqlalchemy as sa

from cellsched import context
from cellsched.db.cell import instance_history
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
        self.write(instance_history.create_all,
                   dict.fromkeys(uuids, self.context), 'create', samples.NOW,
                   **options)
        return self.actions()

    def actions(self):
        return self.fetch(
            sa.select(models.instance_actions)
            .order_by(models.instance_actions.c.id))

    def servers(self, count):
        return self.write(
            instances.create,
            [samples.instance(uuid) for uuid in samples.uuids(count)],
            samples.NOW)

    def test_action_has_the_user_and_the_request(self):
        uuids = self.servers(2)

        rows = self.record(uuids)

        self.assertEqual(uuids, [row.instance_uuid for row in rows])
        for row in rows:
            self.assertEqual(
                ('create', self.context.request_id, 'user', 'project'),
                (row.action, row.request_id, row.user_id, row.project_id))
            self.assertEqual((samples.NOW, None, None),
                             (row.start_time, row.finish_time, row.message))

    def test_failed_action_is_finished(self):
        row, = self.record(self.servers(1), message='Error')

        self.assertEqual((samples.NOW, 'Error'),
                         (row.finish_time, row.message))

    def events(self):
        table = models.instance_actions_events
        return self.fetch(
            sa.select(table, models.instance_actions.c.instance_uuid)
            .join(models.instance_actions).order_by(table.c.id))

    def fail(self, uuids, reason):
        self.write(
            instance_history.create_failed, uuids, 'event',
            context.admin(), samples.NOW, reason, 'conductor')

    def test_failed_action_records_the_host_and_the_error(self):
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

    def test_unexpected_error_has_its_traceback(self):
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

    def test_finished_action_has_a_last_event(self):
        uuids = self.servers(3)
        self.record(uuids)
        self.write(
            instance_history.fail, uuids[2], 'create', 'event', samples.NOW,
            exception.NoValidHost(reason='None.'), 'conductor')
        began = samples.NOW + (samples.LATER - samples.NOW) / 2

        for _ in range(2):
            self.write(
                instance_history.finish, {uuids[0]: began, uuids[1]: None},
                'create', 'event', samples.LATER, 'host')
        self.write(instance_history.finish, {}, 'create', 'event',
                   samples.LATER, 'host')

        self.assertEqual(
            [(uuids[2], 'Error', samples.NOW, samples.NOW, 'conductor'),
             (uuids[0], 'Success', began, samples.LATER, 'host'),
             (uuids[1], 'Success', samples.NOW, samples.LATER, 'host')],
            sorted(((row.instance_uuid, row.result, row.start_time,
                     row.finish_time, row.host) for row in self.events()),
                   key=lambda each: (each[3], uuids.index(each[0]))))
        self.assertEqual(
            [(samples.LATER, None)] * 2 + [(samples.NOW, 'Error')],
            [(row.finish_time, row.message) for row in self.actions()])

    def test_deleted_server_has_no_open_action(self):
        uuids = self.servers(2)
        self.record(uuids)

        self.write(instances.delete, uuids[0], samples.LATER)

        self.assertEqual(
            [samples.LATER, None],
            [row.finish_time for row in self.actions()])

    def test_no_servers_are_no_action(self):
        self.assertEqual([], self.record([]))
        self.fail([], KeyError('x'))
        self.assertEqual([], self.events())


class TestInstanceFaults(base.TestCase):

    def setUp(self):
        super().setUp()
        self.uuids = self.write(
            instances.create,
            [samples.instance(uuid) for uuid in samples.uuids(2)],
            samples.NOW)

    def record(self, reason, number=0):
        """Record a fault and return its row."""
        self.write(instance_history.record, self.uuids[number], reason, 'h',
                   samples.NOW)
        faults = models.instance_faults
        return self.read(lambda connection: connection.execute(
            sa.select(faults).order_by(faults.c.id.desc())).first())

    def test_error_for_users_is_quoted(self):
        row = self.record(exception.NoValidHost(reason='No room.'))

        self.assertEqual(
            ('No valid host was found. No room.', 500, 'h', 0),
            (row.message, row.code, row.host, row.deleted))
        self.assertEqual('NoValidHost: No valid host was found. No room.',
                         row.details)

    def test_failed_plugin_is_named_without_its_message(self):
        failed = exception.PluginFailed(kind='Filter', plugin='FooFilter')
        failed.__cause__ = ValueError('secret-host is on fire')

        row = self.record(failed)

        self.assertEqual('Filter FooFilter failed.', row.message)
        self.assertEqual('PluginFailed: Filter FooFilter failed.',
                         row.details)

    def test_name_of_a_kind_has_no_suffix_of_a_transport(self):
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

    def test_internal_error_is_shown_to_users_as_its_kind(self):
        for reason, said in (
                (exception.HostMappingNotFound(host='secret-host'),
                 'the selected host no longer exists'),
                (RuntimeError('secret-host is on fire'),
                 'an error that operators find in the logs')):
            row = self.record(reason)

            self.assertEqual(f'Build of instance failed: {said}.',
                             row.message)
            self.assertEqual(f'{type(reason).__name__}: {reason}',
                             row.details)

    def test_fault_names_the_failure(self):
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
            self.write(instance_history.record, uuid, reason, 'h',
                       samples.NOW, task)

            self.assertEqual(expected, self.read(
                instance_history.latest, [uuid])[uuid])

    def test_code_is_the_code_of_the_error(self):
        self.assertEqual(
            404, self.record(exception.HostMappingNotFound(host='h')).code)

    def test_code_of_an_unknown_error_is_500(self):
        # SQLAlchemy's errors have texts for codes, or nothing.
        for reason in (sa.exc.TimeoutError(code='3o7r'),
                       sa.exc.ArgumentError(), RuntimeError()):
            self.assertEqual(500, self.record(reason).code)

    def test_long_message_is_cut_and_its_details_are_not(self):
        row = self.record(exception.NoValidHost(reason='é' * 1000))

        self.assertEqual(instance_history.MESSAGE_MAX, len(row.message))
        self.assertTrue(row.details.endswith('é' * 1000))

    def test_unstorable_characters_are_replaced(self):
        row = self.record(exception.NoValidHost(reason='a\0b\ud800c'))

        self.assertEqual('No valid host was found. ab?c', row.message)
        self.assertNotIn('\0', row.details)

    def test_latest_message_is_returned(self):
        for reason in 'first', 'last':
            self.record(exception.NoValidHost(reason=reason))

        self.assertEqual(
            {self.uuids[0]: 'No valid host was found. last'},
            self.read(instance_history.latest, self.uuids))
        self.assertEqual({}, self.read(instance_history.latest, []))

    def test_newest_faults_of_all_servers_are_found(self):
        for reason in 'first', 'second', 'last':
            self.record(exception.NoValidHost(reason=reason))

        found = self.read(instance_history.newest_faults, 2)

        self.assertEqual(
            ['NoValidHost: No valid host was found. last',
             'NoValidHost: No valid host was found. second'],
            [each.details for each in found])

    def test_deleted_faults_are_omitted(self):
        self.record(exception.NoValidHost(reason='old'))
        self.execute(sa.update(models.instance_faults).values(deleted=1))

        self.assertEqual({}, self.read(instance_history.latest, self.uuids))
