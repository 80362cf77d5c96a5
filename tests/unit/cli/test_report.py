# SPDX-License-Identifier: Apache-2.0
"""The data of the report; the stories have deployments of several cells."""

import datetime
import types
from unittest import mock

from cellsched.cli import report
from cellsched.db.cell import services
from cellsched import exception
from cellsched.scheduler.decision import pipeline
from cellsched.scheduler.explanation import diagnosis
from tests.unit import base as unit_base
from tests.unit.cli import base
from tests.unit.cli import test_server
from tests.unit.db import samples

NOW = datetime.datetime(2026, 11, 26, 21, 4)
END = NOW.replace(tzinfo=datetime.UTC).timestamp()


class TestReport(test_server.ServerTestCase):

    def setUp(self):
        super().setUp()
        [self.uuid] = [each['ID'] for each in self.create(
            'web', '--flavor', 'small', '--wait').data]
        self.addCleanup(self.server, 'delete', self.uuid, '--wait')

    def report(self, *argv, code=0):
        ran = self.shell('report', *argv)
        self.assertEqual((code, ''), (ran.code, ran.err))
        return ran

    def test_cells_have_the_usage_of_their_resources(self):
        self.cloud.api.services.set(
            test_server.ADMIN, 'host1', 'nova-compute', True, 'new disks')
        self.addCleanup(self.cloud.api.services.set, test_server.ADMIN,
                        'host1', 'nova-compute', False)

        data = self.report('-f', 'json').data

        found = data['cells'][-1]
        self.assertEqual(('cell1', 'up', 1), (
            found['name'], found['state'], found['servers']))
        has = found['resources']['VCPU']
        self.assertEqual((200, 1, 0), (
            has['total'], has['used'], has['reserved']))
        # The unused capacity of the disabled host is not free.
        self.assertEqual(199, has['free'] + has['unavailable'])
        self.assertIn(has['unavailable'], (99, 100))
        self.assertEqual(data['resources'], found['resources'])
        self.assertEqual((1, 0, 0), (
            data['hosts']['disabled'], data['hosts']['down'],
            data['hosts']['full']))
        [row] = data['hosts']['rows']
        self.assertEqual(('host1', 'up', True, 'new disks'), (
            row['host'], row['state'], row['disabled'], row['reason']))

    def test_down_and_stopped_services_are_listed(self):
        parts = self.cloud.api.parts
        cell0 = parts.targets.database(parts.cells.cell0())
        seen = cell0.now() - datetime.timedelta(hours=1)
        for host, binary in (('gone', services.SCHEDULER),
                             ('ended', services.CONDUCTOR)):
            self.write(cell0, services.report, samples.uuids(1)[0], host,
                       binary, binary, seen)
            self.addCleanup(self.write, cell0, services.delete, host, binary,
                            seen, cell0.now())
        self.write(cell0, services.stop, 'ended', services.CONDUCTOR, seen)
        path = self.directory / 'services.html'

        found = self.report(
            '-f', 'json', '--html', path).data['services']

        self.assertEqual((3, 1, 1), (
            found['up'], found['down'], found['stopped']))
        self.assertEqual(
            [('nova-scheduler', 'gone', 'cell0', 'down'),
             ('nova-conductor', 'ended', 'cell0', 'stopped')],
            [(each['binary'], each['host'], each['cell'], each['state'])
             for each in found['rows']])
        self.assertIn('<bdi>gone</bdi>', path.read_text())
        shown = self.report().out
        for text in '3 up, 1 down, 1 stopped', 'nova-scheduler  gone':
            self.assertIn(text, shown)

    def write(self, database, query, *args):
        with database.writer() as connection:
            query(connection, *args)

    def test_failed_build_is_counted_with_its_reason(self):
        [row] = self.create('monster', '--flavor', 'huge', '--wait').data
        self.addCleanup(self.server, 'delete', row['ID'], '--wait')

        found = self.report('-f', 'json').data['refusals']['failures']

        self.assertEqual((1, [1]), (
            found['refused'], found['bars'][-1]['counts']))
        self.assertEqual('hosts are too small in CPUs',
                         found['reasons'][0]['reason'])

    def test_server_without_a_decision_is_an_error(self):
        self.assertEnds(1, self.shell('report', '--instance', 'req-none'),
                        'req-none', 'decision')

    def test_report_is_written_as_a_page_or_shown_as_a_summary(self):
        path = self.directory / 'report.html'

        self.assertEqual('', self.report('--html', path).out)

        self.assertIn('<!DOCTYPE html>', path.read_text())
        self.assertIn('cell1', path.read_text())
        shown = self.report().out
        for text in 'cell1', 'Hosts: 2 up, 0 down', 'Builds in progress: none':
            self.assertIn(text, shown)
        both = self.report('--html', path, '-f', 'json')
        self.assertEqual(report.VERSION, both.data['version'])
        self.assertEnds(1, self.shell(
            'report', '--html', self.directory / 'none' / 'x'), 'none')

    def test_missing_library_of_the_page_is_named_with_its_extra(self):
        path = self.directory / 'report.html'
        with mock.patch.dict('sys.modules', {'jinja2': None}):
            self.assertEnds(
                1, self.shell('report', '--html', path), 'cellsched[html]')
        self.assertFalse(path.exists())

    def test_urls_are_not_in_the_data(self):
        ran = self.report('-f', 'json')

        self.assertNotIn('sqlite', ran.out)
        self.assertNotIn('local://', ran.out)


