# SPDX-License-Identifier: Apache-2.0
"""Each action on a server ends, with its result and the host that did it."""

import sqlalchemy as sa

from cellsched.db.cell import models
from tests.functional import base
from tests.functional import moving


class TestEvents(moving.TestCase):

    def setUp(self):
        super().setUp()
        self.start()
        self.uuid = self.active()
        self.host = self.row(self.uuid).host

    def events(self, uuid=None):
        """Return action, result and host of all actions, the newest first."""
        return [(each.action, each.result, each.host)
                for each in self.world.api.history.actions(
                    base.ADMIN, uuid or self.uuid)]

    def assertLast(self, *expected):
        self.soon(lambda: self.assertEqual(expected, self.events()[0]))

    def stored(self, uuid):
        """Return the stored actions, also of a deleted server."""
        actions, events = (
            models.instance_actions.c, models.instance_actions_events.c)
        found = self.query('cell1', sa.select(
            actions.action, actions.finish_time, events.event, events.result,
            events.host)
            .select_from(models.instance_actions.outerjoin(
                models.instance_actions_events))
            .where(actions.instance_uuid == uuid))
        self.assertNotIn(None, [row.finish_time for row in found])
        return {(row.action, row.event, row.result, row.host)
                for row in found}

    def test_build_ends_with_its_host(self):
        [create] = self.world.api.history.actions(base.ADMIN, self.uuid)

        self.assertEqual(('create', 'Success', self.host, ''), (
            create.action, create.result, create.host, create.reason))
        self.assertLessEqual(create.started_at, create.finished_at)
        [create] = self.world.api.history.actions(base.USER, self.uuid)
        self.assertEqual(('Success', ''), (create.result, create.host))

    def test_moves_end_with_their_hosts(self):
        other = self.other(self.host)
        self.moves.migrate(base.ADMIN, self.uuid)
        self.assertLast('migrate', 'Success', other)
        self.moves.rebuild(base.USER, self.uuid)
        self.assertLast('rebuild', 'Success', other)
        self.moves.shelve(base.USER, self.uuid)
        self.assertLast('shelve', 'Success', other)
        self.moves.unshelve(base.USER, self.uuid)
        host = self.rested(self.uuid).host
        self.assertLast('unshelve', 'Success', host)
        self.down(host)
        self.moves.evacuate(base.ADMIN, self.uuid)
        self.assertLast('evacuate', 'Success', self.other(host))

    def test_refused_move_ends_in_an_error(self):
        self.world.api.services.set(
            base.ADMIN, self.other(self.host), 'nova-compute', True, 'broken')

        self.moves.migrate(base.ADMIN, self.uuid)

        self.rested(self.uuid)
        action, result, host = self.events()[0]
        self.assertEqual(('migrate', 'Error'), (action, result))
        self.assertNotEqual('', host)

    def test_deletion_ends_with_its_host(self):
        self.delete(self.uuid)
        self.assertIsGone(self.uuid)

        self.assertEqual({
            ('create', 'compute__do_build_and_run_instance', 'Success',
             self.host),
            ('delete', 'compute_terminate_instance', 'Success', self.host),
        }, self.stored(self.uuid))

    def test_deletion_of_a_dead_host_ends_without_a_host(self):
        for server in self.world.agents[self.host].servers:
            server.stop()
            server.wait()
        self.down(self.host)

        self.delete(self.uuid)
        self.gone(self.uuid)

        self.assertIn(('delete', None, None, None), self.stored(self.uuid))

    def test_build_failed_on_all_hosts_ends_in_an_error(self):
        for host in self.host, self.other(self.host):
            self.driver(host).fail_builds(1)

        [failed] = self.built(name='failed')

        self.assertEqual(('ERROR', 'cell1'), (failed.status, failed.cell))
        self.assertEqual(
            [('create', 'Error')],
            [each[:2] for each in self.events(failed.uuid)])
        self.assertEqual(
            [('compute__do_build_and_run_instance', 'Error')] * 2
            + [('conductor_build_instances', 'Error')],
            [each[1:3] for each in sorted(self.stored(failed.uuid))])

    def test_build_in_cell0_ends_in_an_error(self):
        self.world.api.flavors.create(base.ADMIN, 'huge', 1, 10 ** 8, 10)
        [buried] = self.built(flavor='huge')

        [create] = self.world.api.history.actions(base.ADMIN, buried.uuid)

        self.assertEqual('Error', create.result)
        self.assertIn('No valid host', create.reason)
