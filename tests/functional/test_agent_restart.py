# SPDX-License-Identifier: Apache-2.0
"""An agent that dies in the middle of a build goes on when it is back."""

import json

import sqlalchemy as sa

from cellsched.db.cell import models
from cellsched.standalone import deployment
from cellsched.wiring import services
from tests.functional import base


class Killed(BaseException):
    """The process ends here."""


class TestAgentRestart(base.TestCase):

    def setUp(self):
        super().setUp()
        self.path = self.temporary_directory() / 'networks'
        self.spawned = []
        self.looked = []

    def start(self, reached=lambda step: None, driver=None):
        """Start the agent, with the driver of the last one if it is given."""
        conf = self.world.conf('cell1', 'hosts/a1')
        parts = services.Components(conf, reached=reached)
        parts.driver = driver or self.watched(parts.driver)
        agent = services.compute(conf, parts)
        agent.start()
        self.addCleanup(agent.stop)
        self.world.agents['a1'] = agent
        return agent

    def watched(self, driver):
        """Keep what a driver spawns, and what its agent finds there."""
        spawn, find = driver.spawn, driver.list_instances

        def spawned(instance, node):
            if instance.uuid not in find():
                self.spawned.append(instance.uuid)
            spawn(instance, node)

        def looked():
            self.looked.append(find())
            return find()

        driver.spawn, driver.list_instances = spawned, looked
        return driver

    def killed_at(self, step, **behaviour):
        """Have an agent be killed while it builds; return server and driver.

        Nothing that it would have done afterwards is done.
        """
        self.deploy({'cell1': []}, DEFAULT={'network_driver': 'fake'},
                    conductor={'network_sweep_interval': 1},
                    fake_network={'records': self.path})
        self.world.start_host('cell1', deployment.DeployedHost(
            'a1', behaviour=behaviour)).stop()

        dead = []

        def reached(name):
            if name == step:
                dead.append(name)
                raise Killed()

        agent = self.start(reached)
        # What it looks for when it starts is not what it is killed at.
        self.until(lambda: self.looked, 'it has looked for what it left')
        [uuid] = self.create()
        self.until(lambda: dead, f'the agent is dead at {step}')
        agent.stop()
        return uuid, agent.parts.driver

    def check_killed_at(self, step):
        uuid, driver = self.killed_at(step)
        if step != 'Finish':
            self.assertEqual('BUILD', self.get(uuid).status)

        self.start(driver=driver)

        [found] = self.settled([uuid])
        self.assertEqual(('ACTIVE', 'cell1', 'a1', 1), (
            found.status, found.cell, found.host, found.attempts))
        self.assertIsIn('cell1', uuid)
        self.assertEqual([uuid], self.spawned)
        self.assertEqual([uuid], driver.list_instances())
        [claim] = self.held(uuid)
        self.assertEqual(self.provider('cell1', 'a1'), claim.provider)
        self.assertClaimsMatch()
        [record] = map(json.loads, self.path.read_text().splitlines())
        self.assertEqual(('allocate', uuid), (
            record['call'], record['instance']))
        self.assertEqual([], self.query(
            'cell1', sa.select(models.build_casts.c.host)))

    def test_agent_killed_after_the_begin_builds_again(self):
        self.check_killed_at('Begin')

    def test_agent_killed_after_networks_builds_again(self):
        self.check_killed_at('GiveNetworks')

    def test_agent_killed_after_the_spawn_finishes_the_build(self):
        self.check_killed_at('Spawn')

    def test_agent_killed_after_the_finish_keeps_the_server(self):
        self.check_killed_at('Finish')

    def test_host_without_its_servers_builds_again(self):
        uuid, _ = self.killed_at('Spawn')

        self.start()

        [found] = self.settled([uuid])
        self.assertEqual(('ACTIVE', 'a1'), (found.status, found.host))
        self.assertEqual([uuid], self.driver('a1').list_instances())
        self.assertClaimsMatch()

    def test_deletion_while_the_agent_was_dead_wins(self):
        uuid, driver = self.killed_at('Spawn')
        self.delete(uuid)

        self.start(driver=driver)

        self.gone(uuid)
        self.assertLeftNothing(uuid)
        self.assertEqual([], driver.list_instances())
        self.assertClaimsMatch()
        self.assertNoNetworks()

    def test_deletion_between_two_hosts_leaves_no_networks(self):
        uuid, _ = self.killed_at('HandOn', fail_builds=1)
        self.assertEqual({uuid: set()}, self.networks())

        self.delete(uuid)

        self.gone(uuid)
        self.assertLeftNothing(uuid)
        self.assertNoNetworks()

    def networks(self):
        return self.world.agents['a1'].parts.network.allocated()

    def assertNoNetworks(self):
        self.soon(lambda: self.assertEqual({}, self.networks()))