class TestUnreadable(base.CommandTestCase):

    def test_unreadable_part_is_a_problem_of_the_report(self):
        # The claim store has no tables, and cell0 has no mapping.
        self.write_api_conf()

        ran = self.shell('report', '-f', 'json')

        self.assertEqual(0, ran.code)
        self.assertEqual(
            ['resources', 'failed builds'],
            [each['part'] for each in ran.data['problems']])
        self.assertIn('failed builds could not be read', ran.err)
        self.assertEqual([], ran.data['cells'])
        self.assertIsNone(ran.data['decision'])


class TestSeries(unit_base.TestCase):

    def series(self, *ages_s, reason='r'):
        return report._series(
            [(END - age, reason, 'about') for age in ages_s], NOW)

    def test_bars_are_as_long_as_the_oldest_refusal_demands(self):
        for oldest_s, step_s in ((60, 300), (4 * 3600, 3600),
                                 (3 * 86400, 86400), (900 * 86400, 86400)):
            found = self.series(0, oldest_s)

            self.assertEqual(step_s, found['step_s'])
            self.assertLessEqual(12, len(found['bars']))
            self.assertLessEqual(len(found['bars']), 48)
            self.assertLessEqual(1, found['bars'][-1]['counts'][0])

    def test_refusals_before_the_first_bar_are_counted_apart(self):
        found = self.series(0, 900 * 86400)

        self.assertEqual((1, 1), (found['refused'], found['earlier']))

    def test_refusal_by_a_clock_ahead_is_in_the_last_bar(self):
        found = self.series(-5000)

        self.assertEqual([1], found['bars'][-1]['counts'])

    def test_rare_reasons_are_added_up(self):
        found = report._series(
            [(END, f'reason{number}', '') for number in range(10)
             for _ in range(number + 1)], NOW)

        self.assertEqual(
            [*(f'reason{number}' for number in range(9, 2, -1)),
             report.OTHER], [each['reason'] for each in found['reasons']])
        self.assertEqual(
            [10, 9, 8, 7, 6, 5, 4, 6], found['bars'][-1]['counts'])

    def test_empty_series_has_zero_bars(self):
        found = self.series()

        self.assertEqual((0, [], 12), (
            found['refused'], found['reasons'], len(found['bars'])))


class TestReasons(unit_base.TestCase):

    def reason(self, error):
        text = error.format_message()
        [(_, reason, _)] = report._faults([types.SimpleNamespace(
            created_at=NOW, message=text,
            details=f'{type(error).__name__}: {text}')])
        return reason

    def refusal(self, *counts):
        return self.reason(diagnosis.Diagnosis(
            sum(count for count, _ in counts), [
                pipeline.Rejection('Filter', count, reason)
                for count, reason in counts]).error())

    def test_reason_of_most_hosts_is_shown_in_the_plural(self):
        for counts in (
                [(2, 'is down'), (10, 'is too small in memory')],
                [(1, 'is too small in memory')],
                [(1, 'is too small in memory'), (1, 'is down')]):
            self.assertEqual('hosts are too small in memory',
                             self.refusal(*counts))

    def test_another_error_is_its_kind(self):
        self.assertEqual('OverQuota', self.reason(
            exception.OverQuota(
                overs='cores', req=2, used=1, allowed=2)))

    def test_fault_of_another_program_is_its_first_sentence(self):
        [(_, reason, about)] = report._faults([types.SimpleNamespace(
            created_at=NOW, message='It broke. Sorry', details=None)])

        self.assertEqual(('It broke', 'It broke. Sorry'), (reason, about))
        self.assertEqual([], [*report._faults([types.SimpleNamespace(
            created_at=None, message='', details='')])])
