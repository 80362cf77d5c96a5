# SPDX-License-Identifier: Apache-2.0
"""Agents that go by the same name."""

import dataclasses
import pathlib

from oslo_config import cfg
from oslo_utils import uuidutils
import sqlalchemy as sa

from cellsched.compute import guests
from cellsched.compute import host_name
from cellsched.conf import default
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import hosts
from cellsched.db.cell import instances
from cellsched.db.cell import models
from cellsched.db.cell import services
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

    def test_single_agent_keeps_its_name(self):
        agent = self.agent()

        for _ in range(3):
            self.assertEqual([], self.report(agent))

    def test_restarted_agent_has_the_name_at_once(self):
        for _ in range(3):
            agent = self.agent()
            self.assertEqual([], self.report(agent))
        self.assertNotIn('has to end', self.logs.output)

    def test_second_agent_ends_after_a_report_of_the_first(self):
        first, second = self.agent(), self.agent()

        self.assertEqual(
            [(second, 'another agent of this cell')],
            self.report(first, second))

        self.assertEqual([], self.report(first))
        self.assertIn('Another agent has started as host1', self.logs.output)

    def test_second_agent_reports_until_a_report_of_the_first(self):
        first, second = self.agent(), self.agent()

        self.assertEqual([], self.report(second, second, first))
        self.assertEqual([second], [
            agent for agent, _ in self.report(second, first)])

    def test_first_of_many_agents_remains(self):
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

    def test_replaced_agent_ends(self):
        first = self.agent()
        self.report(first)
        second = self.agent()
        # It stood still for longer than it takes to be down.
        for _ in range(DOWN_S // 10):
            self.assertEqual([], self.report(second))

        self.assertEqual(
            [first], [agent for agent, _ in self.report(first, second)])

    def test_briefly_suspended_agent_remains_the_first(self):
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

    def test_agents_with_other_names_do_not_conflict(self):
        one, other = self.agent(), self.agent('host2')

        self.assertEqual([], self.report(one, other))

    def test_deleted_host_is_reported_again(self):
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

    def test_restarted_agent_resets_the_mark_of_its_node(self):
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


class TestStateFile(tracking.TrackerTestCase):

    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.temporary_directory())

    def file(self, *names):
        return host_name.StateFile(str(self.directory.joinpath(*names)))

    def test_written_uuid_is_read(self):
        host_id = uuidutils.generate_uuid()
        file = self.file('a', 'b')
        self.assertIsNone(file.read())

        file.write(host_id)

        self.assertEqual(host_id, self.file('a', 'b').read())
        self.assertEqual(['compute_id'], [
            each.name for each in file.path.parent.iterdir()])

    def test_file_without_a_uuid_is_an_error_and_stays(self):
        file = self.file()
        for text in '', 'junk', '0' * 31, '\xff':
            file.path.write_text(text, encoding='latin-1')

            error = self.assertRaises(
                exception.ConfigurationInvalid, file.read)

            self.assertIn('[DEFAULT] state_path', str(error))
            self.assertIn(str(file.path), str(error))
            self.assertEqual(text, file.path.read_text(encoding='latin-1'))

    def test_file_in_place_of_a_directory_is_an_error(self):
        self.file().path.write_text('x')

        error = self.assertRaises(
            exception.ConfigurationInvalid, self.file('compute_id').write,
            uuidutils.generate_uuid())

        self.assertIn('cannot be written', str(error))


