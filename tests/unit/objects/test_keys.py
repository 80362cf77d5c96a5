# SPDX-License-Identifier: Apache-2.0
"""Keys of flavors, images, aggregates and hints, and their values."""

from cellsched import exception
from cellsched.objects import keys
from cellsched.scheduler import requirements
from cellsched.testing import builders
from tests.unit import base

SERVER = '10000000-0000-4000-8000-000000000001'

#: Values that are understood, and values that are not, by key.
EXTRA_SPECS = {
    'hw:cpu_realtime': (('yes', 'False', '1'), ('yess', '', '2', 'none')),
    'hw:cpu_policy': (('dedicated', 'mixed'), ('Dedicated', 'dedicate', '')),
    'hw:numa_nodes': (('1', '128'), ('0', '-1', 'one', '1.5', '9' * 30)),
    'hw:numa_cpus.3': (('0', '0-3,^1', '^0'), ('', '0-', 'a', '0,,1')),
    'hw:numa_mem.0': (('1024',), ('0', '1G')),
    'hw:mem_page_size': (('large', '2048', '2MB', '1GiB'), ('huge', '2XB')),
    'hw:pmem': (('a', 'A_1,b'), ('', ',', 'a b')),
    'hw:redirected_usb_ports': (('0', '15'), ('16', '-1')),
    'hw:maxphysaddr_bits': (('42',), ('1025', 'all')),
    'quota:cpu_quota': (('-1', '1000'), ('1k',)),
    'group_policy': (('none', 'isolate'), ('isolated', '')),
    'os:secure_boot': (('required', 'disabled'), ('optional', 'Required')),
    'pci_passthrough:alias': (
        ('gpu:1', 'a:1, b:2', 'a: 1 ,b:2'),
        ('gpu', 'gpu:one', '', 'gpu:1,', ':1', 'a:b:1', 'a:1;b:1',
         'a:' + '9' * 30)),
    'resources:VGPU': (('0', '1'), ('-1', 'one', '')),
    'resources_GPU:CUSTOM_A': (('1',), ('one',)),
    'resources:GPU': ((), ('1',)),
    'trait:CUSTOM_SSD': (
        ('required', 'forbidden'), ('Required', 'require', 'in:x', '')),
    'trait_a-1:HW_CPU_X86_AVX2': (('required',), ('true',)),
    'trait:SSD': ((), ('required', 'forbidden')),
    'capabilities:free_ram_mb': (
        ('>= 1', 's== x', 'any', '<or> a <or> b'), ('>= x', '= nan', '==')),
    'aggregate_instance_extra_specs:ssd': (('true',), ('<= few',)),
    'ssd': (('true',), ('!= few',)),
    'licence:product': (('', 'any'), ()),
}

PROPERTIES = {
    'hw_architecture': (('x86_64', 'AMD64', 'i386'), ('x86-64', '', 5)),
    'architecture': (('x86_64',), ('x86-64',)),
    'img_hv_type': (('kvm', 'XAPI'), ('kvmm',)),
    'hw_vm_mode': (('hvm', 'pv'), ('hvmm',)),
    'img_hv_requested_version': (('>=6.0,<8',), ('6.0', '>=x', '>' * 300)),
    'hw_mem_encryption': ((True, False, 'yes'), ('yess', '')),
    'hw_numa_nodes': ((1, '2'), (0, 'two', True, 1.5)),
    'hw_numa_mem': (([1, 2],), ('1', [0], ['1'])),
    'hw_numa_cpus': (([{0, 1}, [2]],), ('0', [0], [['0']], [[-1]])),
    'hw_numa_cpus.0': (('0-1',), ('all',)),
    'hw_vif_model': (('virtio', 'VirtualE1000'), ('virtoi',)),
    'hw_disk_bus': (('virtio',), ('VIRTIO',)),
    'os_type': (('linux', 'Windows'), ('plan9',)),
    'trait:CUSTOM_SSD': (('required',), ('Required',)),
    'traits_required': ((['CUSTOM_A'],), ('CUSTOM_A', [1])),
    'os_distro': (('any', ''), ()),
}

METADATA = {
    'trait:CUSTOM_SSD': (('required',), ('Required', 'forbidden')),
    'trait:SSD': ((), ('required',)),
    'cpu_allocation_ratio': (('1.5', '0'), ('1,5', '-1', 'nan', 'inf')),
    'max_io_ops_per_host': (('0', '8'), ('-1', '1.5', 'few')),
    'max_instances_per_host': (('50',), ('many',)),
    'ram_weight_multiplier': (('-1.5', '0'), ('high', 'inf')),
    'filter_tenant_id2': (('a,b',), (' ',)),
    'rack': (('', 'any'), ()),
}

HINTS = {
    'different_host': (
        ([SERVER], [SERVER.replace('-', '').upper()], [SERVER] * 101),
        (['a'], [''], [f'{number:032x}' for number in range(101)])),
    'query': ((['["=", "$host", "a"]'], ['']), (['{}'], ['[]', '[]'])),
    'build_near_host_ip': ((['192.0.2.1'], ['2001:db8::1']), (
        ['host'], ['192.0.2.1', '192.0.2.2'], ['fe80::1%a'], [''])),
    'cidr': ((['/24'], ['/64'], ['/255.255.255.0']), (['24'], ['/129'])),
    'spread': ((['az'],), (['zone'], ['az', 'az'])),
    'max_skew': ((['1'],), (['0'], ['1001'], ['one'])),
    'group': ((['any'],), ()),
    'rack': ((['any'],), ()),
}


