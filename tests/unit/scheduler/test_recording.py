# SPDX-License-Identifier: Apache-2.0
"""Recordings: the files, and the entries that are read from them."""

import gzip
import json
import pathlib

import fixtures

from cellsched import context
from cellsched import exception
from cellsched import objects
from cellsched.observability import metrics
from cellsched.scheduler import recording
from cellsched.testing import builders
from tests.unit.scheduler import recordings

SECRET = 'hunter2'


class TestEntries(recordings.RecordingTestCase):

    def test_entry(self):
        [uuid], [[host, other]] = self.ask(alternates=1, name='big', vcpus=2)
        self.clock.advance(1)
        self.ask(vcpus=1000)

        placed, refused = self.read()

        self.assertEqual(
            (1_700_000_000.0, [uuid], [host], 'big', 2),
            (placed.at, placed.uuids, placed.answer.hosts,
             placed.request.flavor.name, placed.request.flavor.vcpus))
        [place] = placed.answer.places
        self.assertEqual(
            recording.Place(self.nodes[host], host, host, builders.CELL,
                            [self.nodes[other]]), place)
        self.assertEqual(
            (1_700_000_001.0, [], 'NoValidHost', 20),
            (refused.at, refused.answer.hosts, refused.answer.error,
             refused.answer.rejections[0]['hosts']))
        self.assertIsNone(placed.table)

    def test_each_entry_has_the_hosts_of_its_decision(self):
        self.ask(vcpus=4)
        self.table.put([self.nodes['n03']], {'num_instances': 7})
        self.table.drop([self.nodes['n19']])
        self.ask(vcpus=1)
        self.recorder.flush()

        seen = []
        for entry in recording.read(self.path, tables=True):
            hosts = entry.hosts()
            seen.append((len(hosts), int(hosts['num_instances'].sum()),
                         int(hosts['available:VCPU'].max())))

        self.assertEqual([(20, 0, 32), (19, 8, 32)], seen)

    def test_decisions_in_another_order(self):
        """A decision that began first may end last."""
        self.ask(vcpus=4)
        self.recorder.flush()
        added, self.recorder.add = [], lambda made: added.append(made)
        self.placer.recorder.add = self.recorder.add
        for _ in range(3):
            self.ask(vcpus=4)
        del self.recorder.add
        for made in reversed(added):
            self.recorder.add(made)
            self.recorder.flush()

        used = sorted(
            (entry.at, 32 * 20 - int(entry.hosts()['available:VCPU'].sum()))
            for entry in recording.read(self.path, tables=True))

        self.assertEqual([0, 4, 8, 12], [amount for _, amount in used])

    def test_since_and_until(self):
        for _ in range(4):
            self.ask()
            self.clock.advance(10)

        found = self.read(since=1_700_000_010, until=1_700_000_020)

        self.assertEqual([10, 20], [
            entry.at - 1_700_000_000 for entry in found])

    def test_no_secret_is_recorded(self):
        by = context.RequestContext(
            request_id='req-1', auth_token=SECRET, user_id='u')
        self.ask(
            by=by, extra_specs={'resources:VCPU': '1'},
            image={'properties': {'os_admin_password': SECRET,
                                  'hw_cpu_cores': '1'}},
            security_groups=[{'name': SECRET}],
            network_metadata={'user_data': SECRET},
            requested_networks=[{'fixed_ip': SECRET}],
            pci_requests={'injected_files': [SECRET], 'requests': []},
            requested_destination=objects.Destination(
                host='', node=None, aggregates=None, cell=objects.CellMapping(
                    uuid=builders.CELL, name='c',
                    transport_url=f'rabbit://a:{SECRET}@b/',
                    database_connection=f'mysql://a:{SECRET}@b/c')))

        [entry] = self.read()

        [path] = files_of(self.path)
        self.assertNotIn(SECRET.encode(), gzip.decompress(path.read_bytes()))
        self.assertEqual('***', entry.request.image.properties.get(
            'os_admin_password'))
        self.assertEqual('1', entry.request.image.properties.get(
            'hw_cpu_cores'))
        self.assertEqual('c', entry.request.requested_destination.cell.name)

    def test_lines_are_json(self):
        """The header, changes of hosts, and the request with its answer."""
        [uuid], [[host]] = self.ask()
        self.recorder.flush()
        [path] = files_of(self.path)

        header, *changes, decision = map(
            json.loads, gzip.decompress(path.read_bytes()).splitlines())

        self.assertEqual(
            ('cellsched-recording', 2), (header['format'], header['version']))
        self.assertIn('filter_scheduler', header['options'])
        self.assertEqual([['hosts']] * len(changes), [*map(list, changes)])
        self.assertEqual(
            ([uuid], host, 1),
            (decision['uuids'], decision['places'][0][1],
             decision['request']['nova_object.data']['num_instances']))


def files_of(path):
    return sorted(each for each in path.parent.iterdir()
                  if each.suffix != '.lock')


