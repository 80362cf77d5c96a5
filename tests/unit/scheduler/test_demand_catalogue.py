# SPDX-License-Identifier: Apache-2.0
"""The catalogue of demands, beside the names that Nova has."""

import json
import pathlib
import re

from oslo_config import cfg

from cellsched.conf import scheduler
from cellsched.filters import base as filters
from cellsched import plugins
from cellsched.scheduler.decision import capacity
from cellsched.scheduler.decision import destinations
from cellsched.scheduler.decision import prefilters
from cellsched.scheduler import demand_catalogue as catalogue
from cellsched.scheduler import demands
from cellsched.testing import builders
from tests.unit import base

#: What ``tests/integration/nova/names.py`` prints; a test there runs it.
NAMES = pathlib.Path(__file__).with_name('nova_names.json')

NO_DEMANDS = frozenset().union(*catalogue.NO_DEMANDS.values())

#: Names that Nova's requests have no more, or only in their older forms.
OTHERS = {'image.properties.hw_numa_cpus.*', 'image.properties.hw_numa_mem.*',
          'image.properties.trait:*', 'image.properties.architecture',
          'image.properties.hypervisor_type', 'image.properties.vm_mode',
          'image.properties.hypervisor_version_requires',
          'flavor.extra_specs.unscoped', 'requested_resources.other'}

DEDICATED = {'hw:cpu_policy': 'dedicated'}
TPM = {'hw:tpm_version': '2.0'}
UEFI = {'hw_firmware_type': 'uefi'}


def recorded():
    """Yield the names of Nova's, with something in their open parts."""
    known = json.loads(NAMES.read_text())
    for prefix, kind in ((catalogue.EXTRA_SPEC, 'extra_specs'),
                         (catalogue.PROPERTY, 'image_properties'),
                         ('', 'request_fields')):
        for name in known[kind]:
            yield prefix + re.sub(r'\{\w+\}', '1', name)
            yield prefix + re.sub(r'\{\w+\}', 'x', name.replace(
                '{group}', '').replace('{filter}', ':x:y'))


def asks(name, value, extra_specs=None, image=None, **fields):
    """Return whether a value asks for something."""
    if name.startswith(catalogue.EXTRA_SPEC):
        extra_specs = {name.removeprefix(catalogue.EXTRA_SPEC): value,
                       **(extra_specs or {})}
    elif name.startswith(catalogue.PROPERTY):
        image = {name.removeprefix(catalogue.PROPERTY): value,
                 **(image or {})}
    request = builders.request(
        extra_specs=extra_specs or {}, image=image, **fields)
    return demands.find(name).when.holds(value, request)


class TestNames(base.TestCase):

    def test_each_name_of_nova_is_a_demand_or_is_none(self):
        for name in recorded():
            found = demands.find(name)
            self.assertNotEqual(found is None, name not in NO_DEMANDS, name)
            if found is not None:
                self.assertNotEqual(catalogue.UNSCOPED, found.name, name)

    def test_each_name_of_the_catalogue_is_one_of_nova(self):
        names = {*recorded()}
        found = {demand.name for demand in map(demands.find, names) if demand}

        self.assertEqual(set(), NO_DEMANDS - names)
        self.assertEqual(
            OTHERS, {each.name for each in catalogue.DEMANDS} - found)

    def test_each_demand_is_found_by_a_name_of_its_own(self):
        for each in catalogue.DEMANDS:
            if each.pattern is None:
                self.assertIs(
                    each, demands.find(each.name.replace('*', 'x')))
        self.assertEqual(len(catalogue.DEMANDS), len(
            {each.name for each in catalogue.DEMANDS}))

    def test_names_that_are_not_novas_are_no_demands(self):
        for name in ('flavor.extra_specs.licence:product',
                     'flavor.extra_specs.resources!:X',
                     'flavor.extra_specs.hw:new', 'flavor.extra_specs.:x',
                     'image.properties.os_new', 'new'):
            self.assertIsNone(demands.find(name), name)

    def test_groups_are_found_by_any_suffix(self):
        for suffix in ('', '1', '_GPU', '-', 'a' * 64):
            for text in ('VGPU', 'CUSTOM_X', '', 'a:b', 'x\n'):
                self.assertEqual(
                    catalogue.GROUP if suffix else catalogue.RESOURCES,
                    demands.find(
                        f'flavor.extra_specs.resources{suffix}:{text}'))
                self.assertEqual(
                    catalogue.TRAIT_GROUP if suffix
                    else demands.find('flavor.extra_specs.trait:x'),
                    demands.find(f'flavor.extra_specs.trait{suffix}:{text}'))

    def test_each_shipped_stage_reads_names_that_there_are(self):
        known = {each.name for each in catalogue.DEMANDS} | NO_DEMANDS
        conf = cfg.ConfigOpts()
        scheduler.register_opts(conf)
        conf([], default_config_files=[], default_config_dirs=[])
        stages = [*destinations.stages(1.0),
                  *prefilters.stages(conf.scheduler), capacity.Capacity,
                  *plugins.load_shipped(plugins.FILTERS).values()]

        for stage in stages:
            self.assertEqual(set(), stage.reads - known, stage)
        self.assertEqual(frozenset(), filters.Filter.reads)