class TestHostIdentity(tracking.TrackerTestCase):

    def setUp(self):
        super().setUp()
        self.directory = self.temporary_directory()
        self.running = {}
        self.driver.list_instances = lambda: sorted(self.running)
        self.driver.spawned_at = self.running.get

    def begin(self, host='host1', machine='machine', adopts=False):
        """Start an agent on a machine; return the uuid of its host."""
        conf = cfg.ConfigOpts()
        conf.register_opts(default.OPTS)
        conf.register_opts(default.COMPUTE_OPTS, 'compute')
        conf([], default_config_files=[], default_config_dirs=[])
        conf.set_override('host', host)
        conf.set_override('adopt_guests', adopts, 'compute')
        name = host_name.HostName(host, self.cell, self.clock, DOWN_S)
        name.host_id = host_name.HostIdentity(
            conf, self.cell, self.claims, self.driver, host_name.StateFile(
                f'{self.directory}/{machine}'),
            guests.Guests(host, self.cell, self.driver, self.clock),
            uuidutils.generate_uuid).begin()
        self.agent = self.tracker(host=host, name=name)
        self.agent.report()
        return name.host_id

    def refused(self, *args, **kwargs):
        return str(self.assertRaises(
            exception.HostIdentityConflict, self.begin, *args, **kwargs))

    def nodes(self):
        return [(row.uuid, row.host) for row in self.rows(
            models.compute_nodes) if not row.deleted]

    def put(self, host):
        """Have a server on a host; return its uuid."""
        [uuid] = samples.uuids(1)
        with self.cell.writer() as connection:
            instances.create(
                connection, [samples.instance(uuid)], self.clock.now())
            samples.put(connection, uuid, {
                'host': host, 'node': 'node1', 'vm_state': 'active',
                'task_state': None})
        return uuid

    def test_only_node_of_a_host_has_the_uuid_of_the_host(self):
        host_id = self.begin()

        self.assertEqual([(host_id, 'host1')], self.nodes())
        self.assertEqual([host_id], [
            row.host_id for row in self.rows(models.services)])
        self.assertEqual(host_id, self.begin())

    def test_host_of_an_older_release_keeps_the_uuid_of_its_node(self):
        [node] = samples.uuids(1)
        with self.cell.writer() as connection:
            compute_nodes.save(connection, node, 'host1', 'node1',
                               samples.NODE, self.clock.now())
            services.report(connection, samples.uuids(1)[0], 'host1',
                            services.COMPUTE, 'compute', self.clock.now())

        self.assertEqual(node, self.begin())

        self.assertEqual([(node, 'host1')], self.nodes())

    def test_renamed_host_takes_no_node_of_its_new_name(self):
        self.begin('host1')
        self.clock.advance(DOWN_S + 1)
        with self.cell.writer() as connection:
            for uuid, node in zip(samples.uuids(2), ('node1', 'node2')):
                compute_nodes.save(connection, uuid, 'host2', node,
                                   samples.NODE, self.clock.now())
        before = self.nodes()

        error = self.refused('host2')

        self.assertIn('has taken this name, and has the nodes node1;', error)
        self.assertEqual(before, self.nodes())

    def test_host_without_its_state_does_not_start(self):
        host_id = self.begin()

        error = self.refused(machine='other')

        self.assertIn(host_id, error)
        self.assertIn('compute_id', error)
        self.assertEqual([(host_id, 'host1')], self.nodes())

    def test_machine_of_another_uuid_does_not_start(self):
        first, second = self.begin(), self.begin('host2', 'other')
        self.clock.advance(DOWN_S + 1)

        error = self.refused('host1', 'other')

        for host_id in first, second:
            self.assertIn(host_id, error)

    def test_agent_ends_after_another_machine_takes_its_name(self):
        self.begin()
        agent = self.agent
        with self.cell.writer() as connection:
            hosts.delete(connection, 'host1', self.clock.now())
        self.begin(machine='other')

        error = self.assertRaises(exception.HostNameTaken, agent.report)

        self.assertEqual('another machine of this cell', error.by)

    def test_host_keeps_its_node_under_another_name(self):
        host_id = self.begin()
        self.clock.advance(DOWN_S + 1)

        self.assertEqual(host_id, self.begin('host2'))

        self.assertEqual([(host_id, 'host2')], self.nodes())
        self.assertEqual(['host2'], [
            row.host for row in self.rows(models.services)])

    def test_renamed_host_keeps_its_node_beside_nodes_with_uuids(self):
        [own], [uuid] = self.driver.found.values(), samples.uuids(1)
        metal = {'metal': dataclasses.replace(own, uuid=uuid)}
        for name, beside in ('alone', {}), ('beside', metal):
            with self.subTest(name):
                self.driver.found = {name: own, **beside}
                self.begin(name, name)
                [provider] = self.providers(name, name)
                self.driver.found = {name: own, **metal}
                self.agent.report()
                self.clock.advance(DOWN_S + 1)

                self.driver.found = {'new': own, **metal}
                self.begin('new', name)

                self.assertEqual([provider], self.providers('new', 'new'))
                self.assertEqual([uuid], self.providers('new', 'metal'))
                with self.cell.writer() as connection:
                    hosts.delete(connection, 'new', self.clock.now())

    def providers(self, host, node):
        return [row.uuid for row in self.rows(models.compute_nodes)
                if (row.host, row.hypervisor_hostname, row.deleted) == (
                    host, node, 0)]

    def test_node_under_a_former_name_is_not_offered(self):
        [own] = self.driver.found.values()
        for restarts in False, True:
            [uuid, service] = samples.uuids(2)
            self.driver.found = {
                'host1': own, 'metal': dataclasses.replace(own, uuid=uuid)}
            host_id = self.begin()
            self.assertTrue(self.capacity(uuid))
            # A backup of the cell is older than the name.
            with self.cell.writer() as connection:
                services.report(
                    connection, service, f'former{restarts}',
                    services.COMPUTE, 'compute', self.clock.now(), 1, host_id)
                connection.execute(
                    sa.update(models.compute_nodes)
                    .where(models.compute_nodes.c.uuid == uuid)
                    .values(host=f'former{restarts}'))
            self.driver.found = {'host1': own}

            self.begin() if restarts else self.agent.report()

            self.assertFalse(self.capacity(uuid))
            self.assertTrue(self.capacity(
                *self.providers('host1', 'host1')))

    def capacity(self, provider):
        return any(amount for usage in self.claims.usages(
            providers=[provider]).usages for amount in usage.capacity.values())

    def meanwhile(self, *args):
        """Start another machine while the next one looks for guests."""
        ask, started = self.driver.list_instances, []

        def look():
            self.driver.list_instances = ask
            started.append(self.begin(*args))
            return ask()

        self.driver.list_instances = look
        return started

    def test_single_machine_gets_a_name_taken_concurrently(self):
        for former, other in (('a', None), ('a', 'b'), (None, 'b'),
                              (None, None)):
            with self.subTest(former=former, other=other):
                kept = former and {(self.begin(former, 'one'), former)}
                if other:
                    self.begin(other, 'two')
                self.clock.advance(DOWN_S + 1)
                started = self.meanwhile('name', 'two')

                error = self.refused('name', 'one')

                self.assertIn('has taken this name', error)
                self.assertEqual({(*started, 'name'), *(kept or ())},
                                 {*self.nodes()})
                with self.cell.writer() as connection:
                    for host in 'name', *filter(None, [former]):
                        hosts.delete(connection, host, self.clock.now())
                for machine in 'one', 'two':
                    pathlib.Path(
                        self.directory, machine, 'compute_id').unlink()

    def test_late_report_takes_no_name(self):
        self.begin()
        other = self.agent
        with self.cell.writer() as connection:
            hosts.delete(connection, 'host1', self.clock.now())
        host_id = self.begin(machine='other')

        # It has looked before the other machine came.
        other._write(services.report, *samples.uuids(1), 'host1',
                     services.COMPUTE, 'compute', self.clock.now(), 1,
                     other._name.host_id)

        self.assertEqual([host_id], [
            row.host_id for row in self.rows(models.services)
            if not row.deleted])

    def test_name_in_other_capitals_is_another_host(self):
        first, second = self.begin(), self.begin('HOST1', 'other')

        self.assertEqual(
            [(first, 'host1'), (second, 'HOST1')], self.nodes())
        self.assertEqual(first, self.begin())

    def test_copy_of_a_state_file_is_refused_while_its_host_is_up(self):
        self.begin()

        self.assertIn('is up', self.refused('host2'))

    def test_renamed_host_with_servers_needs_the_option(self):
        self.begin()
        uuid = self.put('host1')
        self.clock.advance(DOWN_S + 1)

        error = self.refused('host2')

        self.assertIn('host1', error)
        self.assertIn('[compute] adopt_guests', error)
        self.begin('host2', adopts=True)
        with self.cell.reader() as connection:
            self.assertEqual('host2', instances.get(connection, uuid).host)

    def test_guest_of_another_host_keeps_a_known_host_from_starting(self):
        self.begin()
        uuid = self.put('host2')
        self.running[uuid] = self.clock.now()

        error = self.refused()

        for text in uuid, 'host2', '[compute] adopt_guests':
            self.assertIn(text, error)

    def test_unknown_guest_keeps_a_new_host_from_starting(self):
        [uuid] = samples.uuids(1)
        self.running[uuid] = self.clock.now()

        error = self.refused()

        self.assertIn(uuid, error)
        self.assertIn('does not know', error)
        self.assertEqual([], self.nodes())
        self.running.clear()
        self.begin()
        # Its guests are reported then.
        self.running[uuid] = self.clock.now()
        self.begin()

    def test_many_guests_are_counted(self):
        for uuid in samples.uuids(12):
            self.running[uuid] = self.clock.now()

        self.assertIn(' and 2 more', self.refused())
