# SPDX-License-Identifier: Apache-2.0
"""Conductors admit builds to one project at the same time."""

from cellsched import exception
from cellsched.quota import base as quota
from tests.integration.db import base
from tests import profile
from tests.unit.quota import projects
from tests.unit import racing

ROUNDS = profile.RACING_ROUNDS

#: Who takes part, the builds that each has, and how many fit.
RACERS, BUILDS, ROOM = 8, (3, 3, 3, 3, 2, 2, 2, 2), 7


class TestQuotaRaces(base.APITestCase):

    def setUp(self):
        super().setUp()
        self.database = self.make_database()
        self.project = projects.Project(self.database)
        # Each conductor has its own.
        self.drivers = [projects.driver(instances=ROOM, cores=4 * ROOM)
                        for _ in range(RACERS)]

    def race(self, batches):
        """Admit batches at the same time; return how many were admitted."""
        return sum(racing.race(*[
            lambda driver=driver, builds=builds: self.admit(driver, builds)
            for driver, builds in zip(self.drivers, batches)]))

    def admit(self, driver, builds):
        """Admit builds; repeat a transaction that lost a conflict."""
        while True:
            try:
                refused = self.project.admit(driver, builds)
            except exception.TransactionLost:
                continue
            return len(builds) - len(refused)

    def test_exactly_as_many_are_admitted_as_fit(self):
        for _ in range(ROUNDS):
            batches = [self.project.accept(count, vcpus=4)
                       for count in BUILDS]

            self.assertEqual(ROOM, self.race(batches))

            self.assertEqual((ROOM, 4 * ROOM), self.project.usage()[:2])
            for builds in batches:
                self.project.delete(builds)

    def test_concurrent_deletions_free_quota(self):
        for _ in range(ROUNDS):
            batches = [self.project.accept(count) for count in BUILDS]
            doomed = [builds[0] for builds in batches]

            racing.race(
                *[lambda builds=builds: self.admit(self.drivers[0], builds)
                  for builds in batches],
                lambda: self.project.delete(doomed))

            used = self.project.usage()[0]
            self.assertLessEqual(used, ROOM)
            # Deleted servers use no quota.
            rest = self.project.accept(ROOM)
            self.admit(self.drivers[0], rest)
            self.assertEqual(ROOM, self.project.usage()[0])
            for builds in (*batches, rest):
                self.project.delete(builds)

    def test_limits_are_set_at_the_same_time(self):
        for count in range(ROUNDS):
            name = f'project-{count}'

            outcomes = racing.race(*[
                lambda limit=limit: self.project.limit(
                    project_id=name, cores=limit, ram=limit)
                for limit in range(RACERS)])

            for outcome in outcomes:
                self.assertTrue(outcome is None or isinstance(
                    outcome, exception.TransactionLost), outcome)
            self.assertIn(None, outcomes)
            with self.database.reader() as connection:
                limits = self.drivers[0].limits(connection, name)
            self.assertEqual(limits['cores'], limits['ram'])


@profile.full_only(
    'a further isolation; the rules are proven in read committed')
class TestRepeatableRead(TestQuotaRaces):
    """The same races with snapshots of the start of each transaction."""

    parameters = ('options=-cdefault_transaction_isolation'
                  '%3Drepeatable%5C%20read')


class TestSeveralProjects(base.APITestCase):

    #: Whether rows that several insert at once make one of them lose, which
    #: then begins again.
    may_lose = False

    def surely(self, write):
        while True:
            try:
                return write()
            except exception.TransactionLost:
                if not self.may_lose:
                    raise

    def test_admissions_of_several_projects_do_not_deadlock(self):
        database = self.make_database()
        project, driver = projects.Project(database), projects.driver(cores=9)
        names = ['a', 'b', 'c']

        def admit(order):
            batches = [quota.QuotaBatch(name, 'user', self.surely(
                lambda name=name: project.accept(project_id=name)))
                for name in order]

            def admit_all():
                with database.writer() as connection:
                    return driver.admit_all(connection, batches)
            return self.surely(admit_all)

        for _ in range(ROUNDS):
            outcomes = racing.race(*[
                lambda order=order: admit(order)
                for order in (names, names[::-1]) * (RACERS // 2)])

            self.assertEqual([{}] * RACERS, outcomes)


@profile.full_only('MariaDB; the rules are proven on PostgreSQL')
class TestQuotaRacesOnMariaDB(base.OnMariaDB, TestQuotaRaces):
    pass


class TestSeveralProjectsOnMariaDB(base.OnMariaDB, TestSeveralProjects):

    may_lose = True