class TestFiles(recordings.RecordingTestCase):

    def files(self):
        return files_of(self.path)

    def test_torn_file_is_read_up_to_the_tear(self):
        ends = []
        for _ in range(3):
            self.ask()
            self.recorder.flush()
            ends.append(self.files()[0].stat().st_size)
        [path] = self.files()
        content = path.read_bytes()
        torn = path.with_name('torn')
        for length in (*range(len(content) - 1, -1, -29), *ends[:2], 2, 1, 0):
            torn.write_bytes(content[:length])
            reports = []
            found = [*recording.read(torn, tables=True,
                                     report=reports.append)]
            # A tear in the checksum of a write loses none of its lines.
            self.assertIn(len(found) - sum(end <= length for end in ends),
                          (0, 1))
            self.assertEqual(length not in ends, bool(reports), length)
            self.assertEqual([], [
                each.at for each in found if len(each.hosts()) != 20])

    def test_damage_ends_a_file_and_not_the_next_file(self):
        self.ask()
        self.restart()
        self.clock.advance(1)
        self.ask()
        self.recorder.flush()
        first, _ = self.files()
        content = bytearray(first.read_bytes())
        content[len(content) // 2] ^= 1
        first.write_bytes(content)
        reports = []

        found = [*recording.read(self.path, report=reports.append)]

        # Damage may show only in the checksum at the end of the file.
        self.assertEqual(1_700_000_001.0, found[-1].at)
        self.assertLessEqual(len(found), 2)
        self.assertEqual(1, len(reports))

    def test_process_continues_with_a_new_file(self):
        for _ in range(3):
            self.ask()
            self.restart()

        self.assertEqual(
            ['decisions.0.000001', 'decisions.0.000002',
             'decisions.0.000003'], [each.name for each in self.files()])
        self.assertEqual(3, len(self.read()))
        self.assertEqual(0o600, self.files()[0].stat().st_mode & 0o777)

    def test_oldest_file_is_removed(self):
        self.restart(bytes_max=40_000)
        for _ in range(40):
            self.clock.advance(1)
            self.table.put([*self.nodes.values()], {
                'last_seen_up': [self.clock.steady() + row / 7
                                 for row in range(20)]})
            self.ask(hints={'group': [str(self.clock.steady() ** 9)] * 9})
            self.recorder.flush()

        names = [each.name for each in self.files()]
        size = sum(each.stat().st_size for each in self.files())
        self.assertNotIn('decisions.0.000001', names)
        self.assertGreater(len(names), 1)
        self.assertLess(size, 40_000)
        found = self.read(tables=True)
        self.assertEqual(self.clock.steady(), found[-1].at)

    def write(self, name, *lines):
        path = self.path.with_name(name)
        path.write_bytes(gzip.compress(b''.join(
            json.dumps(line).encode() + b'\n' for line in lines)))
        return path

    def test_unreadable_recording_is_refused_with_its_problem(self):
        newer = self.write('newer', {'version': 3})
        foreign = self.path.with_name('foreign')
        foreign.write_bytes(b'PK\x03\x04')
        for path, problem in (
                (newer, 'it has version 3; expected version 2; replay the '
                        'file with the release that wrote it'),
                (foreign, 'it is not a recording'),
                (self.path.with_name('none'), 'there is no such file'),
                (pathlib.Path('/none/none'), 'cannot be read: No such')):
            error = self.assertRaises(
                exception.InvalidField, lambda: [*recording.read(path)])
            self.assertIn(problem, error.format_message())
            self.assertIn(str(path), error.format_message())

    def test_line_with_other_content_is_named(self):
        for line, problem in (
                ({'at': 1}, "line 2 is not valid: KeyError: 'uuids'"),
                ([], 'line 2 is not valid: TypeError'),
                ({'hosts': {'columns': {'no': []}, 'rows': []}},
                 'line 2 is not valid: ColumnNotFound')):
            path = self.write('other', {'version': 2}, line)
            error = self.assertRaises(
                exception.InvalidField,
                lambda: [*recording.read(path, tables=True)])
            self.assertIn(problem, error.format_message())


class TestBounds(recordings.RecordingTestCase):

    def setUp(self):
        super().setUp()
        self.counted = {}
        self.recorder.metrics.add = self.count

    def count(self, figure, labels, value):
        self.assertIs(metrics.RECORDED, figure)
        self.counted[labels] = self.counted.get(labels, 0) + value

    def test_decisions_are_dropped_and_counted(self):
        self.useFixture(fixtures.MonkeyPatch(
            'cellsched.scheduler.recording.WAITING_MAX', 3))
        for _ in range(5):
            self.ask()
        with self.assertLogs(recording.LOG.logger, 'WARNING') as logs:
            self.recorder.flush()

        self.assertEqual({('written',): 3, ('dropped',): 2}, self.counted)
        self.assertIn('are not recorded', logs.output[0])
        self.assertIn('2 came faster', logs.output[0])
        self.assertEqual(3, len(self.read()))

    def test_number_of_waiting_table_versions_is_bounded(self):
        for version in range(recording.VERSIONS_MAX + 5):
            self.table.put([self.nodes['n00']], {'num_instances': version})
            self.ask()
        self.recorder.flush()

        self.assertEqual(4, self.counted['dropped',])

    def test_full_disk(self):
        self.ask()
        self.recorder.flush()
        self.recorder._files._last = '/dev/full'
        self.ask()
        with self.assertLogs(recording.LOG.logger, 'ERROR') as logs:
            self.recorder.flush()
        self.assertEqual(1, len([line for line in logs.output
                                 if 'cannot be recorded' in line]))
        self.ask()

        self.assertEqual(2, len(self.read(tables=True)))
        self.assertEqual({('written',): 2, ('dropped',): 1}, self.counted)

    def test_unusable_directory_is_refused(self):
        for path, problem in (
                (self.path / 'none' / 'file', 'is not a directory'),
                (self.path.parent, 'is a directory')):
            self.recorder.path = path
            error = self.assertRaises(
                exception.ConfigurationInvalid, self.recorder.check)
            self.assertIn('[scheduler] record', error.format_message())
            self.assertIn(problem, error.format_message())
        self.recorder.path = self.path
        self.recorder.check()
