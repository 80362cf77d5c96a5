# SPDX-License-Identifier: Apache-2.0
"""ComputeCapabilitiesFilter."""

import json

import hypothesis
from hypothesis import strategies as st

from cellsched import exception
from cellsched.filters import compute_capabilities
from cellsched.filters import extra_specs_ops
from cellsched.testing import builders
from cellsched.testing.suite import filters
from tests.unit import base
from tests.unit.filters import agreeing
from tests.unit import strategies

CPU = json.dumps({'vendor': 'Intel', 'maxphysaddr': {'bits': 46},
                  'features': ['avx', 'sse']})

KEYS = ['free_ram_mb', 'ssd', 'count', 'none', 'host', 'availability_zone',
        'capabilities:free_ram_mb', 'capabilities:stats:count',
        'capabilities:count', 'capabilities:a:b', 'capabilities:none',
        'capabilities:cpu_allocation_ratio', 'capabilities:service:disabled',
        'capabilities:hypervisor_type', 'capabilities:cpu_info:vendor',
        'capabilities:free_ram_mb:real', 'aggregate_instance_extra_specs:ssd',
        'hw:cpu_policy']

NOT_NOVAS = {'availability_zone'}


def request(**specs):
    return builders.request(extra_specs=specs)


def passes(host, request):
    """Return what a flavor's extra specs say of one host."""
    for key, requirement in request.flavor.extra_specs.items():
        scope, *path = key.split(':')
        if path and scope != 'capabilities':
            continue
        path = path or [scope]
        found = (None if path[0] in NOT_NOVAS
                 else getattr(host, path[0], None))
        if found is None:
            found = host.stats.get(path[0])
        for name in path[1:]:
            if isinstance(found, str):
                try:
                    found = json.loads(found)
                except ValueError:
                    found = None
            found = found.get(name) if hasattr(found, 'get') else None
        if found is None:
            if ':' in key:
                return False
        elif not extra_specs_ops.matcher(requirement, key)(str(found)):
            return False
    return True


class TestComputeCapabilitiesFilter(
        agreeing.Agreeing, filters.FilterSuite, base.TestCase):

    plugin = compute_capabilities.ComputeCapabilitiesFilter

    def make_requests(self):
        return [request(), request(vcpus_used='<= 4'),
                request(**{'capabilities:num_io_ops': '<or> 1 <or> 3'})]

    def assertVerdicts(self, expected, **specs):
        hosts = builders.hosts(
            free_ram_mb=[1024, 2048, 4096],
            stats=['', '{"ssd": "yes", "flag": true, "a": {"b": 1}}',
                   '{"ssd": "no"}'],
            cpu_info=[CPU, '', 'junk'], cpu_allocation_ratio=[1.0, 16.0, 1.5],
            service_disabled=[True, False, False],
            supported_instances=[(('x86_64', 'kvm', 'hvm'),), (), ()])
        with self.subTest(specs=specs):
            self.assertKeeps(expected, hosts, request(**specs))

    def test_extra_specs(self):
        for expected, key, requirement in (
                ([False, True, True], 'free_ram_mb', '>= 2048'),
                ([False, True, False], 'free_ram_mb', '2048'),
                ([False, False, False], 'free_ram_mb', '2048.0'),
                ([False, True, True], 'capabilities:free_ram_mb', '= 2048'),
                ([False, True, False],
                 'capabilities:cpu_allocation_ratio', '16.0'),
                ([True, False, False],
                 'capabilities:service:disabled', 'True'),
                ([True, True, False], 'ssd', 'yes'),
                ([False, True, False], 'capabilities:ssd', 'yes'),
                ([False, True, False], 'capabilities:stats:ssd', 'yes'),
                ([False, True, False], 'capabilities:flag', 'True'),
                ([False, True, False], 'capabilities:a:b', '1'),
                ([False, False, False], 'capabilities:a:b:c', '1'),
                ([True, False, False],
                 'capabilities:cpu_info:vendor', '<in> Intel'),
                ([True, False, False],
                 'capabilities:cpu_info:features', '<in> avx'),
                ([True, False, False],
                 'capabilities:cpu_info:maxphysaddr:bits', '>= 40'),
                ([True, False, False],
                 'capabilities:supported_instances', '<in> kvm'),
                ([True, False, False],
                 'capabilities:hypervisor_hostname', 'host1'),
                ([True, False, False], 'hw:maxphysaddr_bits', '46'),
                ([False, False, False], 'hw:maxphysaddr_bits', '47'),
                ([False, False, False], 'capabilities:free_ram_mb', 'much'),
                ([False, False, False], 'capabilities:none', '<in> x'),
                ([False, False, False], 'capabilities:none', ''),
                ([False, False, False], 'capabilities:', 'x'),
                ([False, False, False], 'capabilities:free_ram_mb', '>='),
                ([True, True, True], 'none', 'x'),
                ([True, True, True], 'availability_zone', 'x'),
                ([False, False, False], 'capabilities:traits', '<in> x'),
                ([False, False, False], 'capabilities:cell_builds', '0'),
                ([True, True, True], 'quota:free_ram_mb', '> 9'),
                ([True, True, True], '__class__', 'x')):
            self.assertVerdicts(expected, **{key: requirement})

    def test_escaped_json_key_is_found(self):
        hosts = builders.hosts(stats=[
            r'{"k\u00e9y": 1}', '{"k\u00e9y": 1}', r'{"k\"y": 1}', '{}'])

        for expected, name in (([True, True, False, False], 'k\u00e9y'),
                               ([False, False, True, False], 'k"y')):
            self.assertKeeps(
                expected, hosts, request(**{f'capabilities:{name}': '1'}))

    def test_all_extra_specs_must_be_met(self):
        self.assertVerdicts([False, True, False], free_ram_mb='>= 2048',
                            **{'capabilities:ssd': 'yes'})

    def test_flavor_without_capabilities_is_not_filtered(self):
        plugin = builders.plugin(self.plugin)

        for specs in ({}, {'hw:cpu_policy': 'dedicated'}):
            self.assertFalse(plugin.applies(request(**specs)))

    def test_bad_extra_spec_is_refused(self):
        for key, requirement in (
                ('capabilities:__class__', 'x'),
                ('capabilities:host:__class__', 'x'),
                ('capabilities:_anything', '<in> x'),
                ('capabilities:free_ram_mb', '>= nan'),
                ('capabilities:free_ram_mb', '>= many'),
                ('capabilities:free_ram_mb', 'x' * 1_000_000),
                ('hw:maxphysaddr_bits', 'many')):
            with self.subTest(key=key):
                error = self.assertRaises(
                    exception.InvalidField, builders.plugin(self.plugin).keep,
                    builders.hosts(2), request(**{key: requirement}))
                self.assertEqual(f'extra_specs.{key}', error.field)
                self.assertLess(len(str(error)), 200)

    @hypothesis.given(
        hosts=strategies.hosts(), specs=st.dictionaries(
            st.sampled_from(KEYS), st.sampled_from(
                ['>= 2', '= 3', '== 1', '!= 3', 'yes', 's== yes', 'qemu',
                 '<in> e', '<or> yes <or> 3', 'False', '1', '<= 4.0', '>=']),
            max_size=3))
    def test_column_verdict_equals_row_verdicts(self, hosts, specs):
        self.assertAgrees(passes, hosts, request(**specs))
