# SPDX-License-Identifier: Apache-2.0
"""Queries for what schedulers decided."""

import json

import sqlalchemy as sa

from cellsched import clock
from cellsched.db.api import decisions
from cellsched.db.api import models
from cellsched.db import session
from tests.unit import base as unit_base
from tests.unit.db.api import base
from tests.unit.db import samples
from tests.unit import racing


class TestDecisions(base.TestCase):

    def setUp(self):
        super().setUp()
        self.one, self.two, self.three = sorted(samples.uuids(3))

    def create(self, *made):
        self.write(decisions.create, [
            decisions.DecisionRow(
                request_id, decided_at, instances, json.dumps(document))
            for request_id, decided_at, instances, document in made],
            samples.NOW)

    def found(self, name, *args):
        return [each.document['n'] for each in self.read(
            decisions.find, name, *args)]

    def rows(self):
        return [self.read(lambda connection: connection.scalar(
            sa.select(sa.func.count()).select_from(table)))
            for table in (models.scheduler_decisions,
                          models.decision_instances)]

    def test_decision_is_stored_as_created(self):
        self.create(('req-1', 5.25, [self.two, self.one, self.two],
                     {'n': 1, 'text': 'ü\0', 'list': [1.5, None]}))

        [found] = self.read(decisions.find, self.one)

        self.assertEqual(
            ('req-1', 5.25, [self.two, self.one],
             {'n': 1, 'text': 'ü\0', 'list': [1.5, None]}),
            (found.request_id, found.decided_at, found.instances,
             found.document))

    def test_decisions_of_an_instance_or_request_are_newest_first(self):
        self.create(('req-1', 3.0, [self.one, self.two], {'n': 1}),
                    ('req-2', 1.0, [self.one], {'n': 2}),
                    ('req-1', 3.0, [self.three], {'n': 3}),
                    (None, 9.0, [self.one], {'n': 4}))

        for name, *args, wanted in (
                (self.one, [4, 1, 2]), (self.one, 2, [4, 1]),
                (self.two, [1]), ('req-1', [3, 1]), ('req-2', [2]),
                ('req-3', []), ('', [])):
            self.assertEqual(wanted, self.found(name, *args), name)

    def test_latest_decisions_have_their_instances(self):
        self.create(('req-1', 3.0, [self.two, self.one], {'n': 1}),
                    (None, 1.0, [self.one], {'n': 2}),
                    ('req-3', 2.0, [], {'n': 3}))

        found = self.read(decisions.latest, 2)

        self.assertEqual(
            [(1, [self.two, self.one]), (3, [])],
            [(each.document['n'], each.instances) for each in found])

    def test_old_decisions_are_deleted_oldest_first(self):
        self.create(*((f'req-{at}', float(at), [self.one, self.two],
                       {'n': at}) for at in (3, 1, 2, 4)))

        self.assertEqual(2, self.write(decisions.purge, 4.0, 2))
        self.assertEqual([4, 3], self.found(self.one))
        self.assertEqual(1, self.write(decisions.purge, 4.0, 2))
        self.assertEqual(0, self.write(decisions.purge, 4.0, 2))

        self.assertEqual([4], self.found(self.two))
        self.assertEqual([1, 2], self.rows())

    def test_empty_lists_of_decisions_and_instances_are_accepted(self):
        self.create()
        self.create(('req-1', 1.0, [], {'n': 1}))

        self.assertEqual([1, 0], self.rows())
        self.assertEqual([1], self.found('req-1'))

    def test_several_may_remove_at_a_time(self):
        self.create(*((None, float(at), [self.one, self.two], {'n': at})
                      for at in range(40)))

        gone = racing.race(*[
            lambda: self.write(decisions.purge, 30.0, 40)] * 4)

        self.assertEqual(30, sum(gone))
        self.assertEqual([10, 20], self.rows())

    def test_many_decisions_are_purged_at_once(self):
        self.create(*((None, 1.0, samples.uuids(1), {'n': n})
                      for n in range(1100)))

        self.assertEqual(1050, self.write(decisions.purge, 2.0, 1050))

        self.assertEqual([50, 50], self.rows())


class TestTables(unit_base.TestCase):

    def setUp(self):
        super().setUp()
        self.path = self.temporary_directory() / 'records.sqlite'
        self.database = session.Database(
            f'sqlite:///{self.path}', 'records', clock=clock.Clock())
        self.addCleanup(self.database.close)

    def call(self, function, *args):
        with self.database.writer() as connection:
            return function(connection, *args)

    def test_tables_of_decisions_are_made_alone_and_once(self):
        self.assertFalse(self.call(decisions.has_tables))

        self.call(decisions.create_tables)
        self.call(decisions.create, [
            decisions.DecisionRow('req-1', 1.0, ['i'], '{"n": 1}')],
            samples.NOW)
        self.call(decisions.create_tables)

        self.assertTrue(self.call(decisions.has_tables))
        self.assertEqual(1, len(self.call(decisions.find, 'i')))
        self.assertEqual(
            ['decision_instances', 'scheduler_decisions'],
            sorted(self.call(lambda connection: sa.inspect(
                connection).get_table_names())))
