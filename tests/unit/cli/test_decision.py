# SPDX-License-Identifier: Apache-2.0
"""Plans on a snapshot: no database and no broker, only options."""

import json
from unittest import mock

import yaml

from cellsched.cli import host_snapshot
from cellsched.db.api import decisions
from cellsched.hardware import fit
from cellsched.hardware import units
from cellsched.hosts import document
from cellsched import objects
from cellsched.scheduler.decision import ranking
from cellsched.scheduler.explanation import decision_record
from cellsched.testing import builders
from cellsched.testing import databases
from tests.unit.cli import base
from tests.unit.db import samples
from tests.unit.filters import cells
from tests.unit.scheduler.decision import test_provider_groups


class SnapshotTestCase(base.CommandTestCase):

    def setUp(self):
        super().setUp()
        self.write('api.conf')
        self.path = self.directory / 'hosts.json'

    def write_hosts(self, cells, **columns):
        """Write a snapshot of the hosts a, b and c."""
        hosts = builders.table(host=['a', 'b', 'c'], nodename=['a', 'b', 'c'],
                               **columns)
        with self.path.open('w') as file:
            host_snapshot.write(document.dump(document.HostDocument(
                hosts, builders.NOW, cells)), file)


class PlanTestCase(SnapshotTestCase):

    def setUp(self):
        super().setUp()
        self.write_hosts(
            {builders.CELL: 'north'}, free_ram_mb=[4096, 8192, 2048],
            availability_zone=['east', 'east', 'west'])

    def plan(self, *argv, size=('--vcpus', 1, '--ram', 512)):
        return self.shell('plan', '--snapshot', self.path, *size, *argv)

    def planned(self, *argv, **options):
        ran = self.plan('-f', 'json', *argv, **options)
        self.assertEqual('', ran.err)
        return ran.code, [each['host'] for each in ran.data['places']]

    def file(self, request):
        path = self.directory / 'request.json'
        path.write_text(json.dumps(request))
        return '--request', path


