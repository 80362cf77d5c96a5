# SPDX-License-Identifier: Apache-2.0
"""Killed services of each kind are seen by operators and by monitoring."""

import json
import re
from urllib import request

from prometheus_client import parser
import yaml

from tests.integration import base
from tests.integration import deployment
from tests.integration import processes
from tests.integration import servers
from tests import profile
from tests.unit.cmd import processes as unit_processes
from tests.unit import tidy

#: Options that let a service be down soon.
REPORTS = {'report_interval': '1', 'service_down_time': '6'}

ALERTS = tidy.ROOT / 'etc/cellsched/alerts.yaml'

#: The rules of services have this form.
RULE = re.compile(
    r'max by \(cell\) \(cellsched_services\{'
    r'binary="([\w-]+)", state="(\w+)"\}\) > 0')


class Reporting(deployment.Deployment):
    """A deployment whose services report often, with metrics of some."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, controls=2, cells={
            'cell1': {'a': {'vcpus': 4}, 'b': {'vcpus': 4}}}, **kwargs)
        self.port = unit_processes.free_port()

    def _write(self, name, groups):
        super()._write(name, {
            **groups, 'DEFAULT': {**groups['DEFAULT'], **REPORTS},
            **({'monitoring': {'conductor_port': self.port}}
               if name == 'control2' else {})})


@profile.full_only(
    'own processes; the records are tested in '
    'tests.functional.test_monitoring')
class TestKilledServices(base.TestCase):

    def setUp(self):
        super().setUp()
        self.world = self.useFixture(Reporting(
            self.part_of(servers.RabbitMQ), self.part_of(servers.PostgreSQL),
            workers=1))
        self.processes = {each.name: each for each in self.world.services}
        for each in self.world.services:
            self.show_output_of(each)

    def states(self):
        return {(row['Binary'], row['Host']): row['State']
                for row in self.world._json('service', 'list')}

    def firing(self):
        """Return the alerts on services that fire, by the metrics alone."""
        with request.urlopen(
                f'http://127.0.0.1:{self.world.port}/metrics',
                timeout=60) as answer:
            text = answer.read().decode()
        found = {(each.labels['binary'], each.labels['state'])
                 for family in parser.text_string_to_metric_families(text)
                 for each in family.samples
                 if each.name == 'cellsched_services' and each.value}
        [group] = yaml.safe_load(ALERTS.read_text())['groups']
        return {rule['alert'] for rule in group['rules']
                if (form := RULE.fullmatch(rule['expr']))
                and form.groups() in found}

    def await_states(self, expected):
        processes.wait_until(
            lambda: expected.items() <= self.states().items(),
            f'the states {expected}')

    def test_killed_service_is_down_and_has_an_alert(self):
        up = {
            **{(f'nova-{kind}', f'control{number}'): 'up' for kind in
               ('scheduler', 'conductor') for number in (1, 2)},
            ('nova-conductor', 'cell1-control'): 'up',
            **{('nova-compute', host): 'up' for host in 'ab'}}
        self.await_states(up)
        processes.wait_until(lambda: not self.firing(), 'no alert')
        killed = {
            'cellsched-scheduler-control1': ('nova-scheduler', 'control1'),
            'cellsched-conductor-cell1': ('nova-conductor', 'cell1-control'),
            'cellsched-compute-a': ('nova-compute', 'a')}

        for name in killed:
            self.processes[name].kill()

        self.await_states({**up, **dict.fromkeys(killed.values(), 'down')})
        processes.wait_until(
            lambda: self.firing() == {
                'CellschedSchedulerDown', 'CellschedConductorDown',
                'CellschedHostDown'}, 'the alerts')
        report = json.loads(self.world.shell('report', '-f', 'json'))
        self.assertEqual(
            ({('nova-scheduler', 'control1', 'down'),
              ('nova-conductor', 'cell1-control', 'down')}, ['a']),
            ({(row['binary'], row['host'], row['state'])
              for row in report['services']['rows']},
             [row['host'] for row in report['hosts']['rows']
              if row['state'] == 'down']))
        checked = self.run_command(
            'cellsched-status',
            f'--config-file={self.world.directory}/api.conf', 'upgrade',
            'check', '--json', expected=1)
        self.assertIn('nova-scheduler of host control1', checked)

        for name in killed:
            self.processes[name].start()

        self.await_states(up)
        processes.wait_until(lambda: not self.firing(), 'no alert')

    def test_stopped_service_is_stopped_and_deleted(self):
        self.await_states({('nova-scheduler', 'control1'): 'up'})

        self.processes['cellsched-scheduler-control1'].stop()

        # At once, without the time after which a service is down.
        self.assertEqual(
            'stopped', self.states()['nova-scheduler', 'control1'])
        [uuid] = [row['ID'] for row in self.world._json('service', 'list')
                  if (row['Binary'], row['Host']) == (
                      'nova-scheduler', 'control1')]
        self.world.shell('service', 'delete', uuid)
        self.assertNotIn(('nova-scheduler', 'control1'), self.states())
        self.assertEqual(set(), self.firing())
