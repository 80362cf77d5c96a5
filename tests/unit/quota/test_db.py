# SPDX-License-Identifier: Apache-2.0
"""Limits of the API database, and of the options."""

import hypothesis
from hypothesis import strategies as st
import sqlalchemy as sa

from cellsched.db.api import models
from cellsched import exception
from cellsched.quota import base as quota
from cellsched.testing import databases
from tests import profile
from tests.unit import base
from tests.unit.db import samples
from tests.unit.quota import projects


class QuotaTestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.database = self.make_database()
        self.project = projects.Project(self.database)
        self.driver = projects.driver()

    def make_database(self):
        return self.useFixture(databases.APIDatabase()).database

    def read(self, query, *args):
        with self.database.reader() as connection:
            return query(connection, *args)

    def statements(self):
        """Return the statements that are executed from now on.

        Statements that begin a transaction are omitted.
        """
        seen = []

        def see(conn, cursor, statement, *args):
            if not statement.startswith('BEGIN'):
                seen.append(statement.split()[0])

        sa.event.listen(
            self.database.engine, 'before_cursor_execute', see)
        return seen


class TestLimits(QuotaTestCase):

    def limits(self, user_id=None):
        return self.read(self.driver.limits, projects.PROJECT, user_id)

    def test_project_has_its_own_then_the_class_then_the_options(self):
        self.driver = projects.driver(instances=1, cores=2, ram=3)
        self.assertEqual(
            {'instances': 1, 'cores': 2, 'ram': 3}, self.limits())
        with self.database.writer() as connection:
            connection.execute(sa.insert(models.quota_classes), [
                {'class_name': name, 'resource': resource, 'hard_limit': 7}
                for name, resource in (
                    ('default', 'instances'), ('default', 'cores'),
                    ('other', 'ram'))])
        self.project.limit(cores=9)
        self.project.limit(cores=8, project_id='other')

        self.assertEqual(
            {'instances': 7, 'cores': 9, 'ram': 3}, self.limits())

    def test_unlimited_resource_is_omitted(self):
        self.driver = projects.driver(cores=2, ram=0)
        self.project.limit(cores=-1, key_pairs=3)

        self.assertEqual({'ram': 0}, self.limits())

    def test_user_has_the_limits_set_for_the_user(self):
        self.driver = projects.driver(instances=1)
        self.project.limit(user_id='user', cores=4)

        self.assertEqual({'cores': 4}, self.limits('user'))
        self.assertEqual({}, self.limits('other'))


class TestCheck(QuotaTestCase):

    def check(self, min_count=1, max_count=None, vcpus=1, memory_mb=512):
        return self.read(
            self.driver.check, projects.PROJECT, projects.USER,
            samples.flavor(vcpus=vcpus, memory_mb=memory_mb), min_count,
            max_count or min_count)

    def refusal(self, *args, **kwargs):
        exc = self.assertRaises(
            exception.OverQuota, self.check, *args, **kwargs)
        self.assertEqual(403, exc.code)
        return exc.format_message()

    def test_as_many_as_fit_may_be_accepted(self):
        self.project.limit(instances=10, cores=20, ram=51200)

        for most, size in (
                (10, {}), (5, {'vcpus': 4}), (3, {'memory_mb': 16384}),
                (10, {'vcpus': 0, 'memory_mb': 0})):
            self.assertEqual(most, self.check(1, 50, **size))
        self.assertEqual(2, self.check(1, 2))

    def test_refusal_has_the_request_and_the_limit(self):
        self.project.admit(self.driver, self.project.accept(9))
        self.project.limit(instances=10, cores=20, ram=51200)

        self.assertEqual(
            'Quota exceeded for instances: requested 3, but already used 9 '
            'of 10 instances', self.refusal(3))
        self.assertEqual(
            'Quota exceeded for cores, ram: requested 12, 65536, but already '
            'used 9, 4608 of 20, 51200 cores, ram',
            self.refusal(vcpus=12, memory_mb=65536))

    def test_accepted_servers_count_before_their_admission(self):
        self.project.limit(instances=10)
        accepted = self.project.accept(2) + self.project.accept(
            1, decided=False)
        self.assertEqual(7, self.check(1, 50))

        self.project.admit(self.driver, accepted[:1])
        self.assertEqual(7, self.check(1, 50))
        self.project.delete(accepted[1:2])
        self.assertEqual(8, self.check(1, 50))
        self.project.bury(accepted[2:])
        self.assertEqual(9, self.check(1, 50))

    def test_lowered_limit_refuses_further_servers(self):
        self.project.admit(self.driver, self.project.accept(9))
        self.project.limit(instances=5)

        self.assertIn('used 9 of 5', self.refusal())

    def test_user_is_held_to_both_limits(self):
        self.project.limit(instances=10)
        self.project.limit(user_id='user', instances=4)
        self.project.admit(
            self.driver, self.project.accept(3, user_id='other'))
        self.assertEqual(4, self.check(1, 50))

        self.project.admit(
            self.driver, self.project.accept(4, user_id='other'))
        self.assertEqual(3, self.check(1, 50))
        self.project.limit(user_id='user', instances=0)
        self.assertIn('used 0 of 0', self.refusal())

    def test_unlimited_project_is_not_counted(self):
        seen = self.statements()

        self.assertEqual(50, self.check(1, 50))

        self.assertEqual(1, len(seen))