class TestPlan(PlanTestCase):

    def test_best_host_is_planned_without_changing_the_snapshot(self):
        before = self.path.read_text()

        self.assertEqual((0, ['b']), self.planned())

        self.assertEqual(before, self.path.read_text())

    def test_places_are_the_rows_of_a_plan(self):
        lines = self.plan('-f', 'csv', '--count', 2).out.splitlines()

        self.assertEqual(3, len(lines))
        self.assertIn('"host"', lines[0])
        for host, line in zip('ba', lines[1:]):
            # A list is JSON.
            self.assertRegex(line, f'^"[-0-9a-f]{{36}}","{host}",.*,"\\[\\]"$')
        ran = self.plan('-f', 'value', size=('--vcpus', 1, '--ram', 999999))
        self.assertEqual((2, ''), (ran.code, ran.out))

    def test_slow_plugins_are_named_on_standard_error(self):
        self.write('api.conf', scheduler={'slow_plugin_seconds': 0})

        ran = self.plan('-f', 'json')

        self.assertEqual((0, 'b'), (
            ran.code, ran.data['places'][0]['host']))
        self.assertNotIn('slow', ran.data)
        [line] = ran.err.splitlines()
        self.assertTrue(line.startswith('cellsched: warning: a slow plug-in '
                                        'delays other requests: Filter '))
        self.assertIn(', Filter AvailabilityZoneFilter took 0.0 seconds, ',
                      line)

    def test_slow_plugins_are_named_if_the_servers_do_not_fit(self):
        self.write('api.conf', scheduler={'slow_plugin_seconds': 0})

        ran = self.plan(size=('--vcpus', 1, '--ram', 999999))

        self.assertEqual(2, ran.code)
        self.assertIn('Filter AvailabilityZoneFilter took', ran.err)

    def test_plan_shows_stages_weights_and_reasons(self):
        ran = self.plan('--count', 2, '--alternates', 1)

        self.assertEqual((0, ''), (ran.code, ran.err))
        for text in ('ComputeFilter', 'Entered', 'RAMWeigher', 'Sum', 'north',
                     'a was not chosen because', 'Alternates'):
            self.assertIn(text, ran.out)

    def test_output_names_why_a_scheduler_may_differ(self):
        ages = ['it counts its own builds as in progress until their hosts',
                'it may have read the hosts up to 1 s earlier']
        equal = ('of hosts of equal weight, each scheduler process prefers '
                 'another one')
        some = 'one of the hosts of equal weight by chance'
        best = 'one of the 2 best hosts by chance'
        fixed = {'rotate_best_same_weighed_hosts': False}
        # The first host alone, and a, b and c by their names.
        tied = {'weight_classes': 'PCIWeigher'}
        for options, argv, reasons in (
                ({}, (), ages), ({}, ('--count', 2), [equal, *ages]),
                (tied, (), [equal, *ages]), ({**tied, **fixed}, (), ages),
                ({**tied, 'shuffle_best_same_weighed_hosts': True}, (),
                 [some, *ages]),
                ({'host_subset_size': 2}, (), [best, *ages]),
                (tied, ('--force-host', 'c'), [])):
            self.write('api.conf', filter_scheduler=options)

            found = self.plan('-f', 'json', *argv).data['may_differ']

            self.assertEqual(len(reasons), len(found), found)
            for reason, text in zip(reasons, found):
                self.assertIn(reason, text)
            for text in found:
                self.assertIn(f'\n* {text}\n', self.plan(*argv).out)

    def test_driver_without_filters_refuses_a_snapshot(self):
        self.write('api.conf', scheduler={'driver': 'chance_scheduler'})

        self.assertEnds(1, self.plan(), '[scheduler] driver',
                        'chance_scheduler cannot decide on a snapshot')
        self.write('api.conf', scheduler={'driver': 'provider_scheduler'})
        self.assertEqual(0, self.plan().code)

    def test_unplaceable_servers_exit_with_2_and_the_reasons(self):
        ran = self.plan(size=('--vcpus', 1, '--ram', 9000))

        self.assertEqual((2, ''), (ran.code, ran.err))
        for text in ('No host: ', '808 MB', 'capacity:MEMORY_MB', 'a, b, c'):
            self.assertIn(text, ran.out)
        ran = self.plan('-f', 'yaml', size=('--vcpus', 1, '--ram', 9000))
        data = yaml.safe_load(ran.out)
        self.assertEqual((2, False, []), (
            ran.code, data['fits'], data['places']))
        self.assertEqual({'capacity:MEMORY_MB': ['a', 'b', 'c']},
                         data['examples'])

    def test_stages_show_their_counts_if_no_host_remains(self):
        ran = self.plan('--ignore-host', 'A', '--ignore-host', 'b',
                        '--ignore-host', 'c', '-f', 'json')

        self.assertEqual(2, ran.code)
        self.assertIn(
            {'by': 'IgnoredHost', 'entered': 3, 'left': 0,
             'reason': 'is among the ignored hosts'}, ran.data['stages'])

    def test_options_describe_the_request(self):
        for argv, planned in (
                (['--ignore-host', 'b'], ['a']),
                (['--force-host', 'c'], ['c']),
                (['--availability-zone', 'west'], ['c']),
                (['--availability-zone', 'east:a'], ['a']),
                (['--availability-zone', '::c'], ['c']),
                (['--host', 'a'], ['a']),
                (['--hypervisor-hostname', 'c'], ['c']),
                (['--count', 3], ['b', 'a', 'c']),
                (['--disk', 60, '--count', 2], ['b', 'a'])):
            self.assertEqual((0, planned), self.planned(*argv), argv)

    def test_providers_of_a_part_are_shown(self):
        groups = test_provider_groups
        hosts = groups.make(
            [[groups.Provider(), groups.Provider((4, 0), ['CUSTOM_T'])]],
            [{0}], [groups.Provider((0, 9))], host=['a'], nodename=['a'])
        with self.path.open('w') as file:
            host_snapshot.write(document.dump(document.HostDocument(
                hosts, builders.NOW, {})), file)
        wishes = ('--extra-spec', 'resources1:CUSTOM_A=3',
                  '--extra-spec', 'trait1:CUSTOM_T=required',
                  '--extra-spec', 'resources:CUSTOM_B=2')

        lines = [' '.join(line.split())
                 for line in self.plan(*wishes).out.splitlines()]
        data = self.plan(*wishes, '-f', 'json').data

        self.assertIn('Group 1: 3 CUSTOM_A with CUSTOM_T', lines)
        for end in ('a 512 MEMORY_MB, 1 VCPU', 'pool0 2 CUSTOM_B',
                    f'1 {groups.uuid_of(0, 1)} 3 CUSTOM_A'):
            self.assertTrue(any(line.endswith(f' {end}') for line in lines),
                            (end, lines))
        self.assertEqual(
            ['a', 'pool0', None],
            [each['name'] for each in data['picks'][0]['first']['providers']])

        ran = self.plan('--extra-spec', 'resources1:CUSTOM_A=5')
        self.assertEqual(2, ran.code)
        self.assertIn('lacks a provider of 5 CUSTOM_A (by 1 CUSTOM_A)',
                      ran.out)

    def test_request_of_a_file_is_planned(self):
        plain = {'flavor': {'vcpus': 1, 'memory_mb': 512, 'root_gb': 1},
                 'availability_zone': 'east', 'ignore_hosts': ['b'],
                 'image': {'properties': {'os_distro': 'none'}},
                 'project_id': 'p'}
        sent = builders.request(ignore_hosts=['b', 'a']).obj_to_primitive()

        self.assertEqual((0, ['a']), self.planned(
            *self.file(plain), size=()))
        self.assertEqual((0, ['c']), self.planned(
            *self.file(sent), size=()))
        # Options come on top of it.
        self.assertEqual((0, ['c']), self.planned(
            *self.file(plain), '--availability-zone', 'west', size=()))

    def test_properties_are_shown(self):
        ran = self.plan('--extra-spec', 'a=b', '--image-property', 'c=d',
                        '--project', 'p', '-f', 'json')

        self.assertEqual(
            ('p', 0), (ran.data['request']['project_id'], ran.code))

    def test_unmet_demand_exits_with_2_and_its_name(self):
        ran = self.plan('--extra-spec', 'hw:numa_nodes=1')

        self.assertEqual(2, ran.code)
        self.assertIn('No host: No enabled stage reads what is asked for: '
                      'flavor extra spec hw:numa_nodes (a NUMA topology).',
                      ran.out)

    def test_devices_are_read_from_the_configured_aliases(self):
        self.write('api.conf', pci={'alias': json.dumps({
            'name': 'gpu', 'vendor_id': '10de', 'product_id': '1db4'})})

        ran = self.plan('--extra-spec', 'pci_passthrough:alias=gpu:1')

        self.assertEqual(2, ran.code)
        self.assertIn('flavor extra spec pci_passthrough:alias (PCI '
                      'devices).', ran.out)

    def test_demands_and_hints_are_ignored_if_configured(self):
        self.write('api.conf', scheduler={
            'unmet_demands': 'ignore', 'unknown_hints': 'ignore'})

        ran = self.plan('--extra-spec', 'hw:numa_nodes=1', '--hint',
                        'color=red')

        self.assertEqual(0, ran.code)


