# SPDX-License-Identifier: Apache-2.0
"""Decisions are recorded in a database separate from Nova's."""

import pathlib
import tempfile
import threading

import nova.conf
from nova import context as nova_context

from cellsched import exception
from cellsched.scheduler.explanation import decision_record
from cellsched.testing import builders
from cellsched_nova import configuration
from cellsched_nova import records
from tests import configuration_fixtures

CONF = nova.conf.CONF

SERVER = '10000000-0000-4000-8000-000000000000'


class TestCase(configuration_fixtures.TestCase):

    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        CONF.set_override('state_path', str(self.directory))
        self.addCleanup(CONF.clear_override, 'state_path')

    def open(self):
        database = records.open_database(CONF)
        self.addCleanup(database.close)
        return database

    def connect_to(self, url):
        CONF.set_override('records_connection', url, 'cellsched')
        self.addCleanup(
            CONF.clear_override, 'records_connection', 'cellsched')


class RacingDatabase:
    """A database in which another process creates the tables first."""

    def __init__(self, database):
        self._database = database
        self._lost = False

    def writer(self):
        if not self._lost:
            self._lost = True
            raise RuntimeError('table decisions already exists')
        return self._database.writer()


class TestRecords(TestCase):

    def record(self, kept, reason='because', **wishes):
        kept.record(
            nova_context.RequestContext(request_id='req-1'),
            builders.request(**wishes), [SERVER],
            decision_record.Decision(3, (), (), reason))

    def found(self, name=SERVER):
        return [each.document['reason']
                for each in records.find(self.open(), name, None)]

    def test_decision_is_found_by_server_and_request(self):
        kept = records.DecisionRecords(self.open(), 60)
        self.record(kept)

        kept.flush()

        self.assertTrue((self.directory / 'cellsched.sqlite').exists())
        for name in (SERVER, 'req-1'):
            self.assertEqual(['because'], self.found(name))

    def test_request_with_fields_of_nova_only_is_recorded(self):
        kept = records.DecisionRecords(self.open(), 60)
        self.record(kept, extra_specs={'resources:VGPU': 'many'})

        kept.flush()

        self.assertEqual(['because'], self.found())

    def test_queued_decision_is_written_at_the_end(self):
        kept = records.DecisionRecords(self.open(), 60)
        kept.start()
        self.record(kept)

        kept.stop()

        self.assertEqual(['because'], self.found())

    def test_two_schedulers_share_a_database(self):
        for reason in ('first', 'second'):
            kept = records.DecisionRecords(self.open(), 60)
            self.record(kept, reason)
            kept.flush()

        self.assertEqual({'first', 'second'}, {*self.found()})

    def test_tables_created_by_another_process_are_used(self):
        kept = records.DecisionRecords(RacingDatabase(self.open()), 60)
        self.record(kept)

        with self.assertNoLogs('cellsched_nova'):
            kept.flush()

        self.assertEqual(['because'], self.found())

    def test_read_creates_no_database(self):
        self.assertEqual([], self.found())
        self.assertEqual([], list(self.directory.iterdir()))

    def test_database_without_tables_has_no_decisions(self):
        with self.open().writer() as connection:
            connection.exec_driver_sql('CREATE TABLE other (id INTEGER)')

        self.assertEqual([], self.found())

    def test_retention_of_zero_creates_no_database(self):
        kept = records.DecisionRecords(self.open(), 0)
        threads = threading.enumerate()
        kept.start()
        self.assertLessEqual({*threading.enumerate()}, {*threads})
        self.record(kept)

        kept.stop()

        self.assertEqual([], list(self.directory.iterdir()))

    def test_decisions_wait_for_an_unreachable_database(self):
        place = self.directory / 'later'
        self.connect_to(f'sqlite:///{place}/records.sqlite')
        kept = records.DecisionRecords(self.open(), 60)
        self.record(kept)
        with self.assertLogs('cellsched_nova', 'ERROR') as logs:
            kept.flush()
            kept.flush()
        self.assertEqual(1, len(logs.records))
        place.mkdir()

        kept.flush()

        self.assertEqual(['because'], self.found())


class TestConnection(TestCase):

    def test_invalid_url_is_named_at_the_start(self):
        self.connect_to('nodb://user:secret@host/x')

        self.assertRaises(exception.ConfigurationInvalid, self.open)
        [line] = configuration.problems(CONF)

        self.assertIn('[cellsched] records_connection', line)
        self.assertNotIn('secret', line)
