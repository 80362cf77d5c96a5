# SPDX-License-Identifier: Apache-2.0
"""ImagePropertiesFilter."""

import json

import hypothesis
from hypothesis import strategies as st

from cellsched import exception
from cellsched.filters import image_properties
from cellsched.testing import builders
from cellsched.testing.suite import filters
from tests.unit import base
from tests.unit.filters import agreeing
from tests.unit import strategies

KVM = ('x86_64', 'kvm', 'hvm')
XEN = ('i686', 'xen', 'xen')
ARM = ('aarch64', 'qemu', 'hvm')


def request(**properties):
    return builders.request(image=properties)


def passes(host, request):
    """Return what the properties of an image say of one host."""
    properties = dict(request.image.properties.items())
    kinds = [properties[name] for name in (
        'hw_architecture', 'img_hv_type', 'hw_vm_mode') if name in properties]
    if kinds and not any(all(kind in each for kind in kinds)
                         for each in host.supported_instances):
        return False
    number = host.hypervisor_version
    if number and properties.get('img_hv_requested_version'):
        if not (1, 2) <= (number // 1000, number % 1000) < (2, 0):
            return False
    bits = json.loads(host.cpu_info or '{}').get('maxphysaddr', {}).get('bits')
    return not bits or bits >= properties.get('hw_maxphysaddr_bits', 0)


class TestImagePropertiesFilter(
        agreeing.Agreeing, filters.FilterSuite, base.TestCase):

    plugin = image_properties.ImagePropertiesFilter

    def make_hosts(self, count):
        return builders.hosts(count, supported_instances=[
            (KVM, ARM)[row % 2:] for row in range(count)])

    def make_requests(self):
        return [builders.request(), request(hw_architecture='x86_64')]

    def test_host_must_support_the_kind_of_image(self):
        hosts = builders.hosts(supported_instances=[
            (), (KVM,), (XEN, ARM), (('AMD64', 'KVM', 'hv'),)])
        yes, no = [True] * 4, [False] * 4
        for expected, properties in (
                (yes, {}), (yes, {'hw_architecture': None}),
                (yes, {'os_type': 'linux'}),
                ([False, True, False, True], {'hw_architecture': 'x86_64'}),
                ([False, True, False, True], {'hw_architecture': 'AMD64'}),
                ([False, False, True, False], {'hw_architecture': 'i386'}),
                ([False, False, True, False], {'img_hv_type': 'xapi'}),
                ([False, False, True, False], {'hw_vm_mode': 'pv'}),
                ([False, True, True, True], {'hw_vm_mode': 'hvm'}),
                ([False, True, False, True],
                 {'img_hv_type': 'kvm', 'hw_vm_mode': 'baremetal'}),
                (no, {'hw_architecture': 'i686', 'hw_vm_mode': 'hvm'})):
            with self.subTest(properties=properties):
                self.assertKeeps(expected, hosts, request(**properties))

    def test_request_without_an_image_passes_all_hosts(self):
        hosts = builders.hosts(supported_instances=[(), (KVM,)])

        self.assertKeeps([True, True], hosts)
        self.assertKeeps([True, True], hosts, builders.request(image=None))

    def test_images_have_a_default_architecture(self):
        hosts = builders.hosts(supported_instances=[(), (KVM,), (ARM,)])
        option = {'image_properties_default_architecture': 'x86_64'}

        self.assertKeeps([False, True, False], hosts, **option)
        self.assertKeeps([False, False, True], hosts,
                         request(hw_architecture='aarch64'), **option)

    def test_version_of_the_hypervisor(self):
        hosts = builders.hosts(
            hypervisor_version=[0, 1_002_003, 6_000_000, 12_001],
            supported_instances=((KVM,)))
        for expected, text in (
                ([True, True, True, True], ''),
                ([True, True, True, True], '>=1.2.3'),
                ([True, False, True, True], '>1.2.3'),
                ([True, True, False, False], '>=1.2, <6.0'),
                ([True, False, True, False], '== 6.0'),
                ([True, True, False, True], '!=6'),
                ([True, False, True, True], ' >= 6.0rc1 '),
                ([True, True, False, False], '<=1.2.3')):
            with self.subTest(text=text):
                self.assertKeeps(expected, hosts, request(
                    hw_vm_mode='hvm', img_hv_requested_version=text))
                self.assertKeeps(expected, hosts, request(
                    img_hv_requested_version=text))

    def test_bits_of_an_address(self):
        hosts = builders.hosts(cpu_info=[
            '', '{}', '{"maxphysaddr": {"bits": 40}}', 'junk',
            '{"maxphysaddr": {"bits": 46}}', '{"maxphysaddr": {"bits": 0}}'],
            supported_instances=(KVM,))
        for bits in (42, '42'):
            self.assertKeeps(
                [True, True, False, True, True, True], hosts,
                request(hw_vm_mode='hvm', hw_maxphysaddr_bits=bits))
            self.assertKeeps(
                [True, True, False, True, True, True], hosts,
                request(hw_maxphysaddr_bits=bits))
        for bits in (None, 0, 40):
            self.assertKeeps([True] * 6, hosts, request(
                hw_vm_mode='hvm', hw_maxphysaddr_bits=bits))

    def test_bad_property_is_refused(self):
        kinds = ('', 'x87', 'x' * 1_000_000, 5, True, ['kvm'], {'a': 1},
                 'kvm\n', '__class__')
        versions = (5, ['>=1'], '6.0', '>=', '=>6', '>=x', '>=1,', '~=1.0',
                    '>=' + '1' * 1_000_000, '>=1,' * 100_000, {'a': 1})
        bits = (-1, 1025, 'many', '', 4.5, float('nan'), [], '9' * 1_000_000)
        for name, values in (
                ('hw_architecture', kinds), ('img_hv_type', kinds),
                ('hw_vm_mode', kinds), ('img_hv_requested_version', versions),
                ('hw_maxphysaddr_bits', bits)):
            for value in values:
                with self.subTest(name=name, value=str(value)[:60]):
                    error = self.assertRaises(
                        exception.InvalidField,
                        builders.plugin(self.plugin).keep, builders.hosts(2),
                        request(**{'hw_vm_mode': 'hvm', name: value}))
                    self.assertEqual(f'image.properties.{name}', error.field)
                    self.assertLess(len(str(error)), 500)

    @hypothesis.given(
        hosts=strategies.hosts(
            supported_instances=st.lists(
                st.sampled_from([KVM, XEN, ARM]), max_size=2).map(tuple),
            hypervisor_version=st.sampled_from([0, 1_001, 1_002, 2_000]),
            cpu_info=st.sampled_from(
                ['', '{}', '{"maxphysaddr": {"bits": 40}}'])),
        properties=st.fixed_dictionaries({}, optional={
            'hw_architecture': st.sampled_from(['x86_64', 'i686']),
            'img_hv_type': st.sampled_from(['kvm', 'xen', 'qemu']),
            'hw_vm_mode': st.sampled_from(['hvm', 'xen']),
            'img_hv_requested_version': st.just('>=1.2,<2'),
            'hw_maxphysaddr_bits': st.sampled_from([39, 40, 41])}))
    def test_column_verdict_equals_row_verdicts(self, hosts, properties):
        self.assertAgrees(passes, hosts, request(**properties))