class TestHardwarePlan(PlanTestCase):
    """Plans on a snapshot of hosts with NUMA cells."""

    def setUp(self):
        super().setUp()
        self.write('api.conf', filter_scheduler={
            'enabled_filters': 'NUMATopologyFilter'})
        free = {name: [total, total, 0] for name, total in units.inventory(
            cells.topology(8, 8), (), fit.Ratios()).items()}
        hosts = builders.table(
            host=['a', 'b', 'c'], nodename=['a', 'b', 'c'],
            numa_topology=[cells.topology(8, 8)] * 2 + [None],
            claims_hardware=True, available={'PCPU': 16, **free})
        with self.path.open('w') as file:
            host_snapshot.write(document.dump(document.HostDocument(
                hosts, builders.NOW, {builders.CELL: 'north'})), file)

    def pinned(self, vcpus, *argv):
        return self.plan('--extra-spec', 'hw:cpu_policy=dedicated', *argv,
                         size=('--vcpus', vcpus, '--ram', 64))

    def test_plan_names_the_cells(self):
        ran = self.pinned(2)

        self.assertEqual(0, ran.code, ran.err)
        self.assertRegex(ran.out, r'Server +NUMA cell +Gives')
        self.assertRegex(ran.out, ' +0 +CPUs 0-1, 64 MB')
        self.assertEqual([0, 1], self.pinned(2, '-f', 'json').data[
            'picks'][0]['first']['hardware'][0]['cpus'])

    def test_refusal_counts_hosts_by_their_lack(self):
        ran = self.pinned(9)

        self.assertEqual(2, ran.code)
        self.assertIn(
            'of 3 hosts 2 have 9 free dedicated CPUs, but on 2 NUMA cells (by '
            '1 dedicated CPU), 1 has no NUMA cells.', ran.out)


