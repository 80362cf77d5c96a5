# SPDX-License-Identifier: Apache-2.0
"""The audit: findings, and none in a correct deployment."""

import contextlib
import io
import json
import subprocess
import sys

import sqlalchemy as sa

from cellsched.claims import base as claims_base
from cellsched.cli import app
from cellsched.db.cell import models as cell_models
from cellsched.wiring import services
from tests.functional import base


class TestAudit(base.TestCase):

    def setUp(self):
        super().setUp()
        self.deploy({'cell1': ['a1', 'a2'], 'cell2': ['b1']})

    def conf_file(self, name='api'):
        return self.world.directory / 'etc' / f'{name}.conf'

    def audit(self, *argv, settle=0):
        """Run the command; return its exit code, rows and errors."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = app.Manage(out, err).run([
                '--config-file', str(self.conf_file()), 'audit', '-f', 'json',
                f'--settle={settle}', *argv])
        text = out.getvalue()
        return code, json.loads(text) if text else None, err.getvalue()

    def busy(self):
        """Return servers of all fates: one that runs, one deleted."""
        running, deleted = self.built(min_count=2)
        self.built(flavor='huge')
        self.delete(deleted.uuid)
        self.gone(deleted.uuid)
        self.assertHoldsNothing(deleted.uuid)
        self.unheard().servers.create(base.USER, 'waiting', 'small')
        return running.uuid, deleted.uuid

    def take(self, uuid):
        self.world.api.parts.claims.claim([claims_base.Claim(
            uuid, self.provider('cell2', 'b1'), base.SMALL)])

    def test_deployment_at_work_is_clean(self):
        auditor = services.auditor(self.world.api.parts)
        events = [self.driver(host).hold_builds() for host in ('a1', 'b1')]
        uuids = self.create(min_count=6)

        def settles():
            self.soon(lambda: self.assertEqual(
                [], auditor.run(settle_s=0.1).remaining))

        for _ in range(5):
            settles()
        for event in events:
            event.set()
        for uuid in uuids:
            self.delete(uuid)
            settles()
        self.gone(*uuids)

    def test_leaked_claim_is_reported_with_its_invariant_and_repaired(self):
        running, deleted = self.busy()
        self.take(deleted)

        code, [found], err = self.audit()
        self.assertEqual((1, 'S4', 'claim-leaked', deleted, 'left', ''), (
            code, found['Invariant'], found['Kind'], found['Of'],
            found['State'], err))

        code, [found], err = self.audit('--fix')
        self.assertEqual((2, 'S4', 'claim-leaked', deleted, 'repaired'), (
            code, found['Invariant'], found['Kind'], found['Of'],
            found['State']))
        self.assertEqual([], self.held(deleted))
        self.assertNotEqual([], self.held(running))
        self.assertEqual((0, [], ''), self.audit())
        self.assertClaimsMatch()

    def test_unsafe_repairs_are_not_made(self):
        running, deleted = self.busy()
        self.take(deleted)
        cell = self.get(running).cell
        other = 'cell1' if cell == 'cell2' else 'cell2'
        table = cell_models.instances
        [row] = self.rows(running).values()
        targets = self.world.api.parts.targets
        with targets.database(self.cells()[other]).writer() as connection:
            connection.execute(sa.insert(table).values(
                **{**row._mapping, 'id': None}))

        code, found, _ = self.audit('--fix')

        self.assertEqual(1, code)
        self.assertEqual(
            [('S2', 'two-cells', running, other, 'left'),
             ('S4', 'claim-leaked', deleted, None, 'repaired')],
            [(each['Invariant'], each['Kind'], each['Of'],
              each['Cell'] if each['Of'] == running else None, each['State'])
             for each in found])

    def test_foreign_claims_are_reported_and_kept(self):
        stranger = '11111111-2222-4333-8444-555555555555'
        self.take(stranger)

        code, found, err = self.audit('--fix')

        self.assertEqual((0, []), (code, found))
        self.assertIn('1 consumers', err)
        self.assertIn(stranger, err)
        self.assertNotEqual([], self.held(stranger))

    def test_conductor_releases_leaked_claims(self):
        _, deleted = self.busy()
        self.take(deleted)
        conf = self.world.conf('api')
        conf.set_override('claims_check_interval', 1, 'conductor')
        conf.set_override('transport_url', 'local://audit/other')

        service = services.conductor(conf)
        service.start()
        self.addCleanup(service.stop)

        self.assertHoldsNothing(deleted)

    def test_process_ends_with_the_code(self):
        [uuid] = self.create()
        self.settled([uuid])

        def code(*argv):
            return subprocess.run(
                [sys.executable, '-c',
                 'from cellsched.cmd import manage; manage.main()',
                 f'--config-file={self.conf_file()}', 'audit', '--settle=0',
                 *argv],
                capture_output=True, timeout=base.TIMEOUT_S).returncode

        self.world.api.parts.claims.release([uuid])
        self.assertEqual(1, code())
        self.assertEqual(2, code('--fix'))
        self.assertEqual(0, code())
        self.assertEqual(3, code('--nonsense'))