class TestExtraSpec(base.TestCase):

    def test_flavor_may_have_none(self):
        request = builders.request(extra_specs={'a': 'b'})
        self.assertEqual('b', catalogue.extra_spec(request, 'a'))
        for name in 'extra_specs', None:
            if name:
                del request.flavor.extra_specs
            self.assertIsNone(catalogue.extra_spec(request, 'b'))


class TestConditions(base.TestCase):
    """A value that asks for nothing must not have a request refused."""

    def assertAsks(self, name, *values, **others):
        for value in values:
            self.assertTrue(asks(name, value, **others), (name, value))

    def assertAsksNothing(self, name, *values, **others):
        for value in values:
            self.assertFalse(asks(name, value, **others), (name, value))

    def test_texts_and_numbers_ask_unless_they_are_empty(self):
        for name in ('flavor.extra_specs.hw:numa_nodes',
                     'flavor.extra_specs.hw:mem_page_size',
                     'flavor.extra_specs.hw:pmem',
                     'flavor.extra_specs.accel:device_profile',
                     'image.properties.hw_numa_nodes',
                     'image.properties.hw_mem_page_size',
                     'image.properties.traits_required',
                     'image.properties.hw_architecture'):
            self.assertAsks(name, '1', 'small')
            self.assertAsksNothing(name, '')
        self.assertAsksNothing('image.properties.traits_required', [])
        self.assertAsksNothing('image.properties.hw_maxphysaddr_bits', 0)

    def test_any_amount_and_any_capability_asks(self):
        for name in ('resources:VCPU', 'resources1:VGPU', 'capabilities:x',
                     'aggregate_instance_extra_specs:x', 'ssd'):
            self.assertAsks(f'flavor.extra_specs.{name}', '', '0', '1')

    def test_usual_policies_ask_for_nothing(self):
        for name, usual, others in (
                ('hw:cpu_policy', 'shared', ('dedicated', 'mixed')),
                ('hw:cpu_thread_policy', 'prefer', ('isolate', 'require'))):
            for full in (f'flavor.extra_specs.{name}',
                         f'image.properties.{name.replace(":", "_")}'):
                self.assertAsks(full, *others)
                self.assertAsksNothing(full, usual, '')
        name = 'flavor.extra_specs.hw:emulator_threads_policy'
        self.assertAsks(name, 'isolate')
        self.assertAsksNothing(name, 'share', '')

    def test_switches_ask_where_they_are_on(self):
        for name in ('flavor.extra_specs.hw:mem_encryption',
                     'flavor.extra_specs.hw:cpu_realtime',
                     'flavor.extra_specs.hw:ephemeral_encryption',
                     'flavor.extra_specs.hw:virtio_packed_ring',
                     'image.properties.hw_mem_encryption',
                     'image.properties.hw_virtio_packed_ring'):
            self.assertAsks(name, 'true', 'True', 'yes', '1', True)
            self.assertAsksNothing(name, 'false', 'no', '0', '', 'x', False)

    def test_one_value_of_some_asks(self):
        for name, value, others in (
                ('flavor.extra_specs.os:secure_boot', 'required',
                 ('disabled', 'optional', '')),
                ('image.properties.os_secure_boot', 'required',
                 ('disabled', 'optional', '')),
                ('flavor.extra_specs.hw:sound_model', 'virtio', ('ac97', '')),
                ('image.properties.hw_sound_model', 'virtio', ('usb', ''))):
            self.assertAsks(name, value)
            self.assertAsksNothing(name, *others)

    def test_traits_are_required_or_forbidden(self):
        for name in ('trait:X', 'trait1:X', 'trait_GPU:X'):
            self.assertAsks(
                f'flavor.extra_specs.{name}', 'required', 'forbidden')
            self.assertAsksNothing(f'flavor.extra_specs.{name}', 'x', '')

    def test_model_and_keeper_of_a_tpm_ask_with_its_version(self):
        for name, value in (('flavor.extra_specs.hw:tpm_model', 'tpm-crb'),
                            ('flavor.extra_specs.hw:tpm_secret_security',
                             'host'),
                            ('image.properties.hw_tpm_model', 'tpm-tis')):
            self.assertAsksNothing(name, value)
            self.assertAsks(name, value, extra_specs=TPM)
            self.assertAsks(name, value, image={'hw_tpm_version': '2.0'})

    def test_models_and_formats_ask_with_encryption(self):
        for key, model in (('mem_encryption', 'model'),
                           ('ephemeral_encryption', 'format')):
            for name in (f'flavor.extra_specs.hw:{key}_{model}',
                         f'image.properties.hw_{key}_{model}'):
                self.assertAsksNothing(name, 'x')
                self.assertAsksNothing(
                    name, 'x', extra_specs={f'hw:{key}': 'false'})
                self.assertAsks(
                    name, 'x', extra_specs={f'hw:{key}': 'true'})
                self.assertAsks(name, 'x', image={f'hw_{key}': True})

    def test_mask_asks_with_realtime(self):
        for name in ('flavor.extra_specs.hw:cpu_realtime_mask',
                     'image.properties.hw_cpu_realtime_mask'):
            self.assertAsksNothing(name, '^0')
            self.assertAsks(
                name, '^0', extra_specs={'hw:cpu_realtime': 'yes'})

    def test_stateless_firmware_asks_with_uefi(self):
        name = 'image.properties.hw_firmware_stateless'

        self.assertAsksNothing(name, True)
        self.assertAsksNothing(name, False, image=UEFI)
        self.assertAsks(name, True, 'true', image=UEFI)

    def test_policy_of_devices_asks_where_there_are_some(self):
        alias = {'pci_passthrough:alias': 'a:1'}
        for name in ('flavor.extra_specs.hw:pci_numa_affinity_policy',
                     'image.properties.hw_pci_numa_affinity_policy'):
            self.assertAsks(name, 'socket')
            self.assertAsksNothing(name, 'required', 'legacy', 'preferred')
            self.assertAsks(name, 'required', extra_specs=alias)
            self.assertAsks(name, 'required', pci_requests={'requests': [1]})
            self.assertAsksNothing(
                name, 'preferred', 'legacy', extra_specs=alias)

    def test_policy_of_groups_asks_where_there_are_some(self):
        name = 'flavor.extra_specs.group_policy'

        self.assertAsksNothing(name, 'isolate', 'none')
        for others in ({'extra_specs': {'resources1:X': '1'}},
                       {'extra_specs': {'trait1:X': 'required'}},
                       {'requested_resources': [{}]}):
            self.assertAsks(name, 'isolate', **others)
            self.assertAsksNothing(name, 'none', **others)

    def test_documents_of_nova_ask_where_something_is_in_them(self):
        def envelope(requests):
            return {'nova_object.name': 'InstancePCIRequests',
                    'nova_object.data': {'requests': requests}}

        self.assertAsks('pci_requests', {'requests': [1]}, envelope([1]),
                        [1], 'x')
        self.assertAsksNothing('pci_requests', {'requests': []},
                               envelope([]), envelope(None), {}, [], None)

    def test_networks_ask_with_a_numa_topology(self):
        there = {'physnets': ['a'], 'tunneled': False}
        numa = {'numa_topology': {'cells': [1]}}

        self.assertAsksNothing('network_metadata', there)
        self.assertAsks(
            'network_metadata', there, {'tunneled': True}, **numa)
        self.assertAsksNothing('network_metadata', {
            'physnets': [], 'tunneled': False}, **numa)