class TestBadPlan(PlanTestCase):

    def test_bad_options_are_named(self):
        for argv, *texts in (
                (['--count', 0], 'min_count'),
                (['--count', 10 ** 9], '1000'),
                (['--alternates', -1], '--alternates'),
                (['--hint', 'color=red'], 'hints', 'color'),
                (['--hint', 'color'], '--hint'),
                (['--image-property', 'x'], '--image-property'),
                (['--extra-spec', 'a=1', '--extra-spec', 'a=2'],
                 '--extra-spec'),
                (['--availability-zone', ''], 'availability_zone'),
                (['--ignore-host', 'x' * 300], '--ignore-host'),
                (['--disk', -1], '--disk'),
                (['--ram', 10 ** 12], '--ram'),
                (['--group', 'g'], '--group', '--snapshot'),
                (['--extra-spec', 'hw:numa_nodes=2'], 'evenly distributed'),
                (['--image-property', 'hw_mem_page_size=large'],
                 "forbidden against '<empty>'"),
                (['--extra-spec', 'pci_passthrough:alias=gpu:1'],
                 'PCI alias gpu is not defined'),
                (['--flavor', 'x'], '--flavor')):
            self.assertEnds(1, self.plan(*argv), *texts)
        self.assertEnds(1, self.plan(size=()), '--vcpus')
        self.assertEnds(1, self.plan(size=('--vcpus', 1)), '--ram')

    def test_bad_request_is_named(self):
        sent = builders.request().obj_to_primitive()
        for request, *texts in (
                ([], 'an object'), (5, 'an object'),
                ({'flavour': {}}, 'flavour'),
                ({'flavor': []}, 'flavor'),
                ({'flavor': {'ram': 5}}, 'flavor.ram'),
                ({'flavor': {'vcpus': 'many'}}, 'vcpus'),
                ({'ignore_hosts': 5}, 'ignore_hosts'),
                ({'requested_destination': {'cell': {'x': 1}}},
                 'requested_destination.cell.x'),
                ({'instance_group': {'rules': {'spread': 'rack'}}},
                 'spread'),
                ({**sent, 'nova_object.version': '2.0'}, 'RequestSpec'),
                ({**sent, 'nova_object.name': 'Flavor'}, 'RequestSpec'),
                ({'nova_object.name': 'RequestSpec'}, 'RequestSpec'),
                ({'instance_group': {'members': ['\ud800']}}, 'members'),
                ({'requested_destination': {'cell': {'name': 'x'}}},
                 'requested_destination.cell.uuid'),
                ({'scheduler_hints': {'color': ['red']}}, 'hints')):
            self.assertEnds(1, self.plan(*self.file(request)), *texts)

    def test_unreadable_file_is_named(self):
        path = self.directory / 'bad.json'
        for text, expected in (
                ('{', 'JSON'), ('{"a": NaN}', 'NaN'), ('[' * 99_999, 'nested'),
                ('"' + 'x' * 2_000_000 + '"', '1000000 bytes')):
            path.write_text(text)
            self.assertEnds(1, self.plan('--request', path), 'bad.json',
                            expected)
        self.assertEnds(1, self.plan('--request', self.directory / 'none'),
                        'none', 'No such file')


class TestRequest(PlanTestCase):

    def test_nested_objects_are_fields_of_their_object(self):
        from cellsched.cli import planning

        for kind, nested in planning._NESTED.items():
            for field in nested:
                self.assertIn(field, getattr(objects, kind).fields)


def place(host, cell, **weights):
    """Return a place, with what each weigher gave it."""
    shares = [ranking.WeightShare(by, weight * 100, weight, 1.0, weight)
              for by, weight in weights.items()]
    return decision_record.Place(
        host, host, cell, sum(weights.values()), shares)


