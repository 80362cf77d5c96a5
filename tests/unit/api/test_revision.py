# SPDX-License-Identifier: Apache-2.0
"""Renaming and tagging servers, whatever is being done with them."""

import contextlib

from cellsched.cells.cell0 import Cell0
from cellsched import context
from cellsched.db.api import build_requests
from cellsched.db.cell import instance_children
from cellsched import exception
from tests.unit.api import hostile
from tests.unit.api import test_servers


class TestRevision(test_servers.ServersTestCase):

    def setUp(self):
        super().setUp()
        [self.uuid] = self.create(tags=['b', 'a', 'b'])

    def change(self):
        self.servers.update(self.context, self.uuid, name='new')
        self.servers.set_tags(self.context, self.uuid, ['c'])

    def told(self):
        found = self.servers.get(self.context, self.uuid)
        return found.name, found.tags

    def test_request_is_changed_and_not_the_row(self):
        self.assertEqual(('web', ('a', 'b')), self.told())
        self.decide(self.uuid, self.cell)
        self.add_row(self.uuid, self.cell)

        self.change()

        self.assertEqual(('new', ('c',)), self.told())
        self.assertEqual(
            'server', self.row(self.uuid, self.cell).display_name)

    def test_row_is_changed_once_there_is_no_request(self):
        for cell in self.cell, self.cells.cell0():
            [self.uuid] = self.create()
            self.put(self.uuid, cell)

            self.change()

            self.assertEqual(('new', ('c',)), self.told())
            self.assertEqual(
                {self.uuid: ['c']},
                self.read(self.targets.database(cell),
                          instance_children.get_tags,
                          [self.uuid]))

    def test_server_that_went_meanwhile_is_not_found(self):
        revision = self.servers._revision
        self.write(self.database, build_requests.delete, [self.uuid])
        for _ in range(2):
            self.assertRaises(exception.InstanceNotFound,
                              revision.rename, self.uuid, 'x')
            self.assertRaises(exception.InstanceNotFound,
                              revision.set_tags, self.uuid, ['x'])
            self.decide(self.uuid, self.cell)
        self.assertEqual({}, self.read(
            self.targets.database(self.cell), instance_children.get_tags,
            [self.uuid]))

    def test_server_that_is_retried_meanwhile_keeps_the_change(self):
        cell0 = self.cells.cell0()
        self.put(self.uuid, cell0, vm_state='error', task_state=None)
        target = self.targets.database(cell0)

        class Retrying:
            """The cell, from which the server is taken right before."""

            @staticmethod
            def database(cell):
                self.servers.retry(self.context, self.uuid)
                return target

        self.servers._revision._targets = Retrying
        self.servers.update(self.context, self.uuid, name='new')

        self.assertEqual('new', self.told()[0])
        self.assertTrue(self.read(
            self.database, build_requests.get, self.uuid).buried)

    def test_server_that_is_buried_anew_meanwhile_keeps_the_change(self):
        lying = self.cells.cell0()
        self.put(self.uuid, lying, vm_state='error', task_state=None)
        database = self.targets.database(lying)
        cell0 = Cell0(
            self.database, self.cells, self.targets, self.clock, 'conductor')

        class Burying:
            """A cell0 from which it is taken, and where it is buried anew."""

            @staticmethod
            def database(cell):
                self.servers.retry(self.context, self.uuid)
                return Burying

            @staticmethod
            @contextlib.contextmanager
            def writer():
                with database.writer() as connection:
                    yield connection
                cell0.remove(database, [self.uuid])
                request = self.read(
                    self.database, build_requests.get, self.uuid)
                cell0.bury(self.context, [request.instance],
                           exception.NoValidHost(reason='None.'))

        self.servers._revision._targets = Burying
        self.servers.update(self.context, self.uuid, name='new')

        self.assertEqual('new', self.told()[0])

    def test_names_and_tags_that_cannot_be_kept_are_refused(self):
        for bad in hostile.NAMES:
            for tried in (
                    lambda: self.servers.update(self.context, self.uuid, bad),
                    lambda: self.servers.set_tags(
                        self.context, self.uuid, [bad]),
                    lambda: self.create(tags=[bad])):
                self.assertRaises(exception.InvalidField, tried)
        for bad in (['a/b'], ['a,b'], ['x' * 61], ['\U0001f600'], 'ab', None,
                    {'a'}, [str(number) for number in range(51)]):
            error = self.assertRaises(
                exception.InvalidField, self.servers.set_tags, self.context,
                self.uuid, bad)
            self.assertEqual('tags', error.field)
        self.assertEqual(('web', ('a', 'b')), self.told())

    def test_server_of_another_project_is_not_there(self):
        stranger = context.RequestContext(project_id='other')

        self.assertRaises(exception.InstanceNotFound, self.servers.update,
                          stranger, self.uuid, 'x')
        self.assertRaises(exception.InstanceNotFound, self.servers.set_tags,
                          stranger, self.uuid, ['x'])
        self.assertEqual(('web', ('a', 'b')), self.told())
