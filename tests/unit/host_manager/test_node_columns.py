# SPDX-License-Identifier: Apache-2.0
"""From rows of a cell's database to columns of the host table."""

import datetime
import json
import types

from cellsched.host_manager import node_columns
from cellsched.hosts import columns
from cellsched.hosts import table
from cellsched.objects import child_providers
from tests.unit import base

NODE = {
    'uuid': 'u', 'host': 'h', 'hypervisor_hostname': 'n', 'host_ip': '::1',
    'vcpus': 8, 'memory_mb': 1000, 'memory_mb_used': 100, 'local_gb': 10,
    'local_gb_used': 1, 'cpu_allocation_ratio': 4.0,
    'ram_allocation_ratio': 1.5, 'disk_allocation_ratio': 2.0,
    'hypervisor_type': 'qemu', 'hypervisor_version': 7, 'cpu_info': '{}',
    'supported_instances': '[["x86_64", "kvm", "hvm"]]',
    'stats': '{"ssd": "yes", "io_workload": 2, "failed_builds": "3", '
             '"num_vm_active": 4}',
    'metrics': '[{"name": "m", "value": 1}]', 'pci_stats': None,
    'numa_topology': None,
    'traits': '["T", "U"]', 'providers': None}

POOLS = {'nova_object.data': {'objects': [
    {'nova_object.data': {'count': 2}}, {'nova_object.data': {'count': 3}}]}}

#: Texts that are no JSON, or JSON of another kind than is wanted.
BAD = ('{', 'null', '"text"', '3', 'nan', '[' * 100_000, '\x00')


#: Columns of plug-ins, with what they hold where nobody says anything.
SOURCED = (
    columns.Column('celsius', 'float64', -300.0, 'heat', 'stats.heat'),
    columns.Column('fans', columns.WHOLE, -1, 'fans', 'stats.fans'),
    columns.Column('rack', columns.CODED, None, 'rack', 'stats.rack'),
    columns.Column('load', 'float32', -1.0, 'load', 'metrics.load.1'),
    columns.Column('has_t', 'bool', False, 'trait', 'traits.T'))
NOTHING = {each.name: each.default for each in SOURCED}


def node(sourced=(), flaws=None, **values):
    """Return the columns of a node, and check that a table takes them."""
    made = node_columns.of_nodes(
        [types.SimpleNamespace(**NODE | values)], 'cell', sourced,
        flaws=flaws)
    table.HostTable((*columns.STANDARD, *sourced)).put(['u'], made)
    return {name: value if name == 'cell' else value[0]
            for name, value in made.items()}


