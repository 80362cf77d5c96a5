# SPDX-License-Identifier: Apache-2.0
"""The main job: a scenario is played, from the file to the exit code."""

import copy
import csv
import io
import json
import pathlib
import re
import subprocess
import sys

import yaml

from tests.unit import base
from tests.unit.cli import base as cli_base

from cellsched.cli import app

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = ROOT / 'README.rst'

#: Until a demonstration that hangs is broken off.
TIMEOUT_S = 600

PROGRESS = r'(Starting hosts|Playing) \d+/\d+'

SMALL = {
    'cells': [
        {'name': 'north', 'hosts': [
            {'name': 'n1', 'memory_mb': 8192},
            {'name': 'n2', 'memory_mb': 65536,
             'faults': {'fail_builds': 1}}]},
        {'name': 'south', 'hosts': [
            {'name': 's1', 'vcpus': 4, 'availability_zone': 'sun'}]}],
    'flavors': [{'name': 'small', 'vcpus': 1, 'ram': 512}],
    'requests': [
        {'name': 'moved', 'flavor': 'small', 'expect': {
            'cell': 'north', 'host': 'n1', 'attempts': 2}},
        {'name': 'web', 'flavor': 'small', 'count': 3,
         'availability_zone': 'sun', 'expect': {'cell': 'south'}}],
}


def changed(*path, to):
    """Return the small scenario with something in it changed."""
    scenario = copy.deepcopy(SMALL)
    place = scenario
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = to
    return yaml.safe_dump(scenario)


def readme_rows():
    """Return name, status, attempts and reason of each server there."""
    rows = []
    for line in README.read_text(encoding='utf-8').splitlines():
        if line.startswith('    | ') and 'Attempts' not in line:
            name, status, _, _, attempts, reason = (
                cell.strip() for cell in line.strip().strip('|').split('|'))
            if name:
                rows.append((name, status, attempts, reason))
            else:
                rows[-1] = (*rows[-1][:3], f'{rows[-1][3]} {reason}')
    return rows


class DemoTestCase(cli_base.CommandTestCase):

    def play(self, text, *args):
        """Play a scenario that is given as text."""
        self.path = self.directory / 'scenario.yaml'
        if isinstance(text, str):
            text = text.encode()
        if text is not None:
            self.path.write_bytes(text)
        return self.run_app(
            app.Shell, 'demo', '--scenario', self.path, *args,
            clock=cli_base.StillClock())

    def assertRefused(self, text, *words):
        """The scenario ends with 1 and one line, which has these words."""
        kept = self.directory / 'kept'
        ran = self.play(text, '-f', 'json', '--keep', kept)

        self.assertEnds(1, ran, str(self.path), *words)
        self.assertNotIn('unexpected', ran.err)
        self.assertEqual('', ran.out)
        self.assertFalse(kept.exists())


