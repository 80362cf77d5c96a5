# SPDX-License-Identifier: Apache-2.0
"""Clocks of machines that are wrong by minutes, in either direction."""

import datetime

import futurist
import sqlalchemy as sa

from cellsched.clock import Clock
from cellsched.conductor import recovery
from cellsched.db.api import models
from cellsched.db.cell.services import COMPUTE
from cellsched.db.cell.services import is_up
from cellsched.db.cell.services import report
from cellsched.db import session
from cellsched.standalone import deployment
from cellsched.testing import clock
from cellsched.wiring import services
from tests.functional import base
from tests.unit.db import samples

WRONG_S = 600.0

#: Servers, which are for schedulers and conductors in turn.
COUNT = 12

CELLS = [
    deployment.DeployedCell(name, [
        deployment.DeployedHost(f'{name}-{number}', vcpus=16)
        for number in (1, 2)])
    for name in ('cell1', 'cell2')]


class Deployment(deployment.Deployment):
    """Services with clocks of their own; databases have that of the machine.

    :param ahead_s: returns by how much a clock is ahead, by the host that a
        service is on
    """

    def __init__(self, ahead_s, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._ahead_s = ahead_s
        self._opened = []

    def _parts(self, conf):
        return self.parts(conf, self._ahead_s(conf.host))

    def parts(self, conf, ahead_s):
        databases = session.Databases(Clock())
        self._opened.append(databases)
        return services.Components(
            conf, clock.WrongClock(ahead_s), databases=databases)

    def also(self, make, ahead_s):
        """Start one more service above the cells."""
        conf = self.conf('api')
        self._run(make(conf, self.parts(conf, ahead_s)))

    def stop(self):
        super().stop()
        for databases in self._opened:
            databases.close()


class TestWrongClocks(base.TestCase):
    """Wrong clocks of each service, with default options."""

    def bring_up(self, **ahead_s):
        """Start services; their hosts' clocks are ahead by so much."""
        self.world = Deployment(
            lambda host: ahead_s.get(host.replace('-', '_'), 0.0),
            self.temporary_directory(), CELLS)
        self.world.start()
        self.addCleanup(self.world.stop)
        self.world.api.flavors.create(base.ADMIN, 'small', 1, 512, 10)

    def assertAllAreBuilt(self):
        """Servers are built one by one, each at its first try."""
        uuids = [self.create()[0] for _ in range(COUNT)]
        tries = self.tries(uuids)

        found = self.settled(uuids)

        self.assertEqual(['ACTIVE'] * COUNT, [each.status for each in found])
        self.assertEqual([], [uuid for uuid in uuids if tries[uuid] > 1])
        self.assertClaimsMatch()
        return {each.host for each in found}

    def tries(self, uuids):
        """Return how often requests that are still there were taken up."""
        table = models.build_requests
        with self.world.api.parts.database.reader() as connection:
            rows = connection.execute(sa.select(
                table.c.instance_uuid, table.c.lease_count).where(
                    table.c.instance_uuid.in_(uuids))).all()
        return {**dict.fromkeys(uuids, 0), **dict(map(tuple, rows))}

    def test_schedulers(self):
        self.bring_up(api=0.0)
        for ahead_s in (WRONG_S, -WRONG_S):
            self.world.also(services.scheduler, ahead_s)

        self.assertAllAreBuilt()

    def test_scheduler_and_its_callers(self):
        for ahead_s in (WRONG_S, -WRONG_S):
            with self.subTest(ahead_s=ahead_s):
                self.bring_up(api=ahead_s)
                self.world.also(services.scheduler, -ahead_s)

                self.assertAllAreBuilt()

    def test_agents(self):
        """They are neither dead nor alive for ever."""
        self.bring_up(cell1_1=WRONG_S, cell2_1=-WRONG_S)

        hosts = self.assertAllAreBuilt()

        self.assertEqual({host.name for cell in CELLS for host in cell.hosts},
                         hosts)
        for cell in CELLS:
            self.assertEqual(
                {host.name for host in cell.hosts},
                self.up(cell.name, Clock()))
            later = clock.WrongClock(61)
            self.assertEqual(set(), self.up(cell.name, later))

    def up(self, cell, time):
        """Return the hosts of a cell that are up at that time."""
        database = session.Database(
            self.world.conf(cell).database.connection, 'cell', clock=time)
        self.addCleanup(database.close)
        with database.reader() as connection:
            return {host.name for each in CELLS for host in each.hosts
                    if is_up(
                        connection, host.name, database.now(), 60)}

    def test_conductors(self):
        self.bring_up(conductor_cell1=WRONG_S, conductor_cell2=-WRONG_S)
        for ahead_s in (WRONG_S, -WRONG_S):
            self.world.also(services.conductor, ahead_s)

        self.assertAllAreBuilt()

    def lost(self, ahead_s):
        """Return a server that an API with this clock told nobody of."""
        conf = self.world.conf('api')
        conf.set_override('transport_url', f'local://{self.id()}/lost')
        api = services.api(conf, self.world.parts(conf, ahead_s))
        self.addCleanup(api.close)
        return api.servers.create(base.USER, 'name', 'small')

    def test_accepted_server_is_recovered_in_time(self):
        """Neither at once, as if it were old, nor much later."""
        self.bring_up()
        for ahead_s in (WRONG_S, -WRONG_S):
            uuids = self.lost(ahead_s)

            self.recover()
            self.assertEqual({uuids[0]: 0}, self.tries(uuids))
            self.assertEqual('BUILD', self.get(uuids[0]).status)
            self.recover(61)

            [found] = self.settled(uuids)
            self.assertEqual('ACTIVE', found.status)

    def test_working_conductor_keeps_its_lease_beside_wrong_clocks(self):
        """Others that are ahead do not take it for dead."""
        self.bring_up(api=-WRONG_S)
        [uuid] = self.lost(-WRONG_S)
        taken = []

        def reached(step):
            if step == 'Lease' and not taken:
                taken.append(step)
                self.overtake(uuid)

        self.task(reached=reached).run(base.USER, [uuid])

        self.assertEqual({uuid: 1}, self.seen)
        [found] = self.settled([uuid])
        self.assertEqual('ACTIVE', found.status)

    def overtake(self, uuid):
        """Have a conductor that is ahead look for what lies about."""
        parts = self.world.parts(self.world.conf('api'), WRONG_S)
        self.addCleanup(parts.close)
        recovery.Recoverer(
            parts.database, self.task(clock=parts.clock), 60,
            futurist.SynchronousExecutor()).run()
        self.seen = self.tries([uuid])


class TestMassOutage(base.TestCase):
    """Hosts that go down at the same time."""

    def setUp(self):
        super().setUp()
        self.deploy({'cell1': ['a1', 'a2'], 'cell2': ['b1', 'b2']},
                    DEFAULT={'report_interval': 3600,
                             'service_down_time': 7200},
                    scheduler=base.READ_EACH_TIME)

    def report(self, *hosts, ago_s=0.0):
        """Have hosts be seen for the last time that long ago."""
        for host in hosts:
            database = self.world.agents[host].parts.cell_database
            with database.writer() as connection:
                report(
                    connection, samples.uuids(1)[0], host, COMPUTE,
                    'compute', database.now() - datetime.timedelta(
                        seconds=ago_s))

    def test_build_is_tried_again_when_nearly_all_are_down(self):
        """As it is when the databases were away for a while."""
        self.report('a1', 'a2', 'b1', 'b2', ago_s=9000)

        [uuid] = self.create()

        self.soon(lambda: self.assertIn(
            '4 of 4 went down at the same time', self.get(uuid).reason))
        self.assertEqual('BUILD', self.get(uuid).status)
        self.assertEqual(1, self.logs.output.count('Suspected clock skew'))

        self.report('a1', 'a2', 'b1', 'b2')
        self.recover(61)

        [found] = self.settled([uuid])
        self.assertEqual('ACTIVE', found.status)

    def test_build_fails_when_a_cell_is_down_and_the_other_has_no_room(self):
        self.report('a1', 'a2', ago_s=9000)

        [found] = self.built(flavor='huge')

        self.assertEqual('ERROR', found.status)
        self.assertNotIn('Suspected clock skew', self.logs.output)
