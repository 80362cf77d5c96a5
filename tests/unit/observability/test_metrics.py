# SPDX-License-Identifier: Apache-2.0
"""The metrics, and the files that name them."""

import json
import pathlib
import re
import shutil
import subprocess

import yaml

from cellsched.observability import metrics
from tests.unit import base

ROOT = pathlib.Path(__file__).resolve().parents[3]

ETC = ROOT / 'etc' / 'cellsched'

#: Names of metrics in expressions and pages.
NAME = re.compile(r'\bcellsched_[a-z0-9_]+\b')


def published():
    """Return the names of the samples that metrics may have."""
    return {name for each in metrics.FIGURES for name in (
        [f'{each.name}_{suffix}' for suffix in ('bucket', 'count', 'sum')]
        if each.kind == metrics.HISTOGRAM else [each.name])}


class TestFigures(base.TestCase):

    def test_names_follow_the_conventions_of_prometheus(self):
        for each in metrics.FIGURES:
            self.assertRegex(each.name, r'^cellsched_[a-z]+(_[a-z]+)*$')
            self.assertEqual(
                each.kind == metrics.COUNTER, each.name.endswith('_total'))
            self.assertEqual(each.kind == metrics.HISTOGRAM,
                             each.name.endswith('_duration_seconds'))
            self.assertTrue(each.help.endswith('.'), each.name)

    def test_labels_have_few_values(self):
        self.assertEqual(
            {'binary', 'cell', 'filter', 'kind', 'phase', 'plugin', 'queue',
             'reason', 'resource_class', 'result', 'state', 'version'},
            {label for each in metrics.FIGURES for label in each.labels})

    def test_samples_of_two_metrics_do_not_share_a_name(self):
        names = [each.name.removesuffix('_total') for each in metrics.FIGURES]

        self.assertEqual(len(names), len(set(names)))


class TestMetrics(base.TestCase):

    def test_disabled_metrics_publish_no_values(self):
        off = metrics.Metrics()
        off.add(metrics.CLAIM_RETRIES)
        off.add_source(self.fail)
        off.publish()
        off.close()

        self.assertEqual(b'', off.exposition('')[0])


class TestFiles(base.TestCase):
    """The alert rules and the dashboard name metrics that exist."""

    def test_alert_rules(self):
        document = yaml.safe_load((ETC / 'alerts.yaml').read_text())
        rules = [rule for group in document['groups']
                 for rule in group['rules']]

        self.assertGreater(len(rules), 5)
        for rule in rules:
            names = set(NAME.findall(rule['expr']))
            self.assertLessEqual(names, published(), rule['alert'])
            self.assertTrue(rule['annotations']['summary'])
            self.assertIn(rule['labels']['severity'], ('critical', 'warning'))

    def test_promtool_accepts_the_alert_rules(self):
        promtool = shutil.which('promtool')
        if promtool is None:
            self.skipTest('promtool is not installed')
        done = subprocess.run(
            [promtool, 'check', 'rules', ETC / 'alerts.yaml'],
            capture_output=True, text=True)

        self.assertEqual(0, done.returncode, done.stdout + done.stderr)

    def test_dashboard(self):
        document = json.loads((ETC / 'dashboard.json').read_text())
        panels = document['panels']

        self.assertEqual(len(panels), len({each['id'] for each in panels}))
        for panel in panels:
            self.assertTrue(panel['title'])
            for target in panel['targets']:
                names = set(NAME.findall(target['expr']))
                self.assertTrue(names, panel['title'])
                self.assertLessEqual(names, published(), panel['title'])

    def test_page_lists_each_metric_with_its_labels(self):
        page = (ROOT / 'doc/source/admin/metrics.rst').read_text()
        table = page[page.index('.. list-table:: Metrics'):]

        rows = re.findall(r'\* - ``(\w+)``\n     - (.*)\n', table)

        self.assertEqual(
            [(each.name, ', '.join(f'``{label}``' for label in each.labels)
              or 'none') for each in metrics.FIGURES], rows)