class TestDemo(DemoTestCase):

    def test_default_scenario_shows_the_results_of_builds(self):
        ran = self.run_app(app.Shell, 'demo', '-f', 'json')

        self.assertEqual(0, ran.code, ran.err)
        by_name = {each['Name']: each for each in ran.data}
        self.assertEqual(
            [f'web-{number}' for number in range(1, 7)]
            + ['database', 'stubborn', 'impossible', 'regretted'],
            [each['Name'] for each in ran.data])
        web = [each for each in ran.data if each['Name'].startswith('web')]
        self.assertEqual({'cell1', 'cell2', 'cell3'},
                         {each['Cell'] for each in web})
        self.assertEqual({'ACTIVE'}, {each['Status'] for each in web})
        self.assertEqual(
            ('ACTIVE', 'cell2', 'c2-steady', 2), tuple(
                by_name['stubborn'][column] for column in (
                    'Status', 'Cell', 'Host', 'Attempts')))
        self.assertEqual(
            ('ERROR', 'cell0', ''), tuple(
                by_name['impossible'][column] for column in (
                    'Status', 'Cell', 'Host')))
        self.assertIn('10', by_name['impossible']['Reason'])
        self.assertEqual('DELETED', by_name['regretted']['Status'])
        # The README shows the same; the choice of equal hosts may differ.
        self.assertEqual(readme_rows(), [
            tuple(str(each[column]) for column in (
                'Name', 'Status', 'Attempts', 'Reason'))
            for each in ran.data])

    def test_readme_begins_with_the_output_of_the_demo(self):
        lines = README.read_text(encoding='utf-8').splitlines()

        self.assertTrue(120 <= len(lines) <= 150, len(lines))
        self.assertEqual(10, len(readme_rows()))
        last = max(number for number, line in enumerate(lines)
                   if line.startswith('    +'))
        self.assertLess(last, 40)

    def test_chart_is_apart_from_the_list(self):
        ran = self.play(yaml.safe_dump(SMALL), '-f', 'csv')

        self.assertEqual(0, ran.code, ran.err)
        rows = list(csv.DictReader(io.StringIO(ran.out)))
        self.assertEqual(['n1', 's1', 's1', 's1'],
                         [row['Host'] for row in rows])
        for word in 'north', 'south', 'MEMORY_MB', '75%', '3 of 4':
            self.assertIn(word, ran.err)
            self.assertNotIn('%', ran.out)

    def test_output_has_formats_and_columns_of_lists(self):
        for output in 'table', 'csv':
            ran = self.play(
                yaml.safe_dump(SMALL), '-f', output, '-c', 'Name')
            self.assertEqual(0, ran.code, ran.err)
            self.assertIn('moved', ran.out)

        ran = self.play(yaml.safe_dump(SMALL), '-c', 'Nothing')
        self.assertEnds(1, ran, '--column', 'Nothing')

    def test_unexpected_result_ends_with_2(self):
        for field, value, got in (
                ('attempts', 1, '2'), ('cells', 2, '1'),
                ('reason', 'none of it', "''")):
            text = changed('requests', 0, 'expect', to={field: value})
            ran = self.play(text, '-f', 'json')

            self.assertEqual(2, ran.code, ran.err)
            self.assertEqual(4, len(ran.data))
            told = ran.err.splitlines()[-1]
            for word in 'moved', field, str(value), got:
                self.assertIn(word, told)

    def test_kept_databases_can_be_read(self):
        kept = self.directory / 'deep' / 'kept'
        played = self.play(yaml.safe_dump(SMALL), '-f', 'json',
                           '--keep', kept)

        self.assertEqual(0, played.code, played.err)
        conf = kept / 'etc' / 'api.conf'
        listed = self.run_app(app.Shell, '--config-file', conf,
                              'server', 'list', '-f', 'json')
        self.assertEqual(0, listed.code, listed.err)
        self.assertEqual(
            {(each['UUID'], each['Host']) for each in played.data},
            {(each['ID'], each['Host']) for each in listed.data})
        cells = self.run_app(app.Manage, '--config-file', conf,
                             'cell_v2', 'list_cells')
        self.assertEqual(0, cells.code, cells.err)
        self.assertIn('south', cells.out)

    def test_directory_for_kept_databases_must_be_empty(self):
        kept = self.directory / 'kept'
        kept.mkdir()
        self.assertEqual(
            0, self.play(yaml.safe_dump(SMALL), '--keep', kept).code)
        before = sorted(kept.rglob('*'))

        ran = self.play(yaml.safe_dump(SMALL), '--keep', kept)
        self.assertEnds(1, ran, '--keep', str(kept), 'empty')
        ran = self.play(yaml.safe_dump(SMALL), '--keep', self.path)
        self.assertEnds(1, ran, '--keep', 'File exists')

        self.assertEqual(before, sorted(kept.rglob('*')))

    def test_failed_scenario_keeps_no_files(self):
        kept = self.directory / 'kept'
        kept.mkdir()
        text = changed('requests', 1, 'hints', to={'foo': ['bar']})

        self.assertEnds(1, self.play(text, '--keep', kept), 'requests[1]')

        self.assertEqual([], list(kept.iterdir()))

    def test_options_reach_the_services(self):
        text = changed('options', to={
            'scheduler': {'max_attempts': 1},
            'filter_scheduler': {'enabled_filters': [
                'ComputeFilter', 'NumInstancesFilter'],
                'max_instances_per_host': 1, 'ram_weight_multiplier': -1.5}})
        scenario = yaml.safe_load(text)
        scenario['requests'] = [
            {'name': 'web', 'flavor': 'small', 'count': 4, 'min_count': 1,
             'expect': {'status': 'ACTIVE'}}]

        ran = self.play(yaml.safe_dump(scenario), '-f', 'json')

        self.assertEqual(2, ran.code, ran.err)
        self.assertEqual(
            {('n1', 'ACTIVE'), ('s1', 'ACTIVE'), ('', 'ERROR')},
            {(each['Host'], each['Status']) for each in ran.data})
        reasons = ' '.join(each['Reason'] for each in ran.data)
        self.assertIn('Exceeded max scheduling attempts 1', reasons)
        self.assertIn('limit of instances', reasons)


