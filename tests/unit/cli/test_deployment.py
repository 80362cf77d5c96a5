# SPDX-License-Identifier: Apache-2.0
"""Commands are about a deployment, which may be somebody else's."""

import functools
import random

from cellsched.cli import app
from cellsched.cli import deployment
from cellsched.hosts import document
from cellsched.scheduler.decision import pipeline
from cellsched.scheduler import planning
from cellsched.testing import builders
from tests.unit.cli import base
from tests.unit.filters import cells
from tests.unit.scheduler import toys

SIZE = ('--vcpus', 1, '--ram', 512)


def only_first():
    """Return a decision that rejects every host but the first."""
    return pipeline.Pipeline(
        [toys.Filter(lambda hosts: hosts.rows == 0)], [])


class FarDeployment(deployment.ReadDeployment):
    """Hosts that no database here knows, and a decision of their own."""

    retention_option = '[elsewhere] kept'
    retention_s = 60
    hints = None

    def __init__(self, conf):
        self._conf = conf

    def cells(self):
        return {builders.CELL: 'far'}

    def flavor(self, name):
        return builders.request(memory_mb=3000).flavor

    def server_group(self, uuid):
        raise AssertionError('no group was named')

    def snapshot(self):
        return document.HostDocument(
            builders.table(host=['a', 'b'], nodename=['a', 'b'],
                           free_ram_mb=[4096, 8192],
                           numa_topology=[None, cells.topology(3, 8)]),
            builders.NOW, self.cells())

    def planner(self, snapshot=None):
        return planning.on_snapshot(
            self._conf, snapshot or self.snapshot(), random.Random(0),
            only_first())

    def capacity(self, snapshot, request):
        return planning.capacity(
            self._conf, snapshot, request, only_first())

    def decisions(self, name, limit):
        return []


class FarShell(app.Shell):
    """Commands for hosts of somebody else's."""

    @functools.cached_property
    def deployment(self):
        return FarDeployment(self.conf)


class TestDeployment(base.CommandTestCase):

    def setUp(self):
        super().setUp()
        self.write('api.conf')

    def far(self, *argv):
        return self.run_app(
            FarShell, '--config-file', self.api_conf, *argv)

    def test_plan_is_made_by_the_deployment_without_a_database(self):
        ran = self.far('plan', *SIZE, '-f', 'json')

        self.assertEqual((0, ''), (ran.code, ran.err))
        self.assertEqual([('a', 'far')], [
            (each['host'], each['cell']) for each in ran.data['places']])

    def test_capacity_is_counted_by_the_deployment(self):
        ran = self.far('capacity', '--flavor', 'any', '-f', 'json')

        self.assertEqual((0, ''), (ran.code, ran.err))
        self.assertEqual([('far', 2, 1, 1), ('all cells', 2, 1, 1)],
                         [tuple(row.values())[:4] for row in ran.data])

    def test_hints_of_the_deployment_are_accepted(self):
        self.assertEqual(0, self.far(
            'plan', *SIZE, '--hint', 'rack=3').code)

    def test_hosts_are_exported_from_the_deployment(self):
        ran = self.far('host', 'export')

        self.assertEqual(['a', 'b'], ran.data['columns']['host'])

    def test_cells_are_drawn_without_the_claims(self):
        ran = self.far('host', 'show', 'b', '-f', 'json')

        self.assertEqual((0, ''), (ran.code, ran.err))
        self.assertEqual([{'total': 8, 'free': 3}, {'total': 8, 'free': 8}], [
            each['dedicated_cpus'] for each in ran.data['Cells']])

    def test_missing_decision_names_the_option_of_the_deployment(self):
        self.assertEnds(1, self.far('explain', 'req-1'),
                        'req-1', '60 seconds, as [elsewhere] kept says')
