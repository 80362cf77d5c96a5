# SPDX-License-Identifier: Apache-2.0
"""Deleted rows move to shadow tables, whole servers at a time."""

import datetime

import sqlalchemy as sa

from cellsched import context
from cellsched.db.cell import archive
from cellsched.db.cell import build_casts
from cellsched.db.cell import hosts
from cellsched.db.cell import instance_children
from cellsched.db.cell import instance_history
from cellsched.db.cell import instances
from cellsched.db.cell import models
from cellsched.db.cell import server_moves
from cellsched.db.cell import services
from cellsched import exception
from cellsched import objects
from tests.unit.db.cell import base
from tests.unit.db import samples

NOW, LATER = samples.NOW, samples.LATER

#: After everything that happens here.
END = LATER + datetime.timedelta(days=1)


class ArchiveCase(base.TestCase):

    def make(self, deleted=LATER):
        """Return a server that has rows in all tables, by default deleted."""
        uuid, = samples.uuids(1)

        def write(connection):
            instances.create(
                connection, [samples.instance(uuid)], NOW,
                {uuid: {'os': 'any'}})
            instance_history.create_failed(
                connection, [uuid], 'build', context.admin(), NOW,
                exception.TaskAbandoned(uuid=uuid, task='build'), 'host')
            instance_history.record(
                connection, uuid, exception.ReasonUnknown(uuid=uuid), 'host',
                NOW)
            instance_children.create_block_devices(
                connection, [objects.BlockDeviceMapping(
                    instance_uuid=uuid, source_type='blank',
                    destination_type='volume')], NOW)
            server_moves.create(connection, server_moves.Migration(
                samples.uuids(1)[0], uuid, 'migration', status='done'),
                context.admin(), NOW)
            if deleted:
                instances.delete(connection, uuid, deleted)

        self.write(write)
        return uuid

    def rows(self, table):
        return self.read(lambda connection: [
            dict(row._mapping) for row in connection.execute(
                sa.select(table))])

    def counts(self, shadows=False):
        return {table.name: count for table, shadow in models.SHADOWS.items()
                if (count := len(self.rows(shadow if shadows else table)))}

    def ready(self, before=END, after=0, limit=100):
        return [uuid for _, uuid in self.read(
            archive.ready_after, before, after, limit)]


class TestServers(ArchiveCase):

    def test_server_is_moved_with_all_of_its_rows(self):
        uuid = self.make()
        before = self.counts()
        kept = {table: self.rows(table) for table in models.SHADOWS}

        moved = self.write(archive.move_servers, [uuid], END)

        self.assertEqual(
            {table.name for table in models.SHADOWS}
            - {'services', 'compute_nodes'}, before.keys())
        self.assertEqual(before, moved)
        self.assertEqual({}, self.counts())
        self.assertEqual(before, self.counts(shadows=True))
        for table, rows in kept.items():
            shadows = self.rows(models.SHADOWS[table])
            for row, shadow in zip(rows, shadows, strict=True):
                self.assertEqual(
                    {**row, 'deleted_at': LATER},
                    {name: value for name, value in shadow.items()
                     if name != 'archive_id'})

    def test_server_without_a_deletion_is_not_moved(self):
        uuid = self.make(deleted=None)
        before = self.counts()

        self.assertEqual([], self.ready())
        self.assertEqual({}, self.write(archive.move_servers, [uuid], END))

        self.assertEqual(before, self.counts())

    def test_servers_deleted_later_stay(self):
        uuid = self.make()

        self.assertEqual([], self.ready(before=LATER))
        self.assertEqual({}, self.write(
            archive.move_servers, [uuid], LATER))
        self.assertEqual(0, self.read(archive.count, LATER))
        self.assertEqual(1, self.read(archive.count, END))

    def test_server_with_an_unfinished_build_stays(self):
        uuid = self.make()
        self.write(build_casts.create, [build_casts.BuildCast(
            uuid, 'host', 'node', '{}', 1.0)])

        self.assertEqual([], self.ready())
        self.assertEqual({}, self.write(archive.move_servers, [uuid], END))

        self.write(build_casts.drop, [uuid])
        self.assertEqual([uuid], self.ready())

    def test_server_with_an_unfinished_move_stays(self):
        for status in (*server_moves.LIVE, server_moves.FINISHED, None):
            uuid = self.make()
            self.execute(sa.update(models.migrations).values(status=status))

            self.assertEqual([], self.ready(), status)
            self.assertEqual({}, self.write(
                archive.move_servers, [uuid], END))

    def test_server_with_allocated_networks_stays(self):
        uuid = self.make()
        self.write(samples.put, uuid, {'network_allocated': True})

        self.assertEqual([], self.ready())
        self.assertEqual({}, self.write(archive.move_servers, [uuid], END))

    def test_ready_servers_are_returned_in_pages(self):
        uuids = [self.make() for _ in range(3)]
        self.assertEqual(uuids[:2], self.ready(limit=2))
        second, _ = self.read(archive.ready_after, END, 0, 2)[-1]

        self.assertEqual(uuids[2:], self.ready(after=second))

    def test_tags_of_moved_servers_are_deleted(self):
        uuid = self.make()
        self.execute(sa.insert(models.tags), {'resource_id': uuid, 'tag': 'x'})

        self.write(archive.move_servers, [uuid], END)

        self.assertEqual({}, self.read(instance_children.get_tags, [uuid]))

    def test_failed_move_changes_no_table(self):
        uuid = self.make()
        before = self.counts()

        def stop(connection):
            archive.move_servers(connection, [uuid], END)
            raise KeyError

        self.assertRaises(KeyError, self.write, stop)

        self.assertEqual(before, self.counts())
        self.assertEqual({}, self.counts(shadows=True))

    def test_reused_id_is_archived_twice(self):
        for _ in range(2):
            uuid = self.make()
            self.write(samples.put, uuid, {'id': 77})
            self.write(archive.move_servers, [uuid], END)

        self.assertEqual([77, 77], [
            row['id'] for row in self.rows(
                models.SHADOWS[models.instances])])


