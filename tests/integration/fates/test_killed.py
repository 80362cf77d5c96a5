# SPDX-License-Identifier: Apache-2.0
"""Each service is killed at each of its steps, and each build ends once."""

from tests.integration.fates import killed
from tests.integration.fates import world
from tests import profile

#: What a conductor has done, in order, when it dies.
STEPS = ('Lease', 'Expire', 'RemoveFromCell0', 'Schedule', 'FindCell',
         'Decide', 'WriteRows', 'Release', 'Cast')

#: The same for a build that fits nowhere.
STEPS_OF_BURIAL = ('Schedule', 'undone Schedule', 'Bury')


class TestConductor(killed.Killed):

    def die(self, step: str, flavor: str, count: int) -> list[str]:
        """Have servers built by a conductor that dies; return their uuids."""
        victim = self.start('conductor', 'api', die_at=step)
        uuids = self.create(step, flavor, count)
        self.assertTrue(victim.wait('ended')['killed'])
        return uuids

    def survive(self, step: str, count: int) -> None:
        uuids = self.die(step, 'small', count)
        self.start('conductor', 'api')
        for uuid in uuids:
            self.assertEnds(uuid, 'ACTIVE')
        self.remove(*uuids)

    def delete(self, step: str, count: int) -> None:
        first, *others = uuids = self.die(step, 'small', count)
        self.world.api.servers.delete(world.USER, first)
        self.start('conductor', 'api')
        for uuid in others:
            self.assertEnds(uuid, 'ACTIVE')
        self.assertEnds(first, None)
        self.remove(*uuids)

    def bury(self, step: str) -> None:
        uuids = self.die(step, 'giant', 2)
        self.start('conductor', 'api')
        for uuid in uuids:
            self.assertEnds(uuid, 'ERROR')
            self.assertEqual('cell0', self.world.mapped(uuid))
        self.remove(*uuids)


class TestScheduler(killed.Killed):

    def test_server_is_built_once_after_its_host_was_claimed(self):
        self.world.scheduler.kill()
        victim = self.start('scheduler', 'api', die_at='Select')
        self.start('conductor', 'api')
        [uuid] = self.create('claimed')
        self.assertTrue(victim.wait('ended')['killed'])
        self.assertEqual('BUILD', self.world.status(uuid))

        self.world.scheduler = self.world.start('scheduler', 'api')

        self.assertEnds(uuid, 'ACTIVE')
        self.remove(uuid)


class TestAPI(killed.Killed):
    """The process dies in which a user's request is accepted."""

    def setUp(self):
        super().setUp()
        self.start('conductor', 'api')

    def call(self, die_at: str, call: str, **arguments) -> None:
        child = self.world.start(
            'api', 'api', call=call, arguments=arguments, die_at=die_at)
        self.assertTrue(child.wait('ended')['killed'])

    def test_accepted_servers_are_built_without_a_message(self):
        for step in 'Accept', 'Tell':
            self.call(step, 'create', name=step, flavor='small', min_count=2)

            uuids = self.world.listed(step)
            self.assertEqual(2, len(uuids))
            for uuid in uuids:
                self.assertEnds(uuid, 'ACTIVE')
            self.remove(*uuids)

    def test_interrupted_deletion_can_be_repeated(self):
        [uuid] = self.create('deleted')
        self.assertEnds(uuid, 'ACTIVE')

        self.call('Delete', 'delete', uuid=uuid)

        self.remove(uuid)


