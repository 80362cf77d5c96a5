# SPDX-License-Identifier: Apache-2.0
"""What a conductor answers over RPC, asked by its client."""

import queue
import uuid

from cellsched.conductor import service
from cellsched.rpc import conductor
from cellsched.rpc import server
from tests.unit.conductor import base
from tests.unit.db import samples

DEADLINE_S = 600


class Task:
    """Keeps what it is told to run."""

    def __init__(self):
        self.told = queue.Queue()

    def run(self, *arguments, **named):
        self.told.put((*arguments, *named.values()))

    def next(self):
        return self.told.get(timeout=DEADLINE_S)


class TestConductor(base.TestCase):

    def setUp(self):
        super().setUp()
        self.transport = self.transports.get(f'local://{uuid.uuid4().hex}/x')
        self.client = conductor.ConductorAPI(self.transport)

    def serve(self, *endpoints):
        made = server.server(
            self.transport, conductor.TOPIC, 'host', endpoints)
        made.start()
        self.addCleanup(made.wait)
        self.addCleanup(made.stop)

    def test_super_conductor_builds_and_schedules(self):
        task = Task()
        self.serve(service.SuperConductor(task))
        uuids = samples.uuids(2)

        self.client.build_and_schedule(base.USER, uuids)

        context, told = task.next()
        self.assertEqual(uuids, told)
        self.assertEqual(base.USER.request_id, context.request_id)

    def told(self, method, *arguments, **named):
        """Return what a task is told when a server is to be moved."""
        task = Task()
        self.serve(service.MovingConductor(task))

        getattr(self.client, method)(base.USER, *arguments, **named)

        context, *told = task.next()
        self.assertEqual(base.USER.request_id, context.request_id)
        return told

    def test_rebuild_gets_its_host_and_its_image(self):
        self.assertEqual(
            ['server', 'move', 'a2', 'image'],
            self.told('rebuild_instance', 'server', 'move',
                      image_ref='image', host='a2'))

    def test_rebuild_need_not_name_a_host_nor_an_image(self):
        self.assertEqual(
            ['server', 'move', None, None],
            self.told('rebuild_instance', 'server', 'move'))

    def test_migration_gets_its_host(self):
        self.assertEqual(
            ['server', 'move', 'a2', True],
            self.told('migrate_server', 'server', 'move', host='a2',
                      rebuild=True))

    def test_migration_need_not_name_a_host(self):
        self.assertEqual(
            ['server', 'move', None, False],
            self.told('migrate_server', 'server', 'move'))

    def test_unshelving_gets_its_server_and_its_move(self):
        self.assertEqual(
            ['server', 'move'],
            self.told('unshelve_instance', 'server', 'move'))

    def build_instances(self):
        [uuid] = samples.uuids(1)
        self.client.build_instances(
            base.USER, [samples.instance(uuid)], {'retry': {}}, None,
            [[self.selection('a1'), self.selection('a2')]])
        return uuid

    def check_build_instances(self, task):
        uuid = self.build_instances()

        context, [instance], properties, spec, [hosts] = task.next()
        self.assertEqual(base.USER.request_id, context.request_id)
        self.assertEqual(
            (uuid, {'retry': {}}, None, ['a1', 'a2']),
            (instance.uuid, properties, spec,
             [each.service_host for each in hosts]))

    def test_cell_conductor_builds_instances(self):
        task = Task()
        self.serve(service.CellConductor(task))

        self.check_build_instances(task)

    def test_conductor_of_a_single_cell_does_both(self):
        above, below = Task(), Task()
        self.serve(service.SuperConductor(above), service.CellConductor(below))

        self.client.build_and_schedule(base.USER, [])
        self.check_build_instances(below)
        self.assertEqual([], above.next()[1])
