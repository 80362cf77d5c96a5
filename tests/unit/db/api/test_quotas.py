# SPDX-License-Identifier: Apache-2.0
"""Queries for the limits of projects and of their users."""

import sqlalchemy as sa

from cellsched.db.api import models
from cellsched.db.api import quotas
from tests.unit.db.api import base
from tests.unit.db import samples


class TestQuotas(base.TestCase):

    def set(self, project, user=None, **limits):
        self.write(quotas.set_limits, project, user, limits, samples.NOW)

    def limits(self, project='p', user=None):
        """Return the limits of the project, and of the user in it."""
        found = self.read(quotas.limits, [(project, user)])
        return found.pop((project, None)), found.pop((project, user), {})

    def locks(self):
        return self.read(lambda connection: connection.execute(
            sa.select(models.quota_locks.c.project_id)).scalars().all())

    def test_limits_are_read_of_the_project_and_the_user(self):
        self.set('p', cores=1, ram=2)
        self.set('other', cores=8)
        self.set('p', 'u', cores=3)
        self.set('p', 'v', cores=9)
        self.set('other', 'u', ram=9)

        self.assertEqual(({'cores': 1, 'ram': 2}, {'cores': 3}),
                         self.limits('p', 'u'))
        self.assertEqual(({'cores': 1, 'ram': 2}, {}), self.limits('p'))
        self.assertEqual(({}, {}), self.limits('unknown', 'u'))

    def test_second_value_of_a_limit_replaces_the_first(self):
        for user in None, 'u':
            self.set('p', user, cores=1, ram=2)
            self.set('p', user, cores=-1)

        self.assertEqual(({'cores': -1, 'ram': 2}, {'cores': -1, 'ram': 2}),
                         self.limits('p', 'u'))

    def test_null_limit_is_not_returned(self):
        self.set('p', cores=1)
        with self.database.writer() as connection:
            connection.execute(sa.update(models.quotas).values(
                hard_limit=None))

        self.assertEqual(({}, {}), self.limits())

    def test_limits_of_a_user_are_deleted_alone(self):
        for user in None, 'u', 'v':
            self.set('p', user, cores=1)

        self.write(quotas.delete_limits, 'p', 'u')

        self.assertEqual(({'cores': 1}, {}), self.limits('p', 'u'))
        self.assertEqual(({'cores': 1}, {'cores': 1}), self.limits('p', 'v'))

    def test_limits_of_users_are_deleted_with_limits_of_the_project(self):
        for project in 'p', 'q':
            for user in None, 'u':
                self.set(project, user, cores=1)

        self.write(quotas.delete_limits, 'p')

        self.assertEqual(({}, {}), self.limits('p', 'u'))
        self.assertEqual(({'cores': 1}, {'cores': 1}), self.limits('q', 'u'))

    def test_project_has_a_single_lock_row(self):
        for project in 'p', 'q', 'p':
            self.write(quotas.lock, project, samples.NOW)

        self.assertEqual(['p', 'q'], sorted(self.locks()))