class TestCompute(killed.Killed):
    """Of the hosts for servers that are all disk the first one fails once."""

    FIRST, SECOND = 'c2-flaky', 'c2-steady'

    def setUp(self):
        super().setUp()
        self.start('conductor', 'api')
        # It fails once, and then no more.
        self.restart(self.FIRST)

    def arm(self, host: str, step: str) -> world.Child:
        """Have the agent of a host replaced by one that dies at a step."""
        self.world.agents[host].kill()
        victim = self.start('compute', 'cell2', host, die_at=step)
        self.addCleanup(self.restart, host)
        return victim

    def restart(self, host: str) -> None:
        self.world.agents[host].kill()
        self.world.agents[host] = self.world.start('compute', 'cell2', host)
        self.world.agents[host].wait('started')

    def build(self, host: str, step: str) -> str:
        victim = self.arm(host, step)
        [uuid] = self.create(f'at {step}', 'archive')
        self.assertTrue(victim.wait('ended')['killed'])
        return uuid

    def survive(self, step: str, host: str) -> None:
        uuid = self.build(host, step)
        self.restart(host)
        self.assertEnds(uuid, 'ACTIVE')
        self.remove(uuid)

    def delete(self, step: str, host: str) -> None:
        uuid = self.build(host, step)
        self.world.api.servers.delete(world.USER, uuid)
        self.restart(host)
        self.assertEnds(uuid, None)

    def retry_on_another_host(self, step: str, host: str) -> None:
        uuid = self.build(host, step)
        self.assertEnds(uuid, 'ACTIVE')
        self.assertEqual(self.SECOND, self.world.rows(uuid)['cell2'].host)
        self.remove(uuid)

    def test_build_on_a_dead_last_host_fails(self):
        uuid = self.build(self.SECOND, 'Spawn')

        self.assertEnds(uuid, 'ERROR')

        self.assertEqual(['cell2'], [*self.world.rows(uuid)])
        self.restart(self.SECOND)
        self.remove(uuid)

    def terminate(self, step: str) -> None:
        [uuid] = self.create(f'until {step}', 'archive')
        self.assertEnds(uuid, 'ACTIVE')
        host = self.world.rows(uuid)['cell2'].host
        victim = self.arm(host, step)
        self.world.api.servers.delete(world.USER, uuid)
        self.assertTrue(victim.wait('ended')['killed'])
        self.restart(host)
        self.assertEnds(uuid, None)


def _add(kind: type, what: str, method: str, steps, *args) -> None:
    """Add a test of each step, as if it had been written out."""
    for step in steps:
        name = f'test_{what}_{step.lower().replace(" ", "_")}'

        def test(self, step=step):
            getattr(self, method)(step, *args)
        test.__name__ = name
        setattr(kind, name, test)


_add(TestConductor, 'server_is_built_once_after', 'survive', STEPS, 1)
_add(TestConductor, 'servers_are_built_once_after', 'survive', STEPS, 3)
_add(TestConductor, 'deletion_wins_after', 'delete', STEPS, 1)
_add(TestConductor, 'deletion_of_one_of_three_wins_after', 'delete', STEPS, 3)
_add(TestConductor, 'server_is_buried_once_after', 'bury', STEPS_OF_BURIAL)

_add(TestCompute, 'server_is_built_once_after', 'survive',
     ('Begin', 'GiveNetworks', 'HandOn'), TestCompute.FIRST)
_add(TestCompute, 'server_is_built_once_after', 'survive',
     ('Spawn', 'Finish'), TestCompute.SECOND)
_add(TestCompute, 'deletion_wins_after', 'delete',
     ('Begin', 'HandOn'), TestCompute.FIRST)
_add(TestCompute, 'deletion_wins_after', 'delete',
     ('Spawn', 'Finish'), TestCompute.SECOND)
_add(TestCompute, 'build_is_retried_on_another_host_after',
     'retry_on_another_host', ('Begin', 'GiveNetworks', 'HandOn'),
     TestCompute.FIRST)
_add(TestCompute, 'deletion_is_done_after', 'terminate',
     ('Destroy', 'Terminate'))

for kind, names in (
        (TestConductor, ['test_servers_are_built_once_after_writerows']),
        (TestCompute, ['test_server_is_built_once_after_spawn']),
        (TestAPI, ['test_interrupted_deletion_can_be_repeated'])):
    profile.by_default(
        *names, reason='death after further steps, which unit tests and the '
        'simulation have too')(kind)