class TestValues(base.TestCase):

    def assertRefuses(self, known, table):
        for key, (valid, invalid) in table.items():
            for value in (*valid, None):
                known.check({key: value}, 'document', 'part')
            for value in invalid:
                with self.subTest(key=key, value=value):
                    error = self.assertRaises(
                        exception.InvalidField, known.check, {key: value},
                        'document', 'part')
                    self.assertEqual(f'part.{key}', error.field)
                    self.assertLess(len(str(error)), 600)

    def test_extra_specs_of_invalid_values_are_refused(self):
        self.assertRefuses(keys.EXTRA_SPECS, EXTRA_SPECS)

    def test_image_properties_of_invalid_values_are_refused(self):
        self.assertRefuses(keys.PROPERTIES, PROPERTIES)

    def test_metadata_has_values_of_its_kind(self):
        self.assertRefuses(keys.METADATA, METADATA)

    def test_hints_of_invalid_values_are_refused(self):
        self.assertRefuses(keys.HINTS, HINTS)

    def test_refused_key_is_shown_short_and_on_a_single_line(self):
        error = self.assertRaises(
            exception.InvalidField, keys.EXTRA_SPECS.check,
            {'trait:\n' + 'x' * 500: 'required'}, 'flavor', 'extra_specs')

        self.assertLess(len(error.field), 100)
        self.assertNotIn('\n', str(error))


class TestNames(base.TestCase):

    def test_unknown_key_of_a_known_scope_is_refused(self):
        for name in ('hw:cpu_polcy', 'hw:', 'quota:cpu', 'os:boot',
                     'capabilities:_x', 'capabilities:a:_x',
                     'hw:numa_cpus.a'):
            error = self.assertRaises(
                exception.InvalidField, keys.EXTRA_SPECS.check_names, [name],
                'flavor', 'extra_specs')
            self.assertEqual(f'extra_specs.{name}', error.field)
        self.assertRaisesRegex(
            exception.InvalidField, 'did you mean hw:cpu_policy',
            keys.EXTRA_SPECS.check_names, ['hw:cpu_polcy'], 'flavor', 'specs')

    def test_mistyped_scope_is_refused_with_the_known_scope(self):
        for name, near in (
                ('Trait:CUSTOM_A', 'trait'), (' trait:CUSTOM_A', 'trait'),
                ('tait:CUSTOM_A', 'trait'), ('resource:VGPU', 'resources'),
                ('HW:cpu_policy', 'hw'), ('hw :cpu_policy', 'hw'),
                ('capability:x', 'capabilities'),
                ('pci_passthru:alias', 'pci_passthrough'),
                ('aggregate_instance_extra_spec:ssd',
                 'aggregate_instance_extra_specs')):
            error = self.assertRaises(
                exception.InvalidField, keys.EXTRA_SPECS.check_names, [name],
                'flavor', 'extra_specs')
            self.assertEqual(f'extra_specs.{name}', error.field)
            self.assertIn(f'did you mean {near}?', str(error))

    def test_key_of_another_scope_is_accepted(self):
        keys.EXTRA_SPECS.check_names(
            ['licence:product', 'train:x', 'osx:a', 'hw_cpu:x', 'ssd',
             'hw:cpu_policy', 'trait1:CUSTOM_A',
             'capabilities:stats:a', 'trait:CUSTOM_A'], 'flavor', 'specs')
        self.assertRaises(
            exception.InvalidField, keys.EXTRA_SPECS.check_names,
            ['licence:product', 'hw:product'], 'flavor', 'specs')

    def test_canonical_value_has_the_type_and_spelling_of_nova(self):
        for expected, key, value in (
                (True, 'hw_boot_menu', 'yes'), (False, 'hw_boot_menu', '0'),
                ('maybe', 'hw_boot_menu', 'maybe'),
                (2, 'hw_cpu_sockets', '02'),
                ('x86_64', 'hw_architecture', 'AMD64'),
                ('xen', 'img_hv_type', 'xapi'), ('linux', 'os_type', 'Linux'),
                ('Debian', 'os_distro', 'Debian'), ('Yes', 'unknown', 'Yes'),
                ([{0}], 'hw_numa_cpus', [{0}])):
            self.assertEqual(expected, keys.PROPERTIES.canonical(key, value))

    def test_each_known_requirement_has_a_kind_of_values(self):
        for prefix, known in (
                (requirements.EXTRA_SPEC, keys.EXTRA_SPECS),
                (requirements.PROPERTY, keys.PROPERTIES)):
            names = {*(each.name for each in requirements.REQUIREMENTS)}
            names.update(*requirements.NO_REQUIREMENTS.values())
            for name in names:
                if name.startswith(prefix):
                    name = name.removeprefix(prefix).replace(
                        '{group}', '1').replace('.*', '.0').replace(':*', ':a')
                    with self.subTest(name=name):
                        self.assertIsNotNone(known.kind(name))


class TestRequests(base.TestCase):

    def test_flavor_image_and_hints_of_a_request_are_checked(self):
        for field, wishes in (
                ('flavor.extra_specs.hw:cpu_policy', {
                    'extra_specs': {'hw:cpu_policy': 'x'}}),
                ('image.properties.hw_cpu_policy', {
                    'image': {'hw_cpu_policy': 'x'}}),
                ('scheduler_hints.same_host', {
                    'hints': {'same_host': ['x']}})):
            error = self.assertRaises(
                exception.InvalidField, keys.check_request,
                builders.request(**wishes), 'document', 'spec')
            self.assertEqual(f'spec.{field}', error.field)

    def test_request_without_keys_is_accepted(self):
        keys.check_request(builders.request(), 'document', 'spec')
        keys.check_request(
            builders.request(hints={'same_host': []}), 'document', 'spec')
        self.assertRaises(
            exception.InvalidField, keys.check_request,
            builders.request(hints={'same_host': ['']}), 'document', 'spec')
