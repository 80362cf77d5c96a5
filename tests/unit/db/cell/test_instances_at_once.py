# SPDX-License-Identifier: Apache-2.0
"""Changes of the states of several servers in one transaction."""

import types

import sqlalchemy as sa

from cellsched.db.cell import build_casts
from cellsched.db.cell import instances
from cellsched.db.cell import models
from cellsched.db.cell import states
from tests.unit.db.cell import base
from tests.unit.db import samples
from tests.unit import racing


def begin(uuid, host='h', **expected):
    return instances.Change(
        uuid, 'begin', {'host': host, 'node': 'n'},
        {'host': None, **expected})


def finish(uuid, host='h'):
    return instances.Change(
        uuid, 'finish', {'launched_at': samples.LATER}, {'host': host})


class TestTransitAll(base.TestCase):

    def create(self, count=1, **fields):
        return self.write(
            instances.create, [samples.instance(uuid, **fields)
                               for uuid in samples.uuids(count)], samples.NOW)

    def transit(self, *changes):
        return self.write(instances.transit_all, changes, samples.LATER)

    def rows(self, *uuids):
        rows = self.read(instances.get_many, uuids)
        return [(row.vm_state, row.task_state, row.host) for row in (
            rows[uuid] for uuid in uuids)]

    def test_each_transition_is_made_from_where_it_may_begin_only(self):
        known = sorted({each for transition in states.TRANSITIONS.values()
                        for each in (transition.before or ())}, key=str)
        for name, transition in states.TRANSITIONS.items():
            uuids = [uuid for before in known
                     for uuid in self.create(**before._asdict())]

            went = self.transit(*(
                instances.Change(uuid, name, {}, {}) for uuid in uuids))

            for uuid, before in zip(uuids, known, strict=True):
                allowed = (transition.before is None
                           or before in transition.before)
                self.assertEqual(allowed, uuid in went, (name, before))
                [row] = self.rows(uuid)
                self.assertEqual(
                    (transition.after.vm_state or before.vm_state,
                     transition.after.task_state) if allowed else before,
                    row[:2])

    def test_different_changes_are_made_of_different_servers(self):
        new = self.create(3)
        spawning = self.create(2, task_state='spawning', host='h')

        went = self.transit(
            begin(new[0]), finish(spawning[0]), begin(new[1], 'other'),
            finish(new[2]), finish(spawning[1], 'other'))

        self.assertEqual({new[0], new[1], spawning[0]}, went)
        self.assertEqual(
            [('building', 'spawning', 'h'), ('building', 'spawning', 'other'),
             ('building', 'scheduling', None), ('active', None, 'h'),
             ('building', 'spawning', 'h')], self.rows(*new, *spawning))
        rows = self.read(instances.get_many, new + spawning)
        self.assertEqual(
            {spawning[0]: samples.LATER},
            {uuid: row.launched_at for uuid, row in rows.items()
             if row.launched_at})

    def test_more_is_expected_of_each(self):
        first, second = self.create(2, build_attempts=1)

        self.assertEqual({second}, self.transit(
            begin(first, build_attempts=2), begin(second, build_attempts=1)))

    def test_servers_that_are_deleted_or_unknown_go_nowhere(self):
        gone, there = self.create(2)
        self.write(instances.delete, gone, samples.NOW)
        [unknown] = samples.uuids(1)

        self.assertEqual({there}, self.transit(
            begin(gone), begin(unknown), begin(there)))
        self.assertEqual(set(), self.transit(begin(gone), begin(unknown)))
        self.assertEqual(set(), self.transit())

    def test_builds_that_ended_are_not_told_of_again(self):
        ended = self.create(2, task_state='spawning', host='h')
        others = self.create(2)
        self.write(build_casts.create, [
            build_casts.BuildCast(uuid, 'h', 'n', '{}', 1.0)
            for uuid in ended + others])

        self.transit(*map(finish, ended), begin(others[0]),
                     finish(others[1]))

        left = self.read(lambda connection: connection.execute(
            sa.select(models.build_casts.c.instance_uuid)).scalars().all())
        self.assertEqual(set(others), set(left))

    def test_exactly_one_of_several_takes_each_server_on(self):
        uuids = self.create(20)

        taken = racing.race(*(
            lambda order=order, host=host: self.transit(*(
                begin(uuid, host) for uuid in order))
            for order, host in ((uuids, 'a'), (uuids[::-1], 'b'),
                                (uuids, 'c'), (uuids[::-1], 'd'))))

        self.assertEqual(20, sum(map(len, taken)))
        self.assertEqual(set(uuids), set().union(*taken))


class TestDialects(base.TestCase):
    """What other databases are told; SQLite stands for none of them."""

    def said(self, url):
        """Return the statements, and who is said to have gone.

        Of the three servers the third is not as expected.
        """
        said = []
        uuids = samples.uuids(3)
        rows = [types.SimpleNamespace(id=place, uuid=uuid)
                for place, uuid in enumerate(uuids)]

        def execute(statement, parameters):
            said.append(str(statement.compile(dialect=engine.dialect)))
            if not statement.is_dml:
                return rows
            these = parameters['these']
            found = sa.engine.IteratorResult(
                sa.engine.result.SimpleResultMetaData(['uuid']),
                iter([(uuid,) for uuid in uuids[:2]]))
            found.rowcount = int(these in uuids[:2])
            return found

        engine = sa.create_mock_engine(url, execute)
        went = instances.transit_all(
            engine, [begin(uuid) for uuid in uuids], samples.LATER)
        self.assertEqual(set(uuids[:2]), went)
        return said

    def test_postgresql_locks_in_order_and_says_who_went(self):
        for driver in 'psycopg2', 'psycopg':
            locked, changed = self.said(f'postgresql+{driver}://')

            self.assertTrue(locked.endswith(
                'ORDER BY instances.uuid FOR UPDATE'), locked)
            self.assertIn('UPDATE instances SET', changed)
            self.assertIn('RETURNING instances.uuid', changed)

    def test_mysql_locks_in_order_and_takes_one_by_one(self):
        locked, *changed = self.said('mysql+pymysql://')

        self.assertTrue(locked.endswith(
            'ORDER BY instances.uuid FOR UPDATE'), locked)
        self.assertIn('FORCE INDEX (uniq_instances0uuid)', locked)
        self.assertEqual(3, len(changed))
        for statement in changed:
            self.assertNotIn('RETURNING', statement)
            self.assertIn('instances.uuid = ', statement)
