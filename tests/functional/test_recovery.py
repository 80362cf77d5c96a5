# SPDX-License-Identifier: Apache-2.0
"""Recovery of lost and interrupted builds."""

import sqlalchemy as sa

from cellsched.conductor.tasks import build_and_schedule
from cellsched.conductor.tasks import saga as tasks
from cellsched import exception
from tests.functional import base

#: By then every lease has run out.
LATE_S = 3600

#: The hosts of each cell.
HOSTS = {'cell1': ['a1', 'a2'], 'cell2': ['b1', 'b2']}


class Death(BaseException):
    """Ends a process without cleanup."""


class Dying(tasks.Step):

    def do(self, builds):
        raise Death


class DyingTask(build_and_schedule.BuildAndSchedule):
    """A task that ends after a number of steps."""

    steps_done = 0

    def _make_steps(self):
        return [*before(super()._make_steps(), self.steps_done), Dying()]


def dying_after(steps_done):
    return type('DyingTask', (DyingTask,), {'steps_done': steps_done})


#: What a conductor does until the request is deleted.
STEPS = ['Schedule', 'FindCell', 'Decide', 'WriteRows', 'Release']


def before(steps, done):
    """Return the completed steps, and the steps before them."""
    names = [step.name for step in steps]
    return steps[:names.index(STEPS[0]) + done]


class RecoveryTestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.deploy(HOSTS)

    def accept(self, **wishes):
        """Create servers that no conductor hears of."""
        return self.unheard().servers.create(
            base.USER, 'server', wishes.pop('flavor', 'small'), **wishes)

    def assertBuilt(self, *uuids):
        for found in self.settled(uuids):
            self.assertEqual('ACTIVE', found.status, found.reason)
            self.assertIsIn(found.cell, found.uuid)
        self.assertClaimsMatch()

    def running(self):
        """Return the servers that are on hosts."""
        return sorted(uuid for host in self.world.agents
                      for uuid in self.driver(host).list_instances())


class TestRecoverer(RecoveryTestCase):

    def test_build_with_a_lost_message_is_recovered(self):
        [uuid] = self.accept()

        self.recover()
        self.assertEqual(('BUILD', None), (
            self.get(uuid).status, self.get(uuid).cell))

        self.recover(LATE_S)
        self.assertBuilt(uuid)

    def test_leased_build_is_not_recovered(self):
        [uuid] = self.accept()
        self.assertRaises(
            Death, self.task(dying_after(0)).run, base.USER, [uuid])

        self.recover(30)
        self.assertTrue(self.requested(uuid))
        self.assertHoldsNothing(uuid)

        self.recover(61)
        self.assertBuilt(uuid)

    def test_batch_is_taken_up_wherever_its_conductor_died(self):
        for number, step in enumerate(['lease', *STEPS[:-1]]):
            uuids = self.accept(min_count=3)
            self.assertRaises(
                Death, self.task(dying_after(number)).run, base.USER, uuids)
            for uuid in uuids:
                self.assertTrue(self.requested(uuid), step)
                self.assertEqual('BUILD', self.get(uuid).status, step)

            self.recover(LATE_S)

            self.assertBuilt(*uuids)

    def test_server_is_deleted_wherever_its_conductor_died(self):
        for number, step in enumerate(['lease', *STEPS]):
            [uuid] = self.accept()
            self.assertRaises(
                Death, self.task(dying_after(number)).run, base.USER, [uuid])

            self.delete(uuid)

            self.gone(uuid)
            self.assertLeftNothing(uuid)
            self.recover(LATE_S)
            self.assertLeftNothing(uuid)
            self.assertClaimsMatch()

    def test_batch_is_built_together_or_not_at_all(self):
        self.world.api.flavors.create(base.ADMIN, 'half', 4, 512, 10)
        uuids = self.accept(flavor='half', min_count=9)

        self.recover(LATE_S)

        self.assertEqual({'ERROR'}, {
            found.status for found in self.settled(uuids)})
        self.assertEqual([], self.running())
        self.assertClaimsMatch()

    def test_unreadable_request_does_not_stop_other_builds(self):
        [broken], [sound] = self.accept(), self.accept()
        table = base.api_models.build_requests
        with self.world.api.parts.database.writer() as connection:
            connection.execute(
                sa.update(table).where(table.c.instance_uuid == broken)
                .values(instance='{}'))

        self.recover(LATE_S)

        self.assertBuilt(sound)
        self.assertIn(broken, self.logs.output)


class TestSecondConductor(RecoveryTestCase):
    """The lease of the first conductor has expired, and the process runs."""

    def build(self, steps_done, uuid, meanwhile):
        """Build a server, and call a function after a number of steps."""
        class Waiting(tasks.Step):

            def do(self, builds):
                meanwhile(*builds)

        class WaitingTask(build_and_schedule.BuildAndSchedule):

            def _make_steps(self):
                steps = super()._make_steps()
                first = before(steps, steps_done)
                return [*first, Waiting(), *steps[len(first):]]

        self.task(WaitingTask).run(base.USER, [uuid])

    def test_second_conductor_finishes_a_started_build(self):
        for steps_done in range(len(STEPS)):
            [uuid] = self.accept()
            second = self.task(late_s=LATE_S)

            self.build(steps_done, uuid,
                       lambda build: second.run(base.USER, [uuid]))

            self.assertBuilt(uuid)

    def test_slow_conductor_keeps_only_the_claim_of_the_second_conductor(self):
        claims = self.world.api.parts.claims
        for steps_done in range(len(STEPS)):
            [uuid] = self.accept()
            second = self.task(late_s=LATE_S)

            def lose_capacity(build):
                # The capacity that the first conductor has found is lost.
                claims.release([uuid])
                nodes = ([build.selections[0].compute_node_uuid]
                         if build.selections else [])
                if build.cell:
                    cell = build.cell.name
                    nodes = [self.provider(cell, host) for host in HOSTS[cell]]
                for node in nodes:
                    used = {each.provider: each for each
                            in claims.usages().usages}[node]
                    claims.claim([base.claims_base.Claim(
                        f'blocker-{node[:8]}', node, {
                            'VCPU': used.capacity['VCPU']
                            - used.used.get('VCPU', 0)})])
                second.run(base.USER, [uuid])
                claims.release([f'blocker-{node[:8]}' for node in nodes])

            self.build(steps_done, uuid, lose_capacity)

            self.assertBuilt(uuid)

    def test_late_failure_of_the_first_conductor_changes_no_server(self):
        for steps_done in range(len(STEPS)):
            [uuid] = self.accept()
            second = self.task(late_s=LATE_S)

            def fail(build):
                second.run(base.USER, [uuid])
                raise exception.ClaimConflict(consumer='x')

            self.build(steps_done, uuid, fail)

            self.assertBuilt(uuid)
            self.recover(LATE_S * 2)
            self.assertBuilt(uuid)
