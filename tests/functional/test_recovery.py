# SPDX-License-Identifier: Apache-2.0
"""Recovery of lost, repeated and interrupted builds."""

import sqlalchemy as sa

from cellsched.conductor.tasks import build_and_schedule
from cellsched.conductor.tasks import saga as tasks
from cellsched.db.cell import models
from cellsched import exception
from cellsched.rpc import client
from cellsched.rpc import compute
from cellsched.rpc import conductor
from tests.functional import base
from tests.unit import racing

#: By then every lease has run out.
LATE_S = 3600


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
        self.deploy({'cell1': ['a1', 'a2'], 'cell2': ['b1', 'b2']})

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

    def test_build_is_taken_up_wherever_its_conductor_died(self):
        for number, step in enumerate(['lease', *STEPS[:-1]]):
            [uuid] = self.accept()
            self.assertRaises(
                Death, self.task(dying_after(number)).run, base.USER, [uuid])
            self.assertTrue(self.requested(uuid), step)
            self.assertEqual('BUILD', self.get(uuid).status, step)

            self.recover(LATE_S)

            self.assertBuilt(uuid)

    def test_batch_is_taken_up_wherever_its_conductor_died(self):
        for number, step in enumerate(STEPS[:-1], 1):
            uuids = self.accept(min_count=3)
            self.assertRaises(
                Death, self.task(dying_after(number)).run, base.USER, uuids)

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


