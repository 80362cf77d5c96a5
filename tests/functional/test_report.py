# SPDX-License-Identifier: Apache-2.0
"""The report of a deployment with a silent cell and a refused server."""

import contextlib
import io
import json

from cellsched.cli import app
from cellsched.standalone import deployment
from tests.functional import base

NAME = '<script>alert(1)</script>'


class TestReport(base.TestCase):

    def run_report(self, *argv):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = app.Shell(out, err).run([
                '--config-file',
                str(self.world.directory / 'etc' / 'api.conf'), 'report',
                *map(str, argv)])
        self.assertEqual(0, code, err.getvalue())
        return out.getvalue(), err.getvalue()

    def data(self, *argv):
        return json.loads(self.run_report('-f', 'json', *argv)[0])

    def test_report_is_whole_although_a_cell_is_silent(self):
        self.deploy({
            'north': ['n1', deployment.DeployedHost(
                'n2', vcpus=1, availability_zone='tight')],
            'south': ['s1'], 'west': ['w1']})
        # 1. Fill a host, force another one down, and lose a message and a
        # cell.
        [small] = self.built(availability_zone='tight')
        [refused] = self.built(flavor='huge')
        [waiting] = self.unheard().servers.create(base.USER, NAME, 'small')
        self.world.api.services.set(
            base.ADMIN, 's1', 'nova-compute', forced_down=True)
        self.take_down('west')
        # 2. Decisions are written in the background.
        data = self.until(
            lambda: (found := self.data())['refusals']['decisions']['refused']
            and found, 'the refusal is recorded')
        # 3. All parts but the cell are there.
        states = {each['name']: each['state'] for each in data['cells']}
        self.assertEqual({'cell0': 'up', 'north': 'up', 'south': 'up',
                          'west': 'down'}, states)
        self.assertEqual([], data['problems'])
        self.assertEqual(
            (2, 1, 1), tuple(data['hosts'][name]
                             for name in ('up', 'down', 'unknown')))
        self.assertEqual([('s1', True, []), ('n2', False, ['VCPU'])], [
            (each['host'], each['forced_down'], each['full'])
            for each in data['hosts']['rows']])
        self.assertEqual([(waiting, NAME, 'scheduling')], [
            (each['uuid'], each['name'], each['state'])
            for each in data['builds']['rows']])
        self.assertEqual(
            [1], [each['count'] for each
                  in data['refusals']['failures']['reasons']])
        self.assertEqual(
            ['size:MEMORY_MB'],
            [each['reason'] for each
             in data['refusals']['decisions']['reasons']])
        self.assertEqual([refused.uuid], data['decision']['instances'])
        shown = self.data('--instance', small.uuid)['decision']
        self.assertEqual([small.uuid], shown['instances'])

        path = self.temporary_directory() / 'report.html'
        _, err = self.run_report('--html', path, '--instance', small.uuid)
        page = path.read_text()
        self.assertIn('cell west did not answer', err)
        for text in 'west</bdi> is silent', 'size:MEMORY_MB', small.host:
            self.assertIn(text, page)
        self.assertNotIn('<script', page)
        self.assertNotIn('sqlite', page)
