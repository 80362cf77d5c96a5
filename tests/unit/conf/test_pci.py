# SPDX-License-Identifier: Apache-2.0
"""Aliases of PCI devices in a configuration."""

import json

from cellsched.conf import pci
from tests.unit.conf import test_loader

GPU = {'name': 'gpu', 'vendor_id': '10de', 'product_id': '1db4'}


def text(*aliases):
    """Return a configuration with these aliases."""
    return '[pci]\n' + ''.join(
        f'alias = {each if isinstance(each, str) else json.dumps(each)}\n'
        for each in aliases)


class TestAliases(test_loader.LoadingTestCase):

    def read(self, configuration):
        """Return the fields of each alias of a configuration."""
        return [pci.parse(each)
                for each in self.load(configuration).pci.alias]

    def test_aliases_have_their_fields(self):
        card = {**GPU, 'name': ' card ', 'device_type': 'type-PF',
                'numa_policy': 'socket', 'live_migratable': 'YES',
                'resource_class': 'CUSTOM_CARD', 'traits': 'a,b'}

        self.assertEqual([GPU, {**card, 'name': 'card'}],
                         self.read(text(GPU, card)))
        self.assertEqual([], self.read(''))

    def test_alias_may_have_several_lines(self):
        self.assertEqual([GPU], self.read(
            '[pci]\nalias = {\n  "name": "gpu",\n'
            '  "vendor_id": "10de",\n  "product_id": "1db4" }\n'))

    def test_older_name_of_the_option(self):
        self.assertEqual([GPU], self.read(
            f'[DEFAULT]\npci_alias = {json.dumps(GPU)}\n'))

    def test_equal_aliases_are_alternatives(self):
        for more in {}, {'numa_policy': 'legacy'}:
            other = {**GPU, 'product_id': '1db5', **more}
            self.assertEqual([GPU, other], self.read(text(GPU, other)))

    def test_bad_alias_is_refused_by_its_name_and_field(self):
        for alias, *expected in (
                ({**GPU, 'vendor_id': '10deX'}, "'gpu': vendor_id: '10deX'",
                 'four hexadecimal digits'),
                ({**GPU, 'product_id': 7604}, 'product_id: 7604'),
                ({**GPU, 'device_type': 'vdpa'}, 'device_type', 'type-PF'),
                ({**GPU, 'numa_policy': 'near'}, 'numa_policy', 'preferred'),
                ({**GPU, 'live_migratable': 'maybe'}, 'live_migratable'),
                ({**GPU, 'live_migratable': True}, 'live_migratable: True'),
                ({**GPU, 'traits': ['a']}, 'traits'),
                ({**GPU, 'traits': ''}, 'traits'),
                ({**GPU, 'resource_class': 'x' * 257}, 'resource_class'),
                ({**GPU, 'vendor': '10de'}, 'vendor: it is an unknown field'),
                ({**GPU, 'capability_type': 'pci'}, 'capability_type'),
                ({**GPU, 'name': ' '}, 'name'),
                ({'vendor_id': '10de', 'product_id': '1db4'},
                 'None: name: it is missing'),
                ('gpu:10de:1db4', 'a JSON object'), ('[1]', 'a JSON object'),
                ('[' * 9999, 'a JSON object'),
                ({'name': 'gpu', 'vendor_id': '10de'},
                 "[pci] alias 'gpu': product_id: it is missing"),
                ({'name': 'gpu', 'resource_class': 'CUSTOM_GPU'},
                 "[pci] alias 'gpu': vendor_id: it is missing")):
            with self.subTest(alias=str(alias)[:60]):
                refusal = self.refused(text(alias))
                for each in ('[pci] alias', *expected):
                    self.assertIn(each, refusal)

    def test_equal_aliases_must_agree(self):
        for field, value, other in (
                ('device_type', 'type-PF', 'type-VF'),
                ('numa_policy', 'required', 'preferred')):
            for first, second in (({field: value}, {field: other}),
                                  ({field: value}, {}), ({}, {field: value})):
                self.assertIn(
                    f"[pci] alias 'gpu': {field}: it differs",
                    self.refused(text({**GPU, **first}, {
                        **GPU, **second, 'product_id': '1db5'})))