class TestNodes(base.TestCase):

    def test_columns_have_the_values_of_the_row(self):
        self.assertEqual({
            'host': 'h', 'nodename': 'n', 'host_ip': '::1', 'cell': 'cell',
            'traits': frozenset({'T', 'U'}), 'vcpus_total': 8,
            'total_usable_ram_mb': 1000, 'unreserved_ram_mb': 900,
            'total_usable_disk_gb': 10, 'unreserved_disk_mb': 9 * 1024,
            'cpu_allocation_ratio': 4.0, 'ram_allocation_ratio': 1.5,
            'disk_allocation_ratio': 2.0, 'num_io_ops': 2,
            'failed_builds': 3, 'free_pci_devices': 0,
            'hypervisor_type': 'qemu', 'hypervisor_version': 7,
            'cpu_info': '{}',
            'supported_instances': (('x86_64', 'kvm', 'hvm'),),
            'image_props': (), 'stats': '{"ssd": "yes"}',
            'metrics': NODE['metrics'], 'children': (), 'child_uuids': (),
            'numa_topology': None, 'device_pools': (),
            'claims_hardware': True},
            node())
        self.assertEqual('', self.logs.output)

    def test_children_of_nodes_alike_are_numbered_alike(self):
        said = [child_providers.Child(f'{name}', name, parent, traits)
                for name, parent, traits in (
                    ('z', None, frozenset()), ('vf', 'nic', frozenset('V')),
                    ('nic', None, frozenset('N')))]

        found = node(providers=child_providers.dump(said))

        self.assertEqual(('z', 'nic', 'vf'), found['child_uuids'])
        self.assertEqual(
            ((0, frozenset()), (0, frozenset('N')), (2, frozenset('V'))),
            found['children'])

    def test_children_above_the_limit_are_a_flaw(self):
        said = [child_providers.Child(str(number), str(number))
                for number in range(columns.CHILDREN_MAX + 1)]

        flaws = {}
        found = node(flaws=flaws, providers=child_providers.dump(said))

        self.assertEqual(columns.CHILDREN_MAX, len(found['children']))
        self.assertEqual(
            {'u': ['of 129 child providers only 128 are used']}, flaws)

    def test_empty_fields_of_other_programs_have_defaults(self):
        empty = node(**dict.fromkeys(
            ('host_ip', 'cpu_allocation_ratio', 'ram_allocation_ratio',
             'disk_allocation_ratio', 'stats', 'metrics', 'traits',
             'supported_instances', 'hypervisor_hostname')))

        self.assertEqual((None, 1.0, 1.0, 1.0, 0, frozenset(), (), '', ''), (
            empty['host_ip'], empty['cpu_allocation_ratio'],
            empty['ram_allocation_ratio'], empty['disk_allocation_ratio'],
            empty['num_io_ops'], empty['traits'],
            empty['supported_instances'], empty['stats'],
            empty['nodename']))
        self.assertEqual('', self.logs.output)

    def test_empty_text_is_absent(self):
        empty = node(host_ip='', hypervisor_type='')

        self.assertEqual(
            (None, None), (empty['host_ip'], empty['hypervisor_type']))

    def test_invalid_json_is_a_flaw_and_ignored(self):
        for name, column, default in (
                ('stats', 'num_io_ops', 0),
                ('traits', 'traits', frozenset()),
                ('supported_instances', 'supported_instances', ())):
            for bad in BAD:
                flaws = {}
                self.assertEqual(
                    default, node(flaws=flaws, **{name: bad})[column])
                self.assertIn(f'{name} is not a JSON', str(flaws['u']))

    def test_invalid_document_is_a_flaw_and_ignored(self):
        for name, column, default in (
                ('pci_stats', 'device_pools', ()),
                ('numa_topology', 'numa_topology', None)):
            for bad in ('{', '[3]', '5'):
                flaws = {}
                self.assertEqual(
                    default, node(flaws=flaws, **{name: bad})[column])
                self.assertIn(f'{name} is not a document', str(flaws['u']))

    def test_cells_and_pools_have_no_usage(self):
        cell = {'id': 0, 'cpuset': [0], 'pcpuset': [1], 'memory': 64,
                'memory_usage': 32, 'cpu_usage': 1, 'pinned_cpus': [1]}
        found = node(
            numa_topology=json.dumps({'cells': [cell]}),
            pci_stats=json.dumps([{'vendor_id': '8086', 'product_id': '1',
                                   'count': 0}]))

        [read] = found['numa_topology'].cells
        self.assertEqual((0, 0, frozenset()), (
            read.memory_usage, read.cpu_usage, read.pinned))
        self.assertEqual([1], [each.count for each in found['device_pools']])
        self.assertEqual(0, found['free_pci_devices'])

    def test_equal_flawed_values_are_reported_for_each_node(self):
        flaws = {}
        node_columns.of_nodes(
            [types.SimpleNamespace(**NODE | {'uuid': uuid, 'traits': '{'})
             for uuid in 'abc'], 'cell', flaws=flaws)

        self.assertEqual(['a', 'b', 'c'], sorted(flaws))

    def test_images_of_servers_are_apart_from_other_statistics(self):
        said = node(stats=json.dumps({'ssd': 'yes', 'image_props': {
            'os': {'y': 1, 'x': '3'}, 'bus': {'ide': 2}}}))

        self.assertEqual(
            (('bus', 'ide', 2), ('os', 'x', 3), ('os', 'y', 1)),
            said['image_props'])
        self.assertEqual('{"ssd": "yes"}', said['stats'])
        for bad in (5, [], {'os': 5}, {'os': ['x']}, {'os': {'x': 'many'}},
                    {'os': {'x': -1}}, {'os': {'x': 0}}, {'os': {'x': None}}):
            self.assertEqual((), node(
                stats=json.dumps({'image_props': bad}))['image_props'], bad)

    def test_statistic_without_a_number_is_zero(self):
        for bad in (None, '', 'many', [], {}, 'inf'):
            self.assertEqual(0, node(
                stats=json.dumps({'io_workload': bad}))['num_io_ops'], bad)
        for text in ('Infinity', 'NaN', '1e999', '9' * 400, '-1e30'):
            self.assertEqual(0, node(
                stats=f'{{"io_workload": {text}}}')['num_io_ops'], text)

    def test_names_are_read_as_text(self):
        self.assertEqual(frozenset({'1', 'None'}),
                         node(traits='[1, null]')['traits'])
        self.assertEqual((('1', 'None'),), node(
            supported_instances='[[1, null], "x", 3]')[
                'supported_instances'])

    def test_free_devices_are_summed_over_all_pools(self):
        self.assertEqual(5, node(
            pci_stats=json.dumps(POOLS))['free_pci_devices'])

    def test_pools_of_another_form_have_no_device(self):
        for bad in ({}, {'nova_object.data': []},
                    {'nova_object.data': {'objects': 3}},
                    {'nova_object.data': {'objects': [
                        3, {}, {'nova_object.data': 3},
                        {'nova_object.data': {'count': 'many'}}]}}):
            self.assertEqual(0, node(
                pci_stats=json.dumps(bad))['free_pci_devices'], bad)