class TestExplain(base.CommandTestCase):

    def setUp(self):
        super().setUp()
        self.api = self.useFixture(databases.APIDatabase())
        self.write_api_conf(self.api.url)
        self.cell = samples.map_cell(
            self.api.database, samples.cell('north')).uuid
        self.one, self.two = samples.uuids(2)

    def keep(self, *uuids, at=1.0, version=1, request_id='req-1',
             extra_specs=None, **fields):
        decided = decision_record.Decision(**{
            'hosts': 3, 'stages': [
                decision_record.Count('ComputeFilter', 3, 2, 'is down')],
            'picks': [], **fields})
        made = decision_record.document_of(
            decided, builders.request(
                hints={'a': 'b'}, extra_specs=extra_specs or {}),
            uuids, request_id, samples.NOW)
        with self.api.database.writer() as connection:
            decisions.create(connection, [decisions.DecisionRow(
                request_id, at, uuids,
                json.dumps({**made, 'version': version}))], samples.NOW)

    def keep_choice(self, *uuids, second=None, **fields):
        first = place('n1', self.cell, RAMWeigher=0.5, CPUWeigher=1.0)
        self.keep(*uuids, **fields, picks=[
            decision_record.Pick(uuid, 2, first, None if number else second)
            for number, uuid in enumerate(uuids)])

    def explain(self, name, *argv):
        return self.shell('explain', name, *argv)

    def test_choice_is_shown_with_weights_and_the_second_host(self):
        self.keep_choice(self.one, second=place(
            'n2', self.cell, RAMWeigher=1.0, CPUWeigher=0.125))

        ran = self.explain(self.one)

        self.assertEqual((0, ''), (ran.code, ran.err))
        lines = [' '.join(line.split()) for line in ran.out.splitlines()]
        for line in (
                'Decision of 2026-01-02T03:04:05.000Z on one server, request '
                'req-1',
                'Each: small (1 VCPU, 512 MEMORY_MB, 1 DISK_GB)',
                'Hints: a=b',
                'ComputeFilter 3 2 a host that is down',
                f'{self.one} n1 n1 north 2 1.5',
                'RAMWeigher n1 50 0.5 1 0.5', 'n2 100 1 1 1',
                'Sum n1 1.5', 'n2 1.125',
                'n2 was not chosen because it weighs 0.375 less: CPUWeigher '
                'made the largest difference, 0.875.'):
            self.assertIn(line, lines)

    def test_decision_way_is_shown_with_its_reasons(self):
        for reasons, line in (
                ([], 'Decided on columns'),
                (['a', 'b'], 'Decided on columns, because of a; b')):
            [uuid] = samples.uuids(1)
            self.keep_choice(uuid, way=decision_record.Way('columns', reasons))

            self.assertIn(line, self.explain(uuid).out.splitlines())
        self.keep_choice(self.one)
        self.assertNotIn('Decided on', self.explain(self.one).out)

    def test_invalid_request_is_shown(self):
        self.keep_choice(self.one, extra_specs={'resources:VGPU': 'many'})

        self.assertIn('resources:VGPU', self.explain(self.one).out)

    def test_second_host_with_an_equal_or_higher_weight_is_explained(self):
        for second, text in (
                (place('n2', self.cell, RAMWeigher=1.0, CPUWeigher=0.5),
                 'weighs the same'),
                (place('n2', self.cell, RAMWeigher=1.0, CPUWeigher=1.0),
                 'by chance'),
                (None, 'n1 was the only candidate')):
            [uuid] = samples.uuids(1)
            self.keep_choice(uuid, second=second)

            self.assertIn(text, self.explain(uuid).out)

    def test_each_server_of_a_request_is_explained(self):
        self.keep_choice(self.one, self.two, second=place(
            'n2', self.cell, RAMWeigher=1.0, CPUWeigher=0.0))

        ran = self.explain(self.two)
        both = self.explain('req-1')

        self.assertIn(f'Weights, as of {self.one}, the first:', ran.out)
        self.assertIn(self.two, ran.out)
        for uuid in (self.one, self.two):
            self.assertIn(uuid, both.out)

    def test_providers_of_the_host_are_shown_if_several_give(self):
        first = place('n1', self.cell, RAMWeigher=0.5)
        first.providers = [
            {'group': '', 'provider': self.two, 'name': 'n1',
             'resources': {'VCPU': 1, 'MEMORY_MB': 512}},
            {'group': '_GPU', 'provider': self.two, 'name': None,
             'resources': {'VGPU': 1}}]
        self.keep(self.one, picks=[decision_record.Pick(self.one, 1, first)],
                  extra_specs={'resources_GPU:VGPU': '1',
                               'trait_GPU:CUSTOM_FAST': 'required',
                               'trait_GPU:CUSTOM_OLD': 'forbidden'})

        lines = [' '.join(line.split())
                 for line in self.explain(self.one).out.splitlines()]

        for line in ('Group _GPU: 1 VGPU with CUSTOM_FAST, no CUSTOM_OLD',
                     'Server Group Provider Gives',
                     f'{self.one} n1 1 VCPU, 512 MEMORY_MB',
                     f'{self.one} _GPU {self.two} 1 VGPU'):
            self.assertIn(line, lines)

    def test_cells_of_the_host_are_shown(self):
        first = place('n1', self.cell, RAMWeigher=0.5)
        first.hardware = (
            {units.cpu(2): 1, units.cpu(1): 1, units.memory(0): 64},
            cells.topology(8), ())
        self.keep(self.one, picks=[decision_record.Pick(self.one, 1, first)])

        lines = [' '.join(line.split())
                 for line in self.explain(self.one).out.splitlines()]

        for line in ('Server NUMA cell Gives',
                     f'{self.one} 0 CPUs 1-2, 64 MB'):
            self.assertIn(line, lines)

    def test_each_reason_of_a_filter_is_shown(self):
        self.keep(
            self.one, reason='There are not enough hosts.',
            rejections=[{'by': 'F', 'hosts': 2, 'reason': 'lacks A'},
                        {'by': 'F', 'hosts': 1, 'reason': 'lacks B'}],
            examples={'F': ['n1', 'n2', 'n3'], 'lacks A': ['n1', 'n2'],
                      'lacks B': ['n3']})

        lines = [' '.join(line.split())
                 for line in self.explain(self.one).out.splitlines()]

        self.assertIn('F: lacks A 2 n1, n2', lines)
        self.assertIn('F: lacks B 1 n3', lines)

    def test_decision_of_a_release_without_groups_is_shown(self):
        self.keep_choice(self.one)
        with self.api.database.writer() as connection:
            [row] = decisions.find(connection, self.one, 1)
            document = json.loads(row.text)
            del document['request']['groups']
            del document['picks'][0]['first']['providers']
            del document['picks'][0]['first']['hardware']
            decisions.create(connection, [row._replace(
                decided_at=2.0, text=json.dumps(document))], samples.NOW)

        self.assertIn('n1 was the only candidate', self.explain(self.one).out)

    def test_refusal_is_shown_with_hosts_and_cells(self):
        self.keep(
            self.one, reason='There are not enough hosts.',
            rejections=[
                {'by': 'capacity:MEMORY_MB', 'hosts': 2,
                 'reason': 'lacks memory', 'nearest': {
                     'hosts': 1, 'amount': 512, 'unit': 'MB'}},
                {'by': 'claims', 'hosts': 1, 'reason': 'lost'},
                {'by': 'cells', 'hosts': 0, 'reason': 'does not answer',
                 'cells': ['south']}],
            examples={'capacity:MEMORY_MB': ['n1', 'n2'], 'claims': ['n3']})

        lines = [' '.join(line.split())
                 for line in self.explain(self.one).out.splitlines()]

        for line in ('No host: There are not enough hosts.',
                     'capacity:MEMORY_MB 2 1 by 512 MB n1, n2',
                     'claims 1 n3', 'cells 0 south'):
            self.assertIn(line, lines)

    def test_newest_is_shown_or_all(self):
        for at in (1.0, 3.0, 2.0):
            self.keep(self.one, at=at, reason=f'reason {at}')

        newest = self.explain(self.one, '-f', 'json')
        every = yaml.safe_load(
            self.explain(self.one, '--all', '-f', 'yaml').out)

        self.assertEqual('reason 3.0', newest.data['reason'])
        self.assertEqual([f'reason {at}' for at in (3.0, 2.0, 1.0)],
                         [each['reason'] for each in every])
        self.assertEqual(2, self.explain(
            self.one, '--all').out.count('\n---'))

    def test_kept_host_is_shown(self):
        self.keep(self.one)

        self.assertIn('kept the host', self.explain(self.one).out)

    def test_missing_decision_names_the_retention(self):
        self.assertEnds(1, self.explain(self.one), self.one, '3600 seconds')
        self.write_api_conf(
            self.api.url, scheduler={'decision_retention': 0})
        self.assertEnds(
            1, self.explain('req-2'), 'req-2', 'decision_retention is 0')

    def test_unknown_server_is_named(self):
        # A cell that does not answer may have a server of that name.
        for name, text in ((self.one, 'and no such server'),
                           ('web', 'web; decisions are kept'),
                           ('req-1', 'req-1; decisions are kept')):
            self.assertEnds(1, self.explain(name), text)

    def test_wrong_arguments_are_refused(self):
        for name in ('', 'x' * 300, 'a\0'):
            self.assertEnds(1, self.explain(name), 'SERVER|REQUEST_ID')
        self.assertEnds(1, self.explain(self.one, '-f', 'toml'), 'toml')

    def test_stages_are_the_rows_of_a_decision(self):
        self.keep_choice(self.one)

        ran = self.explain(self.one, '-f', 'csv')

        self.assertEqual(
            ['"decided_at","by","entered","left","reason"',
             '"2026-01-02T03:04:05.000Z","ComputeFilter",3,2,'
             '"is down"'], ran.out.splitlines()[:2])
        self.assertIn('2026-01-02T03:04:05.000Z ComputeFilter 3 2 ',
                      self.explain(self.one, '-f', 'value').out)

    def test_decision_of_a_newer_release_is_refused(self):
        self.keep(self.one, version=2)

        self.assertEnds(1, self.explain(self.one), 'version', 'another')

    def test_decision_of_a_newer_release_keeps_no_other(self):
        self.keep(self.one, at=1.0, request_id='req-1')
        self.keep(self.one, at=2.0, version=2, request_id='req-2')
        with self.api.database.writer() as connection:
            decisions.create(connection, [decisions.DecisionRow(
                'req-3', 3.0, [self.one], 'half a reco')], samples.NOW)

        ran = self.explain(self.one, '--all')

        self.assertEqual(0, ran.code)
        self.assertIn('req-1', ran.out)
        self.assertNotIn('req-2', ran.out)
        self.assertEnds(1, self.explain(self.one), 'half a reco')