class TestOtherRows(ArchiveCase):

    def add_host(self, host):
        self.write(services.report, samples.uuids(1)[0], host,
                   services.COMPUTE, 'compute', NOW)

    def test_deleted_hosts_are_moved_and_present_hosts_are_kept(self):
        for host in 'a1', 'a2':
            self.add_host(host)
        self.write(hosts.delete, 'a1', LATER)

        self.assertEqual({}, self.write(archive.move_rows, LATER, 10))
        self.assertEqual({'services': 1}, self.write(
            archive.move_rows, END, 10))

        self.assertEqual(['a2'], [
            row['host'] for row in self.rows(models.services)])
        self.assertEqual({'services': 1}, self.counts(shadows=True))

    def test_detached_devices_are_moved_without_their_server(self):
        uuid = self.make(deleted=None)
        self.write(instance_children.mark_block_devices_deleted, [uuid], LATER)

        moved = self.write(archive.move_rows, END, 10)

        self.assertEqual({'block_device_mapping': 1}, moved)
        self.assertEqual(1, len(self.rows(models.instances)))

    def test_devices_of_a_deleted_server_are_moved_with_the_server(self):
        self.make()

        self.assertEqual({}, self.write(archive.move_rows, END, 10))

    def test_moved_rows_are_at_most_the_limit(self):
        for number in range(3):
            self.add_host(f'a{number}')
            self.write(hosts.delete, f'a{number}', LATER)

        self.assertEqual([2, 1, 0], [
            self.write(archive.move_rows, END, 2).total() for _ in range(3)])


class TestPurge(ArchiveCase):

    def setUp(self):
        super().setUp()
        for deleted in (NOW, LATER):
            self.write(archive.move_servers, [self.make(deleted)], END)
        self.counted = self.counts(shadows=True)

    def test_all_is_removed(self):
        gone = self.write(archive.purge, None, 1000)

        self.assertEqual(
            {f'shadow_{name}': count
             for name, count in self.counted.items()}, gone)
        self.assertEqual({}, self.counts(shadows=True))
        self.assertEqual({}, self.write(archive.purge, None, 1000))

    def test_later_deleted_server_stays_with_its_rows(self):
        self.write(archive.purge, LATER, 1000)

        self.assertEqual(
            {name: count / 2 for name, count in self.counted.items()},
            self.counts(shadows=True))
        self.assertEqual([LATER], [
            row['deleted_at'] for row in self.rows(
                models.SHADOWS[models.instances])])

    def test_purged_rows_are_at_most_the_limit(self):
        self.assertEqual(
            3, self.write(archive.purge, None, 3).total())
        self.assertEqual(
            sum(self.counted.values()) - 3,
            sum(self.counts(shadows=True).values()))
