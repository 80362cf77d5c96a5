# SPDX-License-Identifier: Apache-2.0
"""Databases and brokers go and come back, and each build ends once."""

import os
import signal

import fixtures

from tests.integration.fates import cutting
from tests.integration.fates import killed
from tests.integration.fates import world
from tests.integration import processes
from tests.integration import servers
from tests import profile


class Wired(fixtures.Fixture):
    """A part of the database server, behind a wire for each database."""

    def __init__(self, database: servers.Part) -> None:
        self._database = database
        self.wires: dict[str, cutting.Wire] = {}

    def url(self, name: str) -> str:
        if name not in self.wires:
            self.wires[name] = self.useFixture(
                cutting.Wire(self._database.url(name)))
        return self.wires[name].url


@profile.by_default(
    'test_unreachable_cell_delays_only_its_own_builds',
    'test_burial_waits_for_cell0', 'test_full_broker_blocks_no_user',
    reason='a database or a broker that is away for some time')
class TestCutOff(killed.Killed):

    wired: Wired
    broker: servers.RabbitMQ

    @classmethod
    def make_world(cls) -> world.World:
        cls.wired = cls.of_class(Wired(cls.part_of_class(servers.PostgreSQL)))
        cls.broker = cls.of_class(killed.installed(servers.RabbitMQ))
        return world.World(cls.broker, cls.wired)

    def setUp(self):
        super().setUp()
        for wire in self.wired.wires.values():
            self.addCleanup(wire.mend)

    def test_unreachable_cell_delays_only_its_own_builds(self):
        self.start('conductor', 'api')
        self.wired.wires['cell1'].break_off()

        uuids = self.create('others', count=2)
        began = [*uuids]
        for uuid in uuids:
            processes.wait_until(
                lambda uuid=uuid: self.world.mapped(uuid) == 'cell2',
                f'{uuid} to be in cell2')
        self.wired.wires['cell1'].mend()

        for uuid in began:
            self.assertEnds(uuid, 'ACTIVE')
            self.assertEqual('cell2', self.world.mapped(uuid))
        self.remove(*uuids)

    def test_lost_answer_of_a_commit_creates_the_server_once(self):
        self.start('conductor', 'api')
        # Agents and the scheduler commit over it as well.
        wire = self.wired.wires['cell1']
        for attempt in range(3):
            wire.cut_after = b'COMMIT'
            uuids = self.create(f'unknown{attempt}', count=4)
            processes.wait_until(
                wire.has_refused.is_set, 'a connection after the commit')
            wire.mend()

            for uuid in uuids:
                self.assertEnds(uuid, 'ACTIVE')
            self.remove(*uuids)

    def test_slow_cell_delays_no_build_in_another_cell(self):
        self.start('conductor', 'api')
        self.wired.wires['cell1'].delay_s = 10
        [uuid] = self.create('quick')

        processes.wait_until(
            lambda: self.world.status_in(uuid, 'cell2') == 'active',
            'the server in the other cell')

        self.wired.wires['cell1'].mend()
        self.assertEnds(uuid, 'ACTIVE')
        self.remove(uuid)

    def test_burial_waits_for_cell0(self):
        self.start('conductor', 'api')
        self.wired.wires['cell0'].break_off()
        [uuid] = self.create('buried', 'giant')
        processes.wait_until(
            lambda: self.world.failure(uuid), 'the reason on the request')
        self.assertTrue(self.world.requested(uuid))

        self.wired.wires['cell0'].mend()

        self.assertEnds(uuid, 'ERROR')
        self.assertEqual('cell0', self.world.mapped(uuid))
        self.remove(uuid)

    def test_interrupted_api_database_loses_no_builds(self):
        wire = self.wired.wires['api']
        for moment in b'COMMIT', b'instance_mappings', b'DELETE':
            conductor = self.start('conductor', 'api', die_at='Lease',
                                   signal=int(signal.SIGSTOP))
            uuids = self.create(f'through-{moment.decode()}', count=2)
            processes.wait_until(
                lambda: conductor.is_stopped, 'the conductor to stop')
            wire.cut_after = moment
            os.kill(conductor.pid, signal.SIGCONT)
            processes.wait_until(lambda: wire.cut, f'{moment}')
            wire.break_off()
            processes.wait_until(
                wire.has_refused.is_set, 'a connection to the database')
            wire.mend()

            for uuid in uuids:
                self.assertEnds(uuid, 'ACTIVE')
            self.remove(*uuids)
            conductor.kill()

    def test_broker_losing_its_messages_loses_no_build(self):
        self.start('conductor', 'api')
        uuids = self.create('before', count=2)

        self.broker.kill()
        # Nobody can be told, and it is accepted all the same.
        uuids += self.create('meanwhile', count=2)
        self.broker.start()

        for uuid in uuids:
            self.assertEnds(uuid, 'ACTIVE')
        self.remove(*uuids)

    def test_full_broker_blocks_no_user(self):
        self.start('conductor', 'api')
        self.broker.set_full(True)
        self.addCleanup(self.broker.set_full, False)

        uuids = self.create('full', count=2)

        self.assertIn('did not accept the message within', self.logs.output)
        for uuid in uuids:
            self.assertEqual('BUILD', self.world.status(uuid))
        self.broker.set_full(False)
        for uuid in uuids:
            self.assertEnds(uuid, 'ACTIVE')
        self.remove(*uuids)
