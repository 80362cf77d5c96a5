# SPDX-License-Identifier: Apache-2.0
"""Agents that go by the same name."""

import sqlalchemy as sa

from cellsched.compute import host_name
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import hosts
from cellsched.db.cell import models
from cellsched import exception
from cellsched.virt import base as virt
from tests.unit.compute import tracking
from tests.unit.db import samples

DOWN_S = 60


class HostNameCase(tracking.TrackerTestCase):

    def agent(self, host='host1'):
        """Return an agent that has started."""
        agent = self.tracker(host=host, name=host_name.HostName(
            host, self.cell, self.clock, DOWN_S))
        agent.report()
        return agent

    def report(self, *agents):
        """Have agents report once; return which of them end."""
        self.clock.advance(10)
        ended = []
        for agent in agents:
            try:
                agent.report()
            except exception.HostNameTaken as exc:
                ended.append((agent, exc.by))
        return ended


class TestHostName(HostNameCase):

    def test_agent_that_is_alone_keeps_its_name(self):
        agent = self.agent()

        for _ in range(3):
            self.assertEqual([], self.report(agent))

    def test_agent_that_starts_again_has_the_name_at_once(self):
        for _ in range(3):
            agent = self.agent()
            self.assertEqual([], self.report(agent))
        self.assertNotIn('has to end', self.logs.output)

    def test_second_agent_ends_when_the_first_one_has_reported(self):
        first, second = self.agent(), self.agent()

        self.assertEqual(
            [(second, 'another agent of this cell')],
            self.report(first, second))

        self.assertEqual([], self.report(first))
        self.assertIn('Another agent has started as host1', self.logs.output)

    def test_second_agent_reports_until_the_first_one_does(self):
        first, second = self.agent(), self.agent()

        self.assertEqual([], self.report(second, second, first))
        self.assertEqual([second], [
            agent for agent, _ in self.report(second, first)])

    def test_of_many_the_first_one_is_left(self):
        agents = [self.agent() for _ in range(4)]

        ended = [agent for agent, _ in self.report(*agents)]
        ended += [agent for agent, _ in self.report(*(
            agent for agent in agents if agent not in ended))]

        self.assertEqual(agents[1:], ended)
        self.assertEqual([], self.report(agents[0]))

    def test_remaining_agents_are_distinguished(self):
        first, second = self.agent(), self.agent()
        self.report(first)
        # It is killed before the second one has seen it.
        third = self.agent()

        self.assertEqual(
            [third], [agent for agent, _ in self.report(second, third)])

    def test_agent_that_was_replaced_ends(self):
        first = self.agent()
        self.report(first)
        second = self.agent()
        # It stood still for longer than it takes to be down.
        for _ in range(DOWN_S // 10):
            self.assertEqual([], self.report(second))

        self.assertEqual(
            [first], [agent for agent, _ in self.report(first, second)])

    def test_agent_that_stood_still_for_less_is_the_first_one_still(self):
        first = self.agent()
        second = self.agent()
        for _ in range(DOWN_S // 10 - 1):
            self.assertEqual([], self.report(second))

        self.assertEqual(
            [second], [agent for agent, _ in self.report(first, second)])

    def test_first_agent_reports_its_node_again(self):
        first = self.agent()
        self.driver.found = {'node1': virt.NodeResources(
            2, 4096, 50, 'kind', 7)}
        self.agent()
        self.driver.found = {'node1': virt.NodeResources(
            4, 8192, 100, 'kind', 7)}

        self.report(first)

        [node] = self.rows(models.compute_nodes)
        self.assertEqual((4, 8192, 100),
                         (node.vcpus, node.memory_mb, node.local_gb))
        [usage] = self.claims.usages().usages
        self.assertEqual(8192 - 512, usage.capacity['MEMORY_MB'])

    def test_names_of_others_are_no_matter(self):
        one, other = self.agent(), self.agent('host2')

        self.assertEqual([], self.report(one, other))

    def test_host_that_was_deleted_comes_back(self):
        agent = self.agent()
        with self.cell.writer() as connection:
            hosts.delete(connection, 'host1', self.clock.now())

        for _ in range(2):
            self.assertEqual([], self.report(agent))

        self.assertEqual(
            [0], [row.deleted for row in self.rows(models.compute_nodes)
                  if not row.deleted])


class TestOtherCells(HostNameCase):

    def mark(self, mapped):
        with self.cell.writer() as connection:
            connection.execute(sa.update(models.compute_nodes).values(
                mapped=mapped))

    def test_agent_with_the_name_of_a_host_of_another_cell_ends(self):
        agent = self.agent()
        self.assertEqual([], self.report(agent))

        self.mark(-1)

        self.assertEqual([(agent, 'a host of another cell')],
                         self.report(agent))

    def test_agent_that_starts_finds_out_anew(self):
        self.agent()
        self.mark(-1)

        agent = self.agent()

        self.assertEqual([], self.report(agent))
        [node] = self.rows(models.compute_nodes)
        self.assertEqual(0, node.mapped)

    def test_mark_of_a_mapped_node_stays(self):
        self.agent()
        [node] = self.rows(models.compute_nodes)
        for mapped, expected in ((0, -1), (1, 1), (-1, -1)):
            self.mark(mapped)
            with self.cell.writer() as connection:
                compute_nodes.mark_foreign(
                    connection, [node.uuid, *samples.uuids(1)])

            [node] = self.rows(models.compute_nodes)
            self.assertEqual(expected, node.mapped)
