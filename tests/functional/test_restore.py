# SPDX-License-Identifier: Apache-2.0
"""The page "Backup and restore": restored databases."""

import contextlib
import io
import json
import sqlite3

from cellsched.cli import app
from cellsched import context
from cellsched import exception
from cellsched.standalone import deployment
from cellsched.testing.clock import WrongClock
from cellsched.wiring import services
from tests.functional import base

CELLS = ('cell0', 'cell1', 'cell2')


class TestRestore(base.TestCase):

    def setUp(self):
        super().setUp()
        self.deploy({
            'cell1': [deployment.DeployedHost('a1', availability_zone='one')],
            'cell2': [deployment.DeployedHost('b1', availability_zone='two')]},
            cells={'timeout': 60})
        for zone in ('one', 'two'):
            self.build(zone)

    def build(self, zone='one'):
        """Return the uuid of a server that was built, by default in cell1."""
        [found] = self.built(availability_zone=zone)
        self.assertEqual('ACTIVE', found.status)
        return found.uuid

    def end(self, uuid):
        self.delete(uuid)
        self.gone(uuid)
        self.assertHoldsNothing(uuid)

    def back_up(self, *names):
        for name in names:
            self.copy(name, f'{name}-backup')

    def restore(self, *names):
        """Put back what was backed up, while no service runs."""
        self.world.stop()
        for name in names:
            self.copy(f'{name}-backup', name)

    def copy(self, name, to):
        with (contextlib.closing(self.file(name)) as source,
              contextlib.closing(self.file(to)) as target):
            source.backup(target)

    def file(self, name):
        return sqlite3.connect(self.world.directory / f'{name}.sqlite')

    def audit(self, *argv):
        """Run the command; return its exit code, what it says, and errors.

        What it says is the kind, the server and what became of it. All
        cells must answer.
        """
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = app.Manage(out, err).run([
                f'--config-file={self.world.directory}/etc/api.conf',
                'audit', '-f', 'json', '--settle=0', *argv])
        rows = json.loads(out.getvalue())
        self.assertEqual([], [row['Finding'] for row in rows
                              if row['Kind'] == 'cell-unreachable'])
        return code, sorted((row['Kind'], row['Of'], row['State'])
                            for row in rows), err.getvalue()

    def assertMended(self, *found):
        """All that an audit finds is this, and it repairs that."""
        self.assertEqual(
            (2, sorted((*each, 'repaired') for each in found), ''),
            self.audit('--fix'))
        self.assertEqual((0, [], ''), self.audit())

    def start(self, conductor_late_s=0):
        """Start services again; return what calls them.

        :param conductor_late_s: how much later the conductor above the cells
            lives, which looks for what was left lying when it starts
        """
        conf = self.world.conf('api')
        conf.set_override('recovery_interval', 1, 'conductor')
        agents = []
        for cell in self.world.cells:
            self.run_service(services.conductor(self.world.conf(cell.name)))
            agents += [self.agent(cell.name, host.name)
                       for host in cell.hosts]
        self.run_service(services.scheduler(conf))
        self.run_service(services.conductor(
            conf, services.Components(conf, WrongClock(conductor_late_s))))
        api = services.api(conf)
        self.addCleanup(api.close)
        # The agents end first.
        for agent in agents:
            self.addCleanup(agent.stop)
        return api

    def agent(self, cell, host):
        """Start the agent of a machine, which has kept its guests."""
        conf = self.world.conf(cell)
        conf.set_override('host', host)
        conf.set_override(
            'state_path', str(self.world.directory / 'state' / host))
        parts = services.Components(conf)
        parts.driver = self.driver(host)
        agent = services.compute(conf, parts)
        agent.start()
        return agent

    def run_service(self, service):
        service.start()
        self.addCleanup(service.stop)

    def select(self, name, statement, *values):
        """Return what a database answers, of whatever process."""
        with contextlib.closing(self.file(name)) as database:
            return database.execute(statement, values).fetchall()

    def test_claims_are_mended(self):
        deleted = self.build()
        self.back_up('claims')
        self.end(deleted)
        late = self.build()

        self.restore('claims')

        self.assertMended(('claim-leaked', deleted), ('unclaimed', late))

    def test_cell0_is_mended(self):
        self.back_up('cell0')
        [buried] = self.built(flavor='huge')

        self.restore('cell0')

        self.assertMended(('row-lost', buried.uuid))

    def test_servers_lost_by_the_api_database_are_mapped(self):
        self.back_up('api')
        late = self.build()
        [buried] = self.built(flavor='huge')
        [waiting] = self.unheard().servers.create(
            base.USER, 'waiting', 'small')

        self.restore('api')

        code, found, err = self.audit('--fix')
        self.assertEqual((1, sorted([
            ('row-unmapped', late, 'repaired'),
            ('row-unmapped', buried.uuid, 'repaired'),
            ('spec-missing', late, 'left')])), (code, found))
        # They were nobody's when the audit began.
        self.assertIn(late, err)
        self.assertEqual((1, [('spec-missing', late, 'left')], ''),
                         self.audit('--fix'))
        api = self.start()
        self.assertEqual('ACTIVE', api.servers.get(base.USER, late).status)
        self.assertRaises(exception.InstanceNotFound,
                          api.servers.get, base.USER, waiting)

    def test_restored_request_finds_its_server(self):
        [waiting] = self.unheard().servers.create(
            base.USER, 'waiting', 'small', availability_zone='one')
        self.back_up('api')
        self.recover(late_s=120)
        self.settled([waiting])

        def rows():
            return self.select(
                'cell1', 'SELECT id, host, vm_state, deleted FROM instances '
                'WHERE uuid = ?', waiting)

        def requests():
            return self.select('api', 'SELECT id FROM build_requests')

        before = rows()
        self.restore('api')

        self.assertEqual(1, len(requests()))
        self.assertMended(('request-left', waiting))
        self.assertEqual([], requests())
        api = self.start(conductor_late_s=120)
        self.assertEqual(before, rows())
        self.assertEqual('cell1', api.servers.get(base.ADMIN, waiting).cell)

    def test_cell_needs_an_operator(self):
        deleted = self.build()
        self.back_up('cell1')
        self.end(deleted)
        late = self.build()

        self.restore('cell1')

        left = [('deleted-visible', deleted, 'left'),
                ('row-lost', late, 'left')]
        self.assertEqual(
            (1, [*left, ('unclaimed', deleted, 'repaired')], ''),
            self.audit('--fix'))
        self.assertEqual((1, left, ''), self.audit('--fix'))
        api = self.start()
        api.servers.delete(base.USER, deleted)
        # Its guest runs on a host, and the cell does not know it.
        guest = 'guest-unexplained', late, 'left'
        self.soon(lambda: self.assertEqual(
            (1, [guest, ('row-lost', late, 'left')], ''), self.audit()))
        self.assertRaises(exception.InstanceNotFound,
                          api.servers.get, base.USER, late)
        stranger = context.member('x', 'other')
        self.assertRaises(exception.InstanceNotFound,
                          api.servers.delete, stranger, late)
        self.assertIn(late, api.parts.claims.claims_of([late]))

        api.servers.delete(base.USER, late)

        self.assertEqual({}, api.parts.claims.claims_of([late]))
        self.assertEqual((1, [guest], ''), self.audit())
        self.assertRaises(exception.InstanceNotFound,
                          api.servers.delete, base.USER, late)

    def test_databases_restored_together_have_no_findings(self):
        deleted = self.build()
        self.back_up('api', 'claims', *CELLS)
        self.end(deleted)
        self.build()

        self.restore('api', 'claims', *CELLS)

        self.assertEqual((0, [], ''), self.audit())

    def test_api_database_first_and_claims_last_forget_no_room(self):
        deleted = self.build()
        self.back_up('api')
        between = self.build()
        self.back_up(*CELLS)
        last = self.build()
        self.end(deleted)
        self.back_up('claims')

        self.restore('api', *CELLS, 'claims')

        code, found, _ = self.audit('--fix')
        # It runs, and only the claim store knows it.
        unknown = 'consumer-unknown', last, 'left'
        self.assertEqual((1, [
            unknown, ('row-unmapped', between, 'repaired'),
            ('spec-missing', between, 'left'),
            ('unclaimed', deleted, 'repaired')]), (code, found))
        self.assertEqual(
            (1, [unknown, ('spec-missing', between, 'left')], ''),
            self.audit('--fix'))