SIZE = ('--vcpus', 1, '--ram', 1000)


class TestCapacity(SnapshotTestCase):

    def setUp(self):
        super().setUp()
        self.write_hosts(
            {'north': 'North', 'south': 'South'},
            free_ram_mb=[4096, 8192, 512], cell=['south', 'north', 'south'],
            availability_zone=['east', 'west', 'east'])

    def capacity(self, *argv, size=SIZE):
        return self.shell('capacity', '--snapshot', self.path, *size, *argv)

    def rows(self, *argv, **options):
        ran = self.capacity(*argv, '-f', 'json', **options)
        self.assertEqual('', ran.err)
        return ran.code, [tuple(row.values())[:4] for row in ran.data]

    def test_servers_are_counted_in_each_cell_and_in_all(self):
        self.assertEqual((0, [
            ('North', 1, 1, 8), ('South', 2, 1, 4), ('all cells', 3, 2, 12),
        ]), self.rows())

    def test_capacity_counts_the_servers_on_passed_hosts(self):
        self.assertEqual((0, [
            ('North', 1, 0, 0), ('South', 2, 1, 4), ('all cells', 3, 1, 4),
        ]), self.rows('--availability-zone', 'east'))
        self.assertEqual(4, self.rows('--ignore-host', 'b')[1][-1][-1])

    def share(self, hosts, pool):
        """Have a pool of CUSTOM_A shared by hosts in the south and north."""
        groups = test_provider_groups
        table = groups.make(
            hosts, [{0}] * len(hosts), [groups.Provider((pool, 0))],
            cell=['south', *['north'] * (len(hosts) - 1)])
        with self.path.open('w') as file:
            host_snapshot.write(document.dump(document.HostDocument(
                table, builders.NOW, {'north': 'North'})), file)

    def test_shared_provider_counts_once_in_all_cells(self):
        self.share([[test_provider_groups.Provider()] for _ in range(3)], 11)

        # Each host has room for 8, but for what they share.
        self.assertEqual((0, [
            ('North', 2, 2, 5), ('south', 1, 1, 5), ('all cells', 3, 3, 5),
        ]), self.rows('--extra-spec', 'resources:CUSTOM_A=2'))

    def test_total_capacity_is_at_least_the_capacity_of_a_cell(self):
        groups = test_provider_groups
        # A server in the south takes twice as much of what is shared.
        self.share([[groups.Provider()], [
            groups.Provider(), groups.Provider((8, 0), ['CUSTOM_T'])]], 8)

        self.assertEqual([8, 4, 8], [row[-1] for row in self.rows(
            '--extra-spec', 'resources1:CUSTOM_A=1',
            '--extra-spec', 'resources2:CUSTOM_A=1',
            '--extra-spec', 'trait2:CUSTOM_T=forbidden',
            '--extra-spec', 'group_policy=none')[1]])

    def mix(self, text, weighers='RAMWeigher'):
        self.write('api.conf', filter_scheduler={
            'weight_classes': weighers, 'fragmentation_flavors': text})

    def test_capacity_unusable_for_the_flavor_mix_is_shown(self):
        # Of 32 vCPUs each; of 8192 MB in the north and 4096 and 512 MB.
        for weighers in 'RAMWeigher', 'all_weighers':
            self.mix('8:4096=1', weighers)

            ran = self.capacity('-f', 'json')

            self.assertEqual(
                [25.0, round(50 * (56 / 64 + 1 / 9), 1),
                 round(50 * (72 / 96 + 1 / 25), 1)],
                [row['Unusable Percent'] for row in ran.data])
        self.assertIn('"North",1,1,8,25.0', self.capacity('-f', 'csv').out)
        self.assertIn('|             25.0 |', self.capacity().out)

    def test_unusable_share_is_empty_without_a_mix(self):
        self.mix('')

        self.assertEqual([None] * 3, [
            row['Unusable Percent']
            for row in self.capacity('-f', 'json').data])

    def test_invalid_mix_is_named(self):
        for weighers in 'RAMWeigher', 'all_weighers':
            self.mix('8=1', weighers)

            self.assertEnds(1, self.capacity(), 'VCPUS:MEMORY_MB=SHARE')

    def test_full_hosts_have_the_reason_of_most_hosts(self):
        self.assertEqual(
            ['lack memory', 'lack memory', 'lack memory'],
            [row['Full Hosts'] for row in self.capacity('-f', 'json').data])
        self.assertEqual(
            ['lack CPUs', 'lack CPUs', 'lack CPUs'],
            [row['Full Hosts'] for row in self.capacity(
                '-f', 'json', size=('--vcpus', 4, '--ram', 10)).data])
        self.assertEqual(
            ['are too small in memory', 'are not among the forced hosts',
             'are not among the forced hosts'],
            [row['Full Hosts'] for row in self.capacity(
                '-f', 'json', '--force-host', 'b',
                size=('--vcpus', 1, '--ram', 10 ** 6)).data])

    def test_zero_capacity_exits_with_2_and_the_reason(self):
        ran = self.capacity('-f', 'json', size=(
            '--vcpus', 1, '--ram', 10 ** 6))

        self.assertEqual((2, 0), (ran.code, ran.data[-1]['Servers']))
        self.assertRegex(
            ran.err, r'of 3 hosts 3 are too small in memory \(.* MB\)\.')

    def test_chart_is_drawn_on_request(self):
        drawn, plain = self.capacity('--chart'), self.capacity()

        self.assertIn('67%  8 of 12', drawn.out)
        self.assertNotIn('%', plain.out)

    def test_charts_are_drawn_into_files(self):
        for suffix, begin in (('png', b'\x89PNG'), ('svg', b'<?xml')):
            path = self.directory / f'room.{suffix}'

            self.assertEqual(0, self.capacity('--plot', path).code)

            self.assertTrue(path.read_bytes().startswith(begin))

    def test_bad_input_is_refused(self):
        for argv, text in (
                (('--plot', self.directory / 'room.pdf'), '.png or .svg'),
                (('--plot', self.directory / 'no' / 'room.png'),
                 'cannot be written'),
                (('--group', 'x'), '--group'),
                (('--ram', '0'), '--ram')):
            self.assertEnds(1, self.capacity(*argv), text)
        self.assertEnds(1, self.capacity(size=()), '--vcpus')

    def test_missing_library_is_named_with_its_extra(self):
        with mock.patch.dict('sys.modules', {'matplotlib': None}):
            self.assertEnds(1, self.capacity('--plot', 'x.png'),
                            'cellsched[plot]')