class TestRepeats(RecoveryTestCase):

    def test_repeated_message_changes_no_server(self):
        [found] = self.built()
        [lost] = self.built(flavor='huge')
        before = self.rows(found.uuid)
        claims = self.held(found.uuid)

        for _ in range(3):
            self.task(late_s=LATE_S).run(base.USER, [found.uuid, lost.uuid])

        self.assertEqual(before, self.rows(found.uuid))
        self.assertEqual(claims, self.held(found.uuid))
        self.assertIsIn(found.cell, found.uuid)
        self.assertIsIn('cell0', lost.uuid)
        self.assertEqual([found.uuid], self.running())
        self.assertClaimsMatch()

    def test_simultaneous_messages_build_once(self):
        uuids = self.accept(min_count=4)
        transport = self.world.api.parts.transports.get()

        racing.race(*[
            lambda: conductor.ConductorAPI(transport).build_and_schedule(
                base.USER, uuids)
            for _ in range(5)])

        self.assertBuilt(*uuids)
        self.assertEqual(sorted(uuids), self.running())

    def test_second_conductor_finishes_a_started_build(self):
        """The first one's lease has run out, but it is not dead."""
        for steps_done in range(len(STEPS)):
            [uuid] = self.accept()
            second = self.task(late_s=LATE_S)

            class Slow(tasks.Step):

                def do(self, builds):
                    second.run(base.USER, [uuid])

            class SlowTask(build_and_schedule.BuildAndSchedule):

                def _make_steps(self):
                    steps = super()._make_steps()
                    first = before(steps, steps_done)
                    return [*first, Slow(), *steps[len(first):]]

            self.task(SlowTask).run(base.USER, [uuid])

            self.assertBuilt(uuid)

    def test_slow_conductor_keeps_only_the_claim_of_the_second_conductor(self):
        claims = self.world.api.parts.claims
        for steps_done in range(len(STEPS)):
            [uuid] = self.accept()
            second = self.task(late_s=LATE_S)

            class Slow(tasks.Step):

                def do(self, builds):
                    # The room that the first one has found is lost.
                    claims.release([uuid])
                    [build] = builds
                    hosts = ([build.selections[0].compute_node_uuid]
                             if build.selections else [])
                    if build.cell:
                        hosts = [
                            node for host in ('1', '2') for node in [
                                self.case.provider_of(
                                    {'cell1': 'a', 'cell2': 'b'}[
                                        build.cell.name] + host)]]
                    for node in hosts:
                        used = {each.provider: each for each
                                in claims.usages().usages}[node]
                        claims.claim([base.claims_base.Claim(
                            f'blocker-{node[:8]}', node, {
                                'VCPU': used.capacity['VCPU']
                                - used.used.get('VCPU', 0)})])
                    second.run(base.USER, [uuid])
                    claims.release([f'blocker-{node[:8]}' for node in hosts])

            Slow.case = self

            class SlowTask(build_and_schedule.BuildAndSchedule):

                def _make_steps(self):
                    steps = super()._make_steps()
                    first = before(steps, steps_done)
                    return [*first, Slow(), *steps[len(first):]]

            self.task(SlowTask).run(base.USER, [uuid])

            self.assertBuilt(uuid)

    def test_late_failure_of_the_first_conductor_changes_no_server(self):
        for steps_done in range(len(STEPS)):
            [uuid] = self.accept()
            second = self.task(late_s=LATE_S)

            class Failing(tasks.Step):

                def do(self, builds):
                    second.run(base.USER, [uuid])
                    raise exception.ClaimConflict(consumer='x')

            class FailingTask(build_and_schedule.BuildAndSchedule):

                def _make_steps(self):
                    return [*before(super()._make_steps(), steps_done),
                            Failing()]

            self.task(FailingTask).run(base.USER, [uuid])

            self.assertBuilt(uuid)
            self.recover(LATE_S * 2)
            self.assertBuilt(uuid)

    def test_repeated_build_message_changes_no_server(self):
        [found] = self.built()
        before = self.rows(found.uuid)

        self.send_build(found.cell, found.host, found.uuid, tried=1)

        self.assertEqual(before, self.rows(found.uuid))
        self.assertBuilt(found.uuid)

    def test_build_message_of_an_earlier_attempt_is_ignored(self):
        [uuid] = self.accept()
        self.assertRaises(Death, self.task(dying_after(len(STEPS))).run,
                          base.USER, [uuid])
        cell = self.mapped(uuid)
        [first] = [host for host in self.world.agents if self.provider_of(
            host) == self.held(uuid)[0].provider]
        [other] = [host for host in self.world.agents
                   if host[0] == first[0] and host != first]
        # It failed on the first host and is on its way to the other.
        database = self.world.api.parts.targets.database(self.cells()[cell])
        with database.writer() as connection:
            connection.execute(sa.update(models.instances).values(
                build_attempts=2))
        claims = self.world.api.parts.claims
        claims.release([uuid])
        claims.claim([base.claims_base.Claim(
            uuid, self.provider_of(other), base.SMALL)])

        self.send_build(cell, first, uuid, tried=1)
        self.assertEqual([], self.running())
        self.send_build(cell, other, uuid, tried=2)

        [found] = self.settled([uuid])
        self.assertEqual(('ACTIVE', other, 2), (
            found.status, found.host, found.attempts))
        self.assertClaimsMatch()

    def test_repeated_deletion_message_changes_no_server(self):
        [found] = self.built()
        instance = base.objects.Instance(uuid=found.uuid)
        self.delete(found.uuid)
        self.gone(found.uuid)

        self.agents(found.cell).call(
            base.USER, 'terminate_instance', None, found.host,
            instance=instance)

        self.assertLeftNothing(found.uuid)
        self.assertClaimsMatch()

    def provider_of(self, host):
        return self.provider({'a': 'cell1', 'b': 'cell2'}[host[0]], host)

    def agents(self, cell):
        """Return a client that can wait until an agent is done."""
        transports = self.world.api.parts.transports
        return client.Client(
            transports.get(self.cells()[cell].transport_url), compute.TOPIC,
            compute.VERSION)

    def send_build(self, cell, host, uuid, tried):
        """Tell a host to build, and wait until it has done so."""
        self.agents(cell).call(
            base.USER, 'build_and_run_instance', None, host,
            instance=base.objects.Instance(uuid=uuid),
            request_spec=base.objects.RequestSpec(instance_uuid=uuid),
            filter_properties={'retry': {
                'num_attempts': tried, 'hosts': [[host, host]]}},
            node=host, limits={}, host_list=[])
