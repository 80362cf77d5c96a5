# SPDX-License-Identifier: Apache-2.0
"""A mistyped value is refused, and does not count as absent."""

from cellsched.db.api import aggregates
from cellsched.db.api import flavors
from cellsched import exception
from cellsched.standalone import deployment
from tests.functional import base

#: Mistyped values of traits.
TRAITS = 'Required', 'require', 'requierd', 'true', 'in:x'

#: Mistyped values of other keys of flavors.
SPECS = {
    'trait1:CUSTOM_SSD': 'Forbidden', 'trait:CUSTOM_ssd': 'required',
    'hw:mem_encryption': 'ture', 'hw:cpu_realtime': 'yess',
    'hw:virtio_packed_ring': 'maybe', 'hw:cpu_policy': 'dedicate',
    'os:secure_boot': 'Required', 'hw:sound_model': 'virtoi',
    'hw:pci_numa_affinity_policy': 'sockets', 'group_policy': 'isolated',
    'hw:emulator_threads_policy': 'isolates', 'hw:numa_nodes': 'two',
    'hw:watchdog_action': 'rest', 'capabilities:free_ram_mb': '>= many',
    'quota:cpu_shares': '1k', 'hide_hypervisor_id': 'hidden',
}

HINTS = {
    'different_host': ['server1'], 'same_host': ['server1'],
    'query': ['[free_ram_mb]'], 'cidr': ['24'],
    'build_near_host_ip': ['10.0.0'], 'spread': ['zone'],
    'max_skew': ['one'],
}

METADATA = {
    'trait:CUSTOM_SSD': 'Required', 'cpu_allocation_ratio': '1,5',
    'max_instances_per_host': 'ten', 'max_io_ops_per_host': '-1',
    'ram_weight_multiplier': 'high',
}


class TestMistypedValues(base.TestCase):

    def setUp(self):
        super().setUp()
        self.deploy({'cell1': [
            # The larger host comes first, and lacks the trait.
            deployment.DeployedHost('plain', memory_mb=65536),
            deployment.DeployedHost('ssd', behaviour={
                'traits': 'CUSTOM_SSD'})]}, {
                    'licensed': {}}, filter_scheduler={
                        'enabled_filters': [
                            'ComputeFilter', 'DifferentHostFilter',
                            'SameHostFilter', 'JsonFilter',
                            'SimpleCIDRAffinityFilter',
                            'ServerGroupSpreadFilter']})

    def store(self, specs):
        """Store extra specs of the flavor small, as another program does."""
        api = self.world.api
        flavor = api.flavors.get(base.ADMIN, 'small')
        with api.parts.database.writer() as connection:
            flavors.set_extra_specs(
                connection, flavor.id, {
                    **dict.fromkeys(flavor.extra_specs), **specs},
                base.CLOCK.now())

    def test_invalid_values_are_refused_by_their_key(self):
        self.assertRefusesValuesOfFlavors()
        self.assertRefusesKeysOfFlavors()
        self.assertRefusesHints()
        self.assertRefusesMetadata()

    def test_stored_values_refuse_the_request(self):
        self.assertRefusesStoredFlavors()
        self.assertClosesHostsOfStoredAggregates()

    def assertRefusesValuesOfFlavors(self):
        pairs = [*(('trait:CUSTOM_SSD', value) for value in TRAITS),
                 *SPECS.items()]
        for key, value in pairs:
            with self.subTest(key=key, value=value):
                error = self.assertRaises(
                    exception.InvalidField,
                    self.world.api.flavors.set_extra_specs, base.ADMIN,
                    'small', {key: value})

                self.assertEqual(f'extra_specs.{key}', error.field)
        self.assertEqual({}, self.world.api.flavors.get(
            base.ADMIN, 'small').extra_specs)

    def assertRefusesKeysOfFlavors(self):
        for key in 'hw:cpu_polcy', 'quota:cpu_share', 'hw:numa_cpus.a':
            error = self.assertRaises(
                exception.InvalidField,
                self.world.api.flavors.set_extra_specs, base.ADMIN, 'small',
                {key: 'required'})

            self.assertEqual(f'extra_specs.{key}', error.field)

    def assertRefusesStoredFlavors(self):
        for key, value in (
                ('trait:CUSTOM_SSD', 'Required'), ('trait:X', 'forbidden'),
                ('hw:mem_encryption', 'ture'), ('group_policy', 'isolated')):
            with self.subTest(key=key):
                self.store({key: value})

                [found] = self.built()

                self.assertEqual('ERROR', found.status)
                self.assertIn(f'extra_specs.{key}', found.reason)

    def assertRefusesHints(self):
        for hint, values in HINTS.items():
            with self.subTest(hint=hint):
                error = self.assertRaises(
                    exception.InvalidField, self.create, hints={hint: values})

                self.assertEqual(f'hints.{hint}', error.field)
        self.assertEqual([], self.listed())

    def assertRefusesMetadata(self):
        for key, value in METADATA.items():
            with self.subTest(key=key):
                for change, name in (
                        (self.world.api.aggregates.set_metadata, 'licensed'),
                        (self.world.api.aggregates.create, 'new')):
                    error = self.assertRaises(
                        exception.InvalidField, change, base.ADMIN, name,
                        {key: value})

                    self.assertEqual(f'metadata.{key}', error.field)

    def assertClosesHostsOfStoredAggregates(self):
        self.store({})
        api = self.world.api
        api.parts.discovery.discover()
        api.aggregates.add_hosts(base.ADMIN, 'licensed', ['plain'])
        number = api.aggregates.get(base.ADMIN, 'licensed').id
        with api.parts.database.writer() as connection:
            aggregates.set_metadata(
                connection, number, {'trait:CUSTOM_SSD': 'Required'},
                base.CLOCK.now())

        [found] = self.built()

        self.assertEqual('ssd', found.host)
        api.aggregates.add_hosts(base.ADMIN, 'licensed', ['ssd'])
        [found] = self.built()
        self.assertEqual('ERROR', found.status)
        self.assertIn('trait:CUSTOM_SSD', found.reason)
