# SPDX-License-Identifier: Apache-2.0
"""Quotas: get, by cell, set, unset."""

from concurrent import futures

from cellsched.api import authorization
from cellsched.api import quotas
from cellsched.cells import gather
from cellsched import context
from cellsched import exception
from tests.unit.cells import base
from tests.unit.quota import projects

ADMIN = context.admin()


class TestQuotas(base.TestCase):

    def setUp(self):
        super().setUp()
        self.project = projects.Project(self.database)
        executor = futures.ThreadPoolExecutor(4)
        self.addCleanup(executor.shutdown)
        self.driver = projects.driver(cores=20)
        self.quotas = quotas.Quotas(
            authorization.LocalOperator(), self.database, self.cells,
            gather.Gatherer(executor, self.targets, self.clock, 30),
            self.driver, self.clock)

    def get(self, *args):
        return {each.resource: (each.limit, each.used, each.pending)
                for each in self.quotas.get(ADMIN, *args)}

    def refused(self, function, *args):
        exc = self.assertRaises(exception.InvalidField, function, *args)
        self.assertEqual('quota', exc.where)
        return exc.field

    def test_usage_is_shown_beside_the_limits(self):
        self.project.admit(self.driver, self.project.accept(2))
        self.project.accept(3)

        self.assertEqual(
            {'instances': (-1, 2, 3), 'cores': (20, 2, 3),
             'ram': (-1, 1024, 1536)}, self.get('project'))
        self.assertEqual((0, 0), self.get('project', 'other')['ram'][1:])

    def test_limits_are_set_and_unset(self):
        self.quotas.set(ADMIN, 'project', {'cores': 3, 'instances': 0})
        self.quotas.set(ADMIN, 'project', {'ram': 1}, 'user')

        self.assertEqual(
            [0, 3, -1], [limit for limit, *_ in self.get('project').values()])
        self.assertEqual([-1, -1, 1], [
            limit for limit, *_ in self.get('project', 'user').values()])

        self.quotas.unset(ADMIN, 'project')
        self.assertEqual([-1, 20, -1], [
            limit for limit, *_ in self.get('project').values()])
        self.assertEqual(-1, self.get('project', 'user')['ram'][0])

    def test_invalid_limits_projects_and_users_are_refused(self):
        for limits, field in (
                ({}, 'limits'), ({'disk': 1}, 'limits'),
                ({'cores': -2}, 'limits.cores'),
                ({'ram': 2 ** 31}, 'limits.ram'),
                ({'instances': True}, 'limits.instances'),
                ({'cores': '1'}, 'limits.cores')):
            self.assertEqual(field, self.refused(
                self.quotas.set, ADMIN, 'project', limits))
        for project in '', 'x' * 256, 'a\nb', 3:
            for function in (self.quotas.get, self.quotas.unset):
                self.assertEqual('project', self.refused(
                    function, ADMIN, project))
        self.assertEqual('user', self.refused(
            self.quotas.get, ADMIN, 'p', ''))
        self.assertEqual(20, self.get('project')['cores'][0])

    def test_silent_cell_is_listed_and_marked(self):
        self.add_cell('north')
        self.project.admit(self.driver, self.project.accept(3))

        # The others have no databases.
        self.assertEqual(
            [('east', False, (2, 2, 1024, 0)), ('north', True, (0, 0, 0, 0)),
             ('west', False, (1, 1, 512, 0))],
            [(each.cell, each.answers, tuple(each.usage)) for each
             in self.quotas.by_cell(self.context, 'project')])
