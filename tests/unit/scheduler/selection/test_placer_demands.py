# SPDX-License-Identifier: Apache-2.0
"""Requests that ask for what no stage reads, and are not placed."""

from cellsched import exception
from tests.unit.db import samples
from tests.unit.scheduler import schedulers
from tests.unit.scheduler import toys

#: What was placed once as if it asked for nothing special.
ASKED = [
    {'numa_topology': {'cells': []}},
    {'pci_requests': {'requests': [{}]}},
    {'requested_resources': [{'nova_object.name': 'Orbit',
                              'nova_object.data': {}}]},
    *({'extra_specs': {name: value}} for name, value in (
        ('hw:cpu_policy', 'dedicated'), ('hw:mem_page_size', 'large'),
        ('pci_passthrough:alias', 'a:1'), ('accel:device_profile', 'x'),
        ('hw:tpm_version', '2.0'), ('hw:mem_encryption', 'true'),
        ('hw:pmem', 'x'), ('os:secure_boot', 'required'),
        ('capabilities:x', 'y'))),
    {'image': {'hw_numa_nodes': 2}},
]


class TestDemands(schedulers.PlacingTestCase):

    def refusal(self, **wishes):
        return self.assertRaises(
            exception.NoValidHost, self.place, **wishes)

    def test_unread_demand_is_refused_and_not_claimed(self):
        for wishes in ASKED:
            self.assertIn('No enabled stage reads what is asked for: ',
                          str(self.refusal(**wishes)), wishes)

        self.assertEqual([], self.world.claims.batches)
        self.assertEqual(0, self.used('a1'))

    def test_class_without_enough_capacity_is_refused_by_name(self):
        for name, said, reason in (
                ('VCPU', '100000', 'too small in CPUs (by '),
                ('VGPU', '1', 'lack VGPU (by 1 VGPU)'),
                ('CUSTOM_BAREMETAL_GOLD', '1',
                 'lack CUSTOM_BAREMETAL_GOLD (by 1 ')):
            self.assertIn(reason, str(self.refusal(
                extra_specs={f'resources:{name}': said})))

        self.assertEqual([], self.world.claims.batches)

    def test_demand_read_by_a_filter_is_decided_by_the_filter(self):
        reader = toys.Filter(lambda hosts: hosts['host'] != 'a1')
        reader.reads = frozenset({'flavor.extra_specs.hw:numa_*'})
        for stages in ({'filters': [reader]}, {'first': [reader]}):
            self.restart(**stages)

            self.assertEqual([['a2']], schedulers.hosts(self.place(
                vcpus=1, extra_specs={
                    'hw:numa_nodes': '2', 'hw:numa_cpus.0': '0'})))

    def test_read_demand_does_not_hide_an_unread_demand(self):
        reader = toys.Filter(None)
        reader.reads = frozenset({'flavor.extra_specs.hw:numa_*'})
        self.restart(filters=[reader])

        error = self.refusal(extra_specs={'hw:numa_nodes': '2'},
                             numa_topology={'cells': []})

        self.assertIn('numa_topology', str(error))
        self.assertNotIn('hw:numa_nodes', str(error))

    def test_forced_request_with_an_unread_demand_is_refused(self):
        self.restart(first=schedulers.destinations())

        self.assertIn('hw:numa_nodes', str(self.refusal(
            extra_specs={'hw:numa_nodes': '2'}, force_hosts=['a1'])))

    def test_placed_instance_with_an_unread_demand_keeps_its_claim(self):
        uuids = samples.uuids(1)
        self.place(uuids=uuids)

        self.refusal(uuids=uuids, extra_specs={'hw:numa_nodes': '2'})

        self.assertEqual(4, self.used('a1'))

    def test_plan_with_an_unread_demand_has_the_reason(self):
        places, decision = self.plan(extra_specs={'hw:numa_nodes': '2'})

        self.assertEqual([], places)
        self.assertIn('hw:numa_nodes', decision.reason)
        self.assertEqual([], self.world.records)


class TestIgnored(schedulers.PlacingTestCase):

    def setUp(self):
        super().setUp()
        self.restart(ignores_demands=True)

    def test_ignored_demand_is_placed_with_a_warning(self):
        for wishes in ASKED:
            before = len(self.logs.output)

            self.assertEqual([['a1']], schedulers.hosts(
                self.place(**{**wishes, 'vcpus': 0})))

            self.assertEqual(1, self.logs.output[before:].count(
                'No enabled stage reads what is asked for'))

    def test_plan_ignores_the_demand_like_the_decision(self):
        places, decision = self.plan(
            alternates=0, extra_specs={'hw:numa_nodes': '2'})

        self.assertEqual([['a1']], schedulers.hosts(places))
        self.assertIsNone(decision.reason)

    def test_plain_request_is_no_warning(self):
        self.place()

        self.assertNotIn('No enabled stage', self.logs.output)
