# SPDX-License-Identifier: Apache-2.0
"""Servers that move or are interrupted have the parts of their claims."""

import sqlalchemy as sa

from cellsched.db.cell import models
from tests.functional import base
from tests.functional import hardware
from tests import profile

#: The steps of a build at which its agent is killed.
STEPS = ('GiveNetworks', 'Begin', 'Spawn', 'Finish')

#: The same for a conductor; the scheduler has claimed.
CONDUCTOR_STEPS = ('Schedule', 'Decide', 'WriteRows')


class TestMoves(hardware.TestCase):
    """Three servers, so that only one has room on the other host."""

    def setUp(self):
        super().setUp()
        servers = self.built(flavor='telecom', min_count=3)
        hosts = [each.host for each in servers]
        self.uuid, self.host = next(
            (each.uuid, each.host) for each in servers
            if hosts.count(each.host) == 2)
        self.named = self.assertHas(self.uuid, self.host)

    def arrives(self, host):
        """Wait until the server is on a host, with other parts."""
        self.until(lambda: set(self.statuses(self.uuid)) == {'done'},
                   'its moves are done')
        self.assertEqual(host, self.rested(self.uuid).host)
        self.assertHas(self.uuid, host)

    def test_each_move_keeps_or_moves_the_parts(self):
        other = self.other(self.host)
        self.moves.rebuild(base.USER, self.uuid)
        self.arrives(self.host)
        self.assertEqual(self.named, self.placed(self.host)[self.uuid])

        self.moves.migrate(base.ADMIN, self.uuid)
        self.arrives(other)

        self.moves.shelve(base.USER, self.uuid)
        self.until(lambda: self.rested(self.uuid).host is None, 'shelved')
        self.assertHasNone(self.uuid)
        self.moves.unshelve(base.USER, self.uuid)
        self.arrives(self.rested(self.uuid).host)

        host = self.row(self.uuid).host
        self.driver(self.other(host)).fail_builds(1)
        before = self.placed(host)[self.uuid]
        self.moves.migrate(base.ADMIN, self.uuid)
        self.until(lambda: 'error' in self.statuses(self.uuid), 'it failed')
        self.assertEqual(host, self.rested(self.uuid).host)
        self.assertEqual(before, self.assertHas(self.uuid, host))

    def test_parts_of_a_dead_host_are_free_once_its_guest_is_gone(self):
        driver = self.driver(self.host)
        destroy, driver.destroy = driver.destroy, self.refuse
        self.down(self.host)
        self.moves.evacuate(base.ADMIN, self.uuid)
        self.until(lambda: self.statuses(self.uuid) == ['finished'],
                   'it is evacuated')
        self.down(self.host, down=False)
        self.restart(self.host)

        # A server that claims the parts is not built beside the old guest.
        [refused] = self.built(flavor='telecom')
        self.assertEqual('ERROR', refused.status)
        self.assertIn('still uses the CPUs', self.problem(refused.uuid))
        self.assertHasNone(refused.uuid)
        self.assertEqual(self.named, self.placed(self.host)[self.uuid])

        driver.destroy = destroy
        self.restart(self.host)
        self.arrives(self.other(self.host))
        [built] = self.built(flavor='telecom')
        self.assertEqual('ACTIVE', built.status)
        self.assertEqual(self.named, self.assertHas(built.uuid, self.host))

    def refuse(self, instance):
        raise RuntimeError('the guest does not stop')

    def problem(self, uuid):
        """Return the reason for which a host did not build a server."""
        table, actions = models.instance_actions_events, (
            models.instance_actions)
        return str(self.query('cell1', sa.select(table.c.details).join(
            actions, actions.c.id == table.c.action_id).where(
                actions.c.instance_uuid == uuid)))


@profile.by_default(
    'test_server_has_the_parts_of_its_claim_after_an_agent_is_killed',
    reason='another process, or another fate of the server')
class TestKilled(hardware.TestCase):
    """A process is killed between the claim and the end of the build."""

    def killed_at(self, step):
        """Return a server that is built when a process is killed."""
        self.done.clear()
        self.at[step] = self.kill
        [uuid] = self.create(flavor='telecom')
        self.until(lambda: step in self.done, f'{step} is done')
        return uuid

    def assertIsBuilt(self, uuid):
        [server] = self.settled([uuid])
        self.assertEqual('ACTIVE', server.status)
        self.assertHas(uuid, server.host)
        self.delete(uuid)
        self.gone(uuid)
        self.assertHasNone(uuid)

    def test_server_has_the_parts_of_its_claim_after_an_agent_is_killed(self):
        for step in STEPS[:profile.size(1, len(STEPS))]:
            uuid = self.killed_at(step)
            self.restart(self.row(uuid).host)

            self.assertIsBuilt(uuid)

    def test_server_has_its_parts_after_a_conductor_is_killed(self):
        for step in CONDUCTOR_STEPS[:profile.size(1, 3)]:
            uuid = self.killed_at(step)
            self.recover(late_s=600)

            self.assertIsBuilt(uuid)

    def test_deleted_server_leaves_no_parts_on_a_dead_host(self):
        uuid = self.killed_at('GiveNetworks')
        host = self.row(uuid).host
        self.world.agents[host].stop()
        self.delete(uuid)

        self.restart(host)

        self.gone(uuid)
        self.assertHasNone(uuid)
