# SPDX-License-Identifier: Apache-2.0
"""Reasons why a build found no host, for operators."""

import contextlib
import io
import json

import sqlalchemy as sa

from cellsched.cli import app
from cellsched.db.api import models
from cellsched.standalone import deployment
from tests.functional import base
from tests import profile


class TestReasons(base.TestCase):

    def run_shell(self, *argv):
        """Run ``cellsched``; return the exit code and what it said."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = app.Shell(out, err).run([
                '--config-file',
                str(self.world.directory / 'etc' / 'api.conf'),
                *map(str, argv)])
        return code, out.getvalue(), err.getvalue()

    def explained(self, name):
        """Return what is kept of a decision, once it is."""
        def explain():
            code, out, _ = self.run_shell('explain', name, '-f', 'json')
            return json.loads(out) if code == 0 else None

        return self.until(explain, f'{name} is explained')

    def planned(self, *argv):
        """Return the exit code of a plan, and the hosts."""
        code, out, err = self.run_shell('plan', '-f', 'json', *argv)
        self.assertEqual('', err)
        return code, [each['host'] for each in json.loads(out)['places']]

    def kept(self):
        return self._scalar(sa.select(sa.func.count()).select_from(
            models.scheduler_decisions))

    @profile.full_only('the test below plans a host that a build gets')
    def test_server_gets_the_planned_host_if_all_builds_are_reported(self):
        # A host reports after some seconds. A scheduler counts a build as in
        # progress until then, and a plan does not.
        self.deploy(
            {cell: [deployment.DeployedHost(
                f'{cell}{number}', vcpus=least + number, memory_mb=20480)
                for number in range(3)]
             for cell, least in (('a', 20), ('b', 30))},
            filter_scheduler={'io_ops_weight_multiplier': 0})
        for _ in range(8):
            planned = self.planned('--flavor', 'small')

            [found] = self.built()

            self.assertEqual((0, [found.host]), planned)

    def test_refused_build_is_explained_and_planned_again(self):
        self.deploy({'cell1': ['a1', deployment.DeployedHost('a2', vcpus=4)],
                     'cell2': [deployment.DeployedHost('b1', memory_mb=4096)]})
        [refused] = self.built(flavor='huge')

        told = self.explained(refused.uuid)
        _, text, _ = self.run_shell('explain', refused.uuid)

        self.assertIn(told['reason'], refused.reason)
        self.assertEqual({'a1', 'a2', 'b1'}, {
            *told['examples']['size:MEMORY_MB']})
        for words in ('No host: ', 'size:MEMORY_MB', '114688 MB', 'a2'):
            self.assertIn(words, text)
        self.assertEqual((2, []), self.planned('--flavor', 'huge'))
        self.assertEqual((0, ['a1']), self.planned('--flavor', 'small'))
        self.assertEqual((0, ['a2']), self.planned(
            '--flavor', 'small', '--ignore-host', 'a1'))
        self.assertEqual((2, []), self.planned(
            '--flavor', 'small', *(
                word for host in ('a1', 'a2', 'b1')
                for word in ('--ignore-host', host))))

    def test_chosen_host_is_explained(self):
        self.deploy({'cell1': ['a1', deployment.DeployedHost('a2', vcpus=4)]})
        [built] = self.built()

        told = self.explained(built.uuid)

        self.assertEqual(
            ('a1', 'a2'), (told['picks'][0]['first']['host'],
                           told['picks'][0]['second']['host']))
        self.assertIn('CPUWeigher', told['why_not_second'])
        self.assertEqual([built.uuid], told['instances'])

    def test_plans_claim_and_record_no_decision(self):
        self.deploy({'cell1': ['a1'], 'cell2': ['b1']})
        [built] = self.built()
        self.explained(built.uuid)
        kept = self.kept()

        for argv in (['--flavor', 'small', '--count', 5],
                     ['--flavor', 'huge']):
            self.planned(*argv)

        self.assertEqual(kept, self.kept())
        self.assertClaimsMatch()

    def test_snapshot_plans_as_the_deployment_does(self):
        self.deploy({
            'cell1': ['a1', deployment.DeployedHost('a2', memory_mb=65536)],
            'cell2': [deployment.DeployedHost(
                'b1', vcpus=6, availability_zone='moon')]})
        self.built(max_count=3)
        path = self.world.directory / 'hosts.json'
        self.assertEqual((0, '', ''), self.run_shell(
            'host', 'export', path))

        for argv in ([], ['--count', 4], ['--ignore-host', 'a2'],
                     ['--availability-zone', 'moon', '--count', 2],
                     ['--availability-zone', 'mars']):
            self.assertEqual(
                self.planned('--flavor', 'small', *argv),
                self.planned('--snapshot', path, '--vcpus', 1, '--ram', 512,
                             '--disk', 10, *argv), argv)
        live = self.run_shell('host', 'list', '-f', 'json')
        self.assertEqual(live, self.run_shell(
            'host', 'list', '--snapshot', path, '-f', 'json'))

    def test_decisions_are_kept_when_the_scheduler_stops(self):
        self.deploy({'cell1': ['a1']})
        [built] = self.built()

        self.world.stop()

        code, out, _ = self.run_shell('explain', built.uuid)
        self.assertEqual(0, code)
        self.assertIn('a1', out)

    def test_unreachable_cell_is_named(self):
        self.deploy({'cell1': ['a1'], 'cell2': ['b1']})
        self.take_down('cell2')

        code, out, err = self.run_shell('plan', '--flavor', 'huge')
        _, listed, warning = self.run_shell('host', 'list')

        self.assertEqual((2, ''), (code, err))
        self.assertIn('cell2', out)
        self.assertIn('cell2', warning)
        self.assertNotIn('b1', listed)
