# SPDX-License-Identifier: Apache-2.0
"""A server in cell0 is built again with the same uuid."""

import sqlalchemy as sa

from cellsched.db.cell import models
from cellsched.standalone import deployment
from tests.functional import base

#: What is done for a server that is tried again, in turn.
RETRYING = ('Accept', 'Tell', 'Lease', 'RemoveFromCell0', 'Select', 'Schedule',
            'FindCell', 'Decide', 'WriteRows', 'Release', 'Cast', 'Begin',
            'Spawn', 'Finish')

BIG = deployment.DeployedHost('big', vcpus=64, memory_mb=1048576)

DISK = {'source_type': 'blank', 'destination_type': 'volume',
        'boot_index': -1, 'volume_size': 7}


class RetryCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.moment = None
        self.act = None
        #: The server that has to be on its way for the moment to have come.
        self.retried = None
        self.deploy({'cell1': ['a1'], 'cell2': ['b1']}, reached=self.reached)

    def reached(self, step):
        # The one before may come to the same step late.
        if step == self.moment and self.get(self.retried).status != 'ERROR':
            self.moment = None
            self.act()

    def buried(self, **wishes):
        [found] = self.built('mine', flavor='huge', **wishes)
        self.assertEqual('cell0', found.cell)
        return found.uuid

    def make_room(self):
        self.world.start_host('cell2', BIG)

    def retry(self, uuid):
        self.world.api.servers.retry(base.USER, uuid)

    def in_cell0(self, table, column):
        """Return how many rows of a table are there of each server."""
        return dict(map(tuple, self.query('cell0', sa.select(
            column, sa.func.count()).group_by(column))))


class TestRetry(RetryCase):

    def test_retried_server_is_built_as_requested(self):
        uuid = self.buried(tags=['b', 'a'], block_device_mappings=[DISK])
        self.world.api.servers.update(base.USER, uuid, 'renamed')
        before = self.get(uuid)
        self.make_room()

        self.retry(uuid)

        [found] = self.settled([uuid])
        self.assertEqual(
            ('ACTIVE', 'cell2', 'big', 'renamed', ('a', 'b'), ''),
            (found.status, found.cell, found.host, found.name, found.tags,
             found.reason))
        self.assertEqual(before.created_at, found.created_at)
        self.assertIsIn('cell2', uuid)
        self.assertEqual([uuid], self.listed())
        table = models.block_device_mapping
        [[size]] = self.query('cell2', sa.select(table.c.volume_size).where(
            table.c.instance_uuid == uuid))
        self.assertEqual(7, size)
        self.assertClaimsMatch()

    def test_retried_server_without_a_host_is_buried_again(self):
        uuid = self.buried(tags=['a'], block_device_mappings=[DISK])
        self.world.start_host('cell2', deployment.DeployedHost('b2'))

        self.retry(uuid)

        [found] = self.settled([uuid])
        self.assertEqual(('ERROR', 'cell0', ('a',)),
                         (found.status, found.cell, found.tags))
        # The reason is that of the last time.
        self.assertIn('3 hosts', found.reason)
        self.assertIsIn('cell0', uuid)
        for table in (models.instance_faults, models.instance_actions,
                      models.block_device_mapping):
            self.assertEqual(
                {uuid: 1}, self.in_cell0(table, table.c.instance_uuid))

    def test_retry_unknown_to_conductors_is_listed_once_and_recovered(self):
        uuid = self.buried()
        self.make_room()

        self.unheard().servers.retry(base.USER, uuid)
        self.assertEqual('BUILD', self.get(uuid).status)
        self.assertEqual([uuid], self.listed())
        self.recover(120)

        self.assertEqual('ACTIVE', self.settled([uuid])[0].status)
        self.assertIsIn('cell2', uuid)


class TestTrouble(RetryCase):

    def test_server_deleted_during_a_retry_is_removed(self):
        buried = [self.buried() for _ in RETRYING]
        self.make_room()
        for moment, uuid in zip(RETRYING, buried):
            deleted = []

            def delete(uuid=uuid, deleted=deleted):
                self.delete(uuid)
                deleted.append(uuid)

            self.retried, self.act, self.moment = uuid, delete, moment
            self.retry(uuid)

            self.until(lambda deleted=deleted: deleted, f'{moment} has come')
            self.gone(uuid)
            self.assertLeftNothing(uuid)
        self.assertEqual([], self.listed())
        self.assertClaimsMatch()

    def test_retry_waits_for_cell0_with_a_reason(self):
        """The server would be in two cells otherwise."""
        uuid = self.buried()
        self.make_room()
        self.unheard().servers.retry(base.USER, uuid)
        self.take_down('cell0')

        self.task().run(base.USER, [uuid])
        found = self.get(uuid)
        self.assertEqual('BUILD', found.status)
        self.assertIn('cell0', found.reason)
        self.assertEqual([], self.held(uuid))

        self.bring_back('cell0')
        self.recover(120)
        [found] = self.settled([uuid])
        self.assertEqual(('ACTIVE', ''), (found.status, found.reason))
        self.assertIsIn('cell2', uuid)