class TestProcess(base.TestCase):

    def test_list_is_alone_on_standard_output(self):
        ran = subprocess.run(
            [pathlib.Path(sys.executable).with_name('cellsched'), 'demo',
             '-f', 'json'],
            cwd=self.temporary_directory(), capture_output=True, text=True,
            check=False, timeout=TIMEOUT_S)

        self.assertEqual(0, ran.returncode, ran.stderr)
        self.assertEqual(10, len(json.loads(ran.stdout)))
        # A slow machine is told how far it is.
        lines = [line for line in ran.stderr.splitlines()
                 if not re.fullmatch(PROGRESS, line)]
        self.assertEqual(9, len(lines), ran.stderr)
        self.assertTrue(lines[0].startswith('cell1'))
        self.assertNotIn('\r', ran.stderr)

    def test_error_is_a_single_line(self):
        ran = subprocess.run(
            [pathlib.Path(sys.executable).with_name('cellsched'), 'demo',
             '--scenario', 'nowhere.yaml'],
            cwd=self.temporary_directory(), capture_output=True, text=True,
            check=False, timeout=TIMEOUT_S)

        self.assertEqual((1, ''), (ran.returncode, ran.stdout))
        self.assertEqual(
            ['cellsched: nowhere.yaml: document: the file cannot be read: No '
             'such file or directory; expected a readable file'],
            ran.stderr.splitlines())


