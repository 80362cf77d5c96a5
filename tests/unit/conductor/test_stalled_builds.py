# SPDX-License-Identifier: Apache-2.0
"""Going on with builds that nobody took up."""

import dataclasses

from amqp import exceptions as amqp_exc
import sqlalchemy as sa

from cellsched.db.api import instance_mappings
from cellsched.db.api import models as api_models
from cellsched.db.cell import build_casts
from cellsched.db.cell import build_message
from cellsched.db.cell import instances
from cellsched.db.cell import models
from cellsched.db.cell import services
from tests.unit.conductor import base
from tests.unit.conductor import lost
from tests.unit.db import samples

PATIENCE = lost.PATIENCE


class TestStalledBuilds(lost.StalledBuildsTestCase):

    def test_host_that_was_told_just_now_has_its_time(self):
        self.clock.advance(59)

        self.lost.run()

        self.assertEqual(([], []), (self.sent(), self.handed_on))

    def test_host_that_did_not_begin_is_told_again(self):
        self.wait()

        self.lost.run()
        self.lost.run()

        self.assertEqual([('a1', self.uuid)], self.sent())
        [client] = self.compute.clients.values()
        message = build_message.BuildMessage.read(self.kept)
        self.assertEqual(
            message.filter_properties,
            client.sent[0].arguments['filter_properties'])
        self.assertEqual(2, self.kept.casts)

    def test_host_that_cannot_be_told_again_is_told_later(self):
        self.wait()
        client = self.compute.get(
            self.transports.get(self.cells['cell1'].transport_url))
        client.failure = amqp_exc.AccessRefused('wrong password')

        self.lost.run()

        self.assertIn('AccessRefused', self.logs.output)
        self.assertNotIn('Traceback', self.logs.output)
        client.failure = None
        self.wait(2 * 61)
        self.lost.run()
        self.assertEqual([('a1', self.uuid)], self.sent())

    def test_host_has_twice_as_long_each_time(self):
        self.wait()
        self.lost.run()
        self.compute.clients.clear()

        self.wait(119)
        self.lost.run()
        self.assertEqual([], self.sent())

        self.wait(2)
        self.lost.run()
        self.assertEqual([('a1', self.uuid)], self.sent())

    def test_full_page_is_followed_by_the_next_at_once(self):
        self.lost = self.make_lost(page=2)
        uuids = [self.uuid, *(self.accept()[0] for _ in range(4))]
        for uuid in uuids[1:]:
            self.claims.release(uuids)
            self.task().run(base.USER, [uuid])
        self.compute.clients.clear()
        self.wait()

        self.lost.run()

        self.assertEqual(sorted(uuids), sorted(
            uuid for _, uuid in self.sent()))

    def test_another_host_is_tried_after_some_times(self):
        for number in range(PATIENCE.casts):
            self.wait(61 * 2 ** number)
            self.lost.run()

        self.assertEqual(PATIENCE.casts - 1, len(self.sent()))
        self.assertHandedOn()

    def test_another_host_is_tried_where_the_first_one_is_down(self):
        for state in (
                {'task_state': 'scheduling'},
                {'task_state': 'spawning', 'host': 'a1', 'node': 'n'}):
            self.put(**state)
            self.clock.advance(2 * PATIENCE.timeout_s + 1)

            self.lost.run()

            self.assertHandedOn()
            self.conductors.clients.clear()
        self.assertEqual([], self.sent())

    def test_host_that_is_forced_down_is_down(self):
        self.wait()
        with self.cell.writer() as connection:
            services.set_forced_down(
                connection, 'a1', True, self.clock.now())

        self.lost.run()

        self.assertHandedOn()

    def test_build_under_way_on_a_host_that_lives_is_left(self):
        self.put(task_state='spawning', host='a1')
        self.wait()

        self.lost.run()

        self.assertEqual(([], []), (self.sent(), self.handed_on))
        self.assertEqual('spawning', self.row(self.uuid).task_state)
        self.assertEqual(self.clock.steady(), self.kept.cast_at)

    def test_conductor_that_was_lost_is_told_again(self):
        self.put(task_state=None, build_attempts=2)
        self.wait()

        self.lost.run()

        self.assertHandedOn(tried=2)

    def test_try_that_was_counted_and_not_made_is_made(self):
        self.put(build_attempts=2)
        self.clock.advance(PATIENCE.down_s + 1)

        self.lost.run()

        self.assertHandedOn(tried=2)

    def test_what_has_ended_is_forgotten(self):
        kept = self.kept
        for values in ({'vm_state': 'active', 'task_state': None},
                       {'vm_state': 'error', 'task_state': None},
                       {'task_state': 'deleting'}, {'deleted': 1}):
            self.put(**{'vm_state': 'building', **values})
            with self.cell.writer() as connection:
                build_casts.replace(connection, kept)
            self.clock.advance(PATIENCE.down_s + 1)

            self.lost.run()

            self.assertIsNone(self.kept, values)
        self.assertEqual(([], []), (self.sent(), self.handed_on))

    def test_build_whose_request_is_there_is_anothers(self):
        builds = dict.fromkeys(self.accept(2))
        with self.database.writer() as connection:
            # Of one of them nobody has said yet where it is to be.
            instance_mappings.decide(
                connection, list(builds)[:1], self.cells['cell1'].id,
                self.clock.now())
        for uuid in builds:
            with self.cell.writer() as connection:
                instances.create(
                    connection, [samples.instance(uuid)], self.clock.now())
                build_casts.create(connection, [
                    build_message.BuildMessage.first(
                        [self.selection('a1')], None,
                    ).kept(uuid, self.clock.steady() - 100)])
                builds[uuid] = build_casts.get(connection, uuid)

        self.lost.run()

        self.assertEqual(([], []), (self.sent(), self.handed_on))
        for uuid, kept in builds.items():
            self.assertEqual(['cell1'], [*self.rows(uuid)])
            with self.cell.reader() as connection:
                now = build_casts.get(connection, uuid)
            # It was looked at, and nothing else.
            self.assertEqual(
                kept, dataclasses.replace(now, cast_at=kept.cast_at))

    def test_build_whose_server_is_in_another_cell_is_removed(self):
        elsewhere = self.targets.database(self.cells['cell2'])
        with elsewhere.writer() as connection:
            instances.create(connection, [samples.instance(self.uuid)],
                             self.clock.now())
            build_casts.create(connection, [
                build_message.BuildMessage.first(
                    [self.selection('b1')], None,
                ).kept(self.uuid, self.clock.steady())])
        self.wait()

        self.lost.run()

        self.assertEqual(['cell1'], [*self.rows(self.uuid)])
        with elsewhere.reader() as connection:
            self.assertIsNone(build_casts.get(connection, self.uuid))
        self.assertEqual([('a1', self.uuid)], self.sent())

    def assertRemovedAfter(self, change):
        """The build goes after this change of the server's mapping."""
        table = api_models.instance_mappings
        with self.database.writer() as connection:
            connection.execute(
                change.where(table.c.instance_uuid == self.uuid))
        self.wait()

        self.lost.run()

        self.assertEqual(({}, None), (self.rows(self.uuid), self.kept))
        self.assertEqual(([], []), (self.sent(), self.handed_on))

    def test_build_of_a_server_that_is_in_no_cell_is_removed(self):
        self.assertRemovedAfter(
            sa.update(api_models.instance_mappings).values(cell_id=None))

    def test_build_of_a_server_that_is_not_mapped_is_removed(self):
        self.assertRemovedAfter(sa.delete(api_models.instance_mappings))

    def test_cell_that_does_not_answer_keeps_no_other_waiting(self):
        with self.targets.database(
                self.cells['cell2']).writer() as connection:
            models.METADATA.drop_all(connection)
        self.wait()

        self.lost.run()

        self.assertEqual([('a1', self.uuid)], self.sent())
        cell = self.cells['cell2']
        self.assertIn(f'Cell {cell.identity} is not asked for lost builds',
                      self.logs.output)

    def test_build_that_cannot_be_gone_on_with_keeps_no_other_waiting(self):
        [other] = self.accept()
        self.task().run(base.USER, [other])
        self.compute.clients.clear()
        with self.cell.writer() as connection:
            connection.execute(
                sa.update(models.build_casts)
                .where(models.build_casts.c.instance_uuid == self.uuid)
                .values(message='no JSON'))
        self.wait()

        self.lost.run()

        self.assertEqual([('a1', other)], self.sent())
        self.assertIn(self.uuid, self.logs.output)