class TestSources(base.TestCase):

    def read(self, **values):
        made = node(SOURCED, **values)
        return {name: made[name] for name in NOTHING}

    def test_columns_are_filled_from_their_sources(self):
        self.assertEqual(
            {'celsius': 21.5, 'fans': 4, 'rack': 'r7', 'load': 0.25,
             'has_t': True},
            self.read(stats='{"heat": 21.5, "fans": "4", "rack": "r7"}',
                      metrics='[{"name": "load.1", "value": 0.25}]'))

    def test_node_without_a_source_has_the_default(self):
        for empty in '{}', '', None:
            self.assertEqual(
                NOTHING, self.read(stats=empty, metrics=None, traits='["U"]'))

    def test_invalid_json_in_a_report_gives_the_defaults(self):
        for bad in BAD:
            self.assertEqual(
                NOTHING, self.read(stats=bad, metrics=bad, traits=bad))
        for bad in ('[3, [], {}, {"name": "load.1"}, {"name": ["load.1"]}]',
                    '[{"value": 1}]', '[{"name": null, "value": 1}]'):
            self.assertEqual(-1.0, self.read(metrics=bad)['load'], bad)

    def test_value_of_an_invalid_type_gives_the_default(self):
        for bad in ('null', '[]', '{}', '"much"', '""', '[1]', '1e999',
                    'NaN', '-Infinity', '9' * 400, '"nan"', '"inf"',
                    '9007199254740994', '"' + '9' * 4000 + '"'):
            said = self.read(stats=f'{{"heat": {bad}, "fans": {bad}}}')
            self.assertEqual((-300.0, -1), (said['celsius'], said['fans']),
                             bad)
        for bad in ('7', 'null', '["r"]', '"\\u0000"', '"\\ud800"', '"a\\nb"',
                    '"' + 'x' * 256 + '"'):
            self.assertIsNone(
                self.read(stats=f'{{"rack": {bad}}}')['rack'], bad)

    def test_standard_columns_do_not_depend_on_sourced_columns(self):
        said = node(SOURCED)

        self.assertEqual(node(), {
            name: said[name] for name in said if name not in NOTHING})


class TestServices(base.TestCase):

    def test_service_was_seen_at_its_report_or_creation(self):
        first, second, third = (datetime.datetime(1970, 1, day)
                                for day in (1, 2, 3))
        rows = [types.SimpleNamespace(
            disabled=disabled, forced_down=down, last_seen_up=seen,
            created_at=made) for disabled, down, seen, made in (
                (True, False, second, first), (None, True, None, third),
                (False, None, None, None))]

        self.assertEqual({
            'service_disabled': [True, False, False],
            'forced_down': [False, True, False],
            'last_seen_up': [86400.0, 172800.0, 0.0],
        }, node_columns.of_services(rows))

    def test_empty_list_of_services_gives_empty_columns(self):
        self.assertEqual(
            {'service_disabled': [], 'forced_down': [], 'last_seen_up': []},
            node_columns.of_services([]))