class TestAdmit(QuotaTestCase):

    def admit(self, builds, *args, **kwargs):
        return self.project.admit(self.driver, builds, *args, **kwargs)

    def test_exactly_as_many_are_admitted_as_fit(self):
        self.project.limit(cores=9)
        builds = self.project.accept(5, vcpus=2)

        refused = self.admit(builds)

        self.assertEqual([builds[4].uuid], list(refused))
        self.assertEqual((4, 8, 2048), self.project.usage())
        [exc] = refused.values()
        self.assertEqual(413, exc.code)
        self.assertEqual(
            'Quota exceeded for cores: requested 2, but already used 8 of 9 '
            'cores', exc.format_message())
        self.assertEqual({}, self.admit(self.project.accept(1)))
        self.assertEqual(1, len(self.admit(self.project.accept(1))))

    def test_refused_builds_share_their_error(self):
        self.project.limit(instances=1)

        refused = self.admit(self.project.accept(4))

        self.assertEqual(3, len(refused))
        self.assertEqual(1, len({id(exc) for exc in refused.values()}))

    def test_refusal_below_the_minimum_admits_no_builds(self):
        self.project.limit(instances=3)
        builds = self.project.accept(5)

        refused = self.admit(builds, min_count=4)

        self.assertEqual({build.uuid for build in builds}, set(refused))
        self.assertIn('requested 4, but already used 0 of 3',
                      str(refused[builds[0].uuid]))
        self.assertEqual((0, 0, 0), self.project.usage())
        self.assertEqual(2, len(self.admit(builds, min_count=3)))

    def test_rest_of_a_batch_is_its_own_minimum(self):
        self.project.limit(instances=3)

        self.assertEqual({}, self.admit(self.project.accept(3), min_count=5))

    def test_many_batches_are_admitted_at_once(self):
        self.project.limit(instances=3)
        self.project.limit(user_id='other', instances=1)
        self.project.limit(project_id='b', cores=1)
        requests = [('project', 'user', 4, 4), ('project', 'other', 2, 1),
                    ('b', 'user', 2, 1), ('project', 'user', 3, 1),
                    ('free', 'user', 2, 1), ('project', 'user', 0, 1)]
        batches = [quota.QuotaBatch(project, user, self.project.accept(
            count, user_id=user, project_id=project) if count else [], least)
            for project, user, count, least in requests]
        seen = self.statements()

        with self.database.writer() as connection:
            refused = self.driver.admit_all(connection, batches)

        self.assertEqual([4, 1, 1, 1, 0, 0], [
            sum(build.uuid in refused for build in batch.builds)
            for batch in batches])
        # The limits of all; each project's row, its lock and its servers.
        self.assertEqual(1 + 2 * 4, len(seen), seen)
        with self.database.writer() as connection:
            self.assertEqual({}, self.driver.admit_all(connection, []))

    def test_user_is_held_to_limits_of_its_own(self):
        self.project.limit(user_id='user', instances=1)

        self.assertEqual(1, len(self.admit(self.project.accept(2))))
        self.assertEqual({}, self.admit(
            self.project.accept(2, user_id='other'), user_id='other'))

    def test_deleted_and_buried_servers_make_room(self):
        self.project.limit(instances=2)
        first = self.project.accept(2)
        self.admit(first)
        self.project.delete(first[:1])
        second = self.project.accept(2)
        self.project.bury(second[:1])

        self.assertEqual({}, self.admit(second[1:]))

        self.assertEqual(2, self.project.usage()[0])

    def test_all_builds_are_admitted_without_the_recheck(self):
        self.driver = projects.driver(instances=1, recheck_quota=False)
        builds = self.project.accept(3)
        seen = self.statements()

        with self.database.writer() as connection:
            self.assertEqual({}, self.driver.admit(
                connection, projects.PROJECT, projects.USER, builds))

        self.assertEqual([], seen)

    def test_costs_few_statements(self):
        for limits, expected in (
                ({}, ['SELECT']),
                # The row is made once.
                ({'cores': 9}, ['SELECT', 'UPDATE', 'INSERT', 'UPDATE',
                                'SELECT']),
                ({'cores': 9}, ['SELECT', 'UPDATE', 'SELECT'])):
            self.project.limit(**limits)
            builds = self.project.accept(2)
            seen = self.statements()

            with self.database.writer() as connection:
                self.driver.admit(
                    connection, projects.PROJECT, projects.USER, builds)

            self.assertEqual(expected, seen)


class TestEveryOrder(base.TestCase):

    @profile.few_examples
    @hypothesis.given(
        st.integers(0, 6), st.integers(0, 8),
        st.lists(st.tuples(
            st.sampled_from(['accept', 'admit', 'delete', 'bury']),
            st.integers(0, 9), st.integers(0, 3), st.integers(1, 4)),
            max_size=12))
    def test_never_more_is_used_than_the_limit(self, instances, cores, steps):
        fixture = databases.APIDatabase()
        with fixture:
            project = projects.Project(fixture.database)
            driver = projects.driver(instances=instances, cores=cores)
            pending, admitted = [], []
            for step, which, vcpus, count in steps:
                if step == 'accept':
                    pending.append(project.accept(count, vcpus=vcpus))
                elif step == 'admit' and pending:
                    builds = pending.pop(which % len(pending))
                    refused = project.admit(driver, builds, count)
                    admitted += [build for build in builds
                                 if build.uuid not in refused]
                elif step == 'bury' and pending:
                    project.bury(pending.pop(which % len(pending)))
                elif step == 'delete' and admitted:
                    project.delete([admitted.pop(which % len(admitted))])
                used = project.usage()
                self.assertEqual(
                    (len(admitted), sum(each.vcpus for each in admitted)),
                    used[:2])
                self.assertLessEqual(used[0], instances)
                self.assertLessEqual(used[1], cores)