class TestBadScenarios(DemoTestCase):
    """Each is refused by one line that names the file and the field."""

    def test_unreadable_file(self):
        self.assertRefused(None, 'document', 'No such file')
        self.path.mkdir()
        self.assertRefused(None, 'document', 'Is a directory')

    def test_invalid_document(self):
        self.assertRefused('', 'document', 'a mapping')
        self.assertRefused('- a', 'document', 'a mapping')
        self.assertRefused('a: [1, 2', 'line 1', 'YAML')
        self.assertRefused('a:\n\t- b', 'line 2', 'YAML')
        self.assertRefused('a: é'.encode('latin-1'), 'UTF-8')
        self.assertRefused('a: \0', 'YAML')
        self.assertRefused('a: !!python/name:os.system', 'line 1', 'YAML')

    def test_unknown_or_missing_key(self):
        self.assertRefused(changed('hosts', to=[]), 'document', 'hosts')
        self.assertRefused(
            changed('cells', 0, 'hosts', 0, 'ram', to=1),
            'cells[0].hosts[0]', 'ram', 'memory_mb')
        self.assertRefused(
            changed('requests', 0, to={'name': 'x'}), 'requests[0].flavor',
            'it is missing')
        self.assertRefused(
            changed('requests', 0, 'expect', 'hosts', to=1),
            'requests[0].expect', 'hosts')

    def test_wrong_types(self):
        self.assertRefused(changed('cells', to={}), 'cells', 'a list')
        for wrong in '4', True, 2.5, 2.0, None, [1], {'a': 1}:
            self.assertRefused(
                changed('cells', 0, 'hosts', 0, 'vcpus', to=wrong),
                'cells[0].hosts[0].vcpus', 'a whole number')
            self.assertRefused(
                changed('requests', 1, 'count', to=wrong),
                'requests[1].count', 'a whole number')
        self.assertRefused(
            changed('requests', 0, 'hints', to={'a': 'b'}),
            'requests[0].hints.a', 'a list')

    def test_numbers_out_of_bounds(self):
        vcpus = ('cells', 0, 'hosts', 0, 'vcpus')
        name = 'cells[0].hosts[0].vcpus'
        self.assertRefused(changed(*vcpus, to=-1), name, 'from 0 to')
        for huge in 2 ** 31, 2 ** 63, 10 ** 4000:
            self.assertRefused(
                changed(*vcpus, to=huge), name, 'to 2147483647')
        self.assertRefused(
            changed('cells', to='9').replace("'9'", '9' * 5000), 'line 1',
            'limit')
        self.assertRefused(
            changed('flavors', 0, 'ram', to=0), 'flavors[0].ram', 'from 1 to')
        for delay in float('nan'), float('inf'), -0.1:
            self.assertRefused(
                changed('cells', 0, 'hosts', 0, 'faults', to={
                    'build_delay': delay}),
                'cells[0].hosts[0].faults.build_delay')
        self.assertRefused(
            changed('requests', 1, 'min_count', to=4),
            'requests[1].min_count', 'it is above count; expected at most 3')

    def test_duplicate_host_name_in_two_cells(self):
        self.assertRefused(
            changed('cells', 1, 'hosts', 0, 'name', to='n1'),
            'cells[1].hosts[0].name', "'n1'", 'north', 'south')

    def test_duplicate_and_unknown_names_are_refused(self):
        self.assertRefused(
            changed('requests', 0, 'flavor', to='big'), 'requests[0].flavor',
            'unknown name big; expected one of small')
        self.assertRefused(
            changed('cells', 1, 'name', to='north'), 'cells[1].name')
        for reserved in 'cell0', 'api', 'claims':
            self.assertRefused(
                changed('cells', 1, 'name', to=reserved), 'cells[1].name')
        self.assertRefused(
            changed('flavors', to=SMALL['flavors'] * 2), 'flavors[1].name')
        self.assertRefused(
            changed('aggregates', to=[{'name': 'a', 'hosts': ['x']}]),
            'aggregates[0].hosts', 'unknown name x; expected one of n1, n2')
        self.assertRefused(
            changed('cells', 0, 'hosts', 0, 'aggregates', to=['x']),
            'cells[0].hosts[0].aggregates', 'unknown name x; expected one of')

    def test_hostile_names(self):
        for name in ('', '../x', 'a/b', 'a b', 'a\n', 'a\r\nb', 'é', '-a',
                     'x' * 64, 'x' * 100000):
            for path, field in (
                    (('cells', 0, 'name'), 'cells[0].name'),
                    (('cells', 0, 'hosts', 0, 'name'),
                     'cells[0].hosts[0].name'),
                    (('requests', 0, 'name'), 'requests[0].name')):
                self.assertRefused(changed(*path, to=name), field, 'a name')

    def test_unsupported_hints_are_refused(self):
        for name in '_nova_check_type', '__class__', 'different_host':
            self.assertRefused(
                changed('requests', 1, 'hints', to={name: ['x']}),
                'requests[1].hints', name)

    def test_invalid_options(self):
        for options, words in (
                ({'filter_scheduler': {'enabled_filter': ['x']}},
                 ['enabled_filters?']),
                ({'filter_scheduler': {'enabled_filters': ['No']}},
                 ['No', 'ComputeFilter']),
                ({'scheduler': {'max_attempts': 'x'}}, ['max_attempts']),
                ({'scheduler': {'max_attempts': -1}}, ['max_attempts']),
                ({'schedulr': {'a': 'b'}}, ['[scheduler]?']),
                ({'somebody': {'a': 'b'}}, ['[somebody]', 'unknown option']),
                ({'scheduler': {'driver': 'a\nb = c'}},
                 ['options.scheduler.driver', 'on one line']),
                ({'scheduler': {'a\nb': 'c'}}, ['options.scheduler']),
                ({'a]\n[b': {}}, ['options']),
                ({'scheduler': {'driver': [{}]}},
                 ['options.scheduler.driver[0]']),
                ({'claims': {'store': 'memory'}}, ['options.claims.store']),
                ({'api_database': {'connection': 'x://'}},
                 ['options.api_database.connection']),
                ({'DEFAULT': {'transport_url': 'x://'}},
                 ['options.DEFAULT.transport_url'])):
            self.assertRefused(
                changed('options', to=options), 'options', *words)
