# SPDX-License-Identifier: Apache-2.0
"""Services are killed or stopped at their steps, and each build ends once."""

import json
import os
import signal

from cellsched.compute import places
from cellsched import context
from cellsched.hardware import description
from cellsched.hardware import units
from tests.integration.fates import killed
from tests.integration.fates import world
from tests.integration import processes
from tests.integration import servers
from tests import profile

#: What a conductor has done, in order, when it dies.
STEPS = ('Lease', 'Expire', 'RemoveFromCell0', 'Schedule', 'FindCell',
         'Decide', 'WriteRows', 'Release', 'Cast')

#: The cells and devices of a host, for two servers.
HARDWARE = {
    'cells': [{'id': 0, 'memory_mb': 16384, 'cpus': '0-1', 'dedicated': '2-3',
               'pages': [{'size_kb': 4, 'total': 2 ** 22}]}],
    'devices': [{'vendor_id': '8086', 'product_id': '154c', 'count': 2,
                 'numa_node': 0}]}

#: The same for a build that fits nowhere.
STEPS_OF_BURIAL = ('Schedule', 'undone Schedule', 'Bury')

#: Steps at which a conductor is stopped.
STEPS_OF_STOP = (('Lease', 'Schedule', 'WriteRows') if profile.FULL
                 else ('Schedule',))


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


@profile.full_only('a stopped service: by default it is a conductor')
class TestStoppedScheduler(killed.Killed):

    def test_builds_of_a_stopped_scheduler_are_decided_by_the_other(self):
        self.start('conductor', 'api')
        stopped = self.start('scheduler', 'api')
        os.kill(stopped.pid, signal.SIGSTOP)
        self.addCleanup(os.kill, stopped.pid, signal.SIGCONT)

        # Of messages to both each has every second one.
        uuids = [self.create(f'stopped{number}')[0] for number in range(6)]
        for uuid in uuids:
            self.assertEnds(uuid, 'ACTIVE')
        held = {uuid: self.world.held(uuid) for uuid in uuids}
        self.assertTrue(stopped.is_stopped)

        # It answers now what was asked it then, and nobody listens.
        os.kill(stopped.pid, signal.SIGCONT)
        [last] = self.create('last')
        self.assertEnds(last, 'ACTIVE')
        for uuid in uuids:
            self.assertEnds(uuid, 'ACTIVE')
        self.assertEqual(
            held, {uuid: self.world.held(uuid) for uuid in uuids})
        self.remove(last, *uuids)


class TestStoppedConductor(killed.Killed):

    def wake(self, step: str) -> None:
        """Wake a conductor when another one has done its work."""
        victim = self.start('conductor', 'api', die_at=step,
                            signal=int(signal.SIGSTOP))
        uuids = self.create(step, count=2)
        processes.wait_until(
            lambda: victim.is_stopped, f'the conductor to stop at {step}')
        self.addCleanup(victim.kill)
        other = self.start('conductor', 'api')
        for uuid in uuids:
            self.assertEnds(uuid, 'ACTIVE')

        os.kill(victim.pid, signal.SIGCONT)
        [last] = self.create('last')
        self.assertEnds(last, 'ACTIVE')

        for uuid in uuids:
            self.assertEnds(uuid, 'ACTIVE')
        self.remove(last, *uuids)
        for each in victim, other:
            each.kill()

    def test_build_of_a_stopped_conductor_is_taken_over_for_good(self):
        for step in STEPS_OF_STOP:
            self.wake(step)


class WorldOfParts(world.World):
    """One host, whose servers have dedicated CPUs and devices."""

    filters = {'enabled_filters': (
        'ComputeFilter,NUMATopologyFilter,PciPassthroughFilter')}

    def _write(self, name, groups):
        super()._write(name, {**groups, 'pci': {'alias': json.dumps(
            {'name': 'nic', 'vendor_id': '8086', 'product_id': '154c'})}})


@profile.full_only('tests.functional.test_hardware_moves kills in-process')
class TestParts(killed.Killed):
    """An agent dies after the claim names CPUs and a device."""

    @classmethod
    def make_world(cls):
        return WorldOfParts(
            cls.part_of_class(servers.RabbitMQ),
            cls.part_of_class(servers.PostgreSQL), {'cell1': {}, 'cell2': {
                'c2': {'vcpus': 4, 'memory_mb': 16384, 'local_gb': 400,
                       'hardware': json.dumps(HARDWARE)}}})

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.world.api.flavors.set_extra_specs(context.admin(), 'small', {
            'hw:cpu_policy': 'dedicated', 'pci_passthrough:alias': 'nic:1'})

    def setUp(self):
        super().setUp()
        self.start('conductor', 'api')

    def placed(self):
        """Return the parts of each server, as the files of the host say."""
        topology = description.read('host', HARDWARE).topology
        kept = places.PlaceFiles(self.world.directory / 'state/c2').read()
        return {uuid: units.amounts(topology, place.cells, place.pools)
                for uuid, place in kept.items()}

    def survive(self, step):
        self.world.agents['c2'].kill()
        victim = self.start('compute', 'cell2', 'c2', die_at=step)
        uuids = self.create(step, count=2)
        self.assertTrue(victim.wait('ended')['killed'])
        self.world.agents['c2'] = self.start('compute', 'cell2', 'c2')
        for uuid in uuids:
            self.assertEnds(uuid, 'ACTIVE')
        self.assertEqual(self.placed(), {
            uuid: units.named(claim.resources) for uuid in uuids
            for claim in self.world.held(uuid)})
        self.remove(*uuids)
        self.assertEqual({}, self.placed())


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
_add(TestParts, 'servers_have_the_parts_of_claims_after', 'survive',
     ('Begin', 'GiveNetworks', 'Spawn', 'Finish'))

for kind, names in (
        (TestConductor, ['test_servers_are_built_once_after_writerows']),
        (TestCompute, ['test_server_is_built_once_after_spawn']),
        (TestAPI, ['test_interrupted_deletion_can_be_repeated'])):
    profile.by_default(
        *names, reason='death after further steps, which unit tests and the '
        'simulation have too')(kind)
