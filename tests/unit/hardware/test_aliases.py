# SPDX-License-Identifier: Apache-2.0
import json
import unittest

from cellsched import exception
from cellsched.hardware import aliases

GPU = {'name': 'gpu', 'vendor_id': '10de', 'product_id': '1db4'}

CARD = {'name': 'card', 'vendor_id': '8086', 'product_id': '0443',
        'device_type': 'type-PF', 'numa_policy': 'required',
        'live_migratable': 'Yes'}


def _by_name(*configured):
    return aliases.by_name(map(json.dumps, configured))


def _requests(alias, properties=None, **specs):
    known = _by_name(GPU, CARD, {**GPU, 'product_id': '1db5'})
    return aliases.requests(
        known, {**specs, **({} if alias is None else {aliases.ALIAS: alias})},
        properties or {})


def _policies(flavor, image=None):
    return ({} if flavor is None else {
        'hw:pci_numa_affinity_policy': flavor}, {} if image is None else {
            'hw_pci_numa_affinity_policy': image})


class AliasesTest(unittest.TestCase):
    def test_properties_are_named_as_in_pools(self):
        self.assertEqual({
            'card': aliases.Alias('required', ({
                'vendor_id': '8086', 'product_id': '0443',
                'dev_type': 'type-PF', 'live_migratable': 'true'},))},
            _by_name(CARD))

    def test_equal_aliases_are_alternatives(self):
        [alias] = _by_name(GPU, {
            **GPU, 'product_id': '1db5', 'live_migratable': 'off'}).values()
        self.assertEqual(aliases.Alias('legacy', (
            {'vendor_id': '10de', 'product_id': '1db4'},
            {'vendor_id': '10de', 'product_id': '1db5',
             'live_migratable': 'false'})), alias)

    def test_bad_alias_is_refused(self):
        with self.assertRaisesRegex(
                exception.ConfigurationInvalid, "alias 'gpu': vendor_id: "):
            _by_name({**GPU, 'vendor_id': 'x'})


class RequestsTest(unittest.TestCase):
    def test_devices_follow_the_order_of_aliases(self):
        gpu, card, again = _requests('gpu:2, card:1,gpu:1')
        self.assertEqual((2, 'gpu', 2, 'legacy'), (
            gpu.count, gpu.alias, len(gpu.specs), gpu.affinity))
        self.assertEqual((1, 'card', 'required'), (
            card.count, card.alias, card.affinity))
        self.assertEqual((1, gpu.specs), (again.count, again.specs))
        self.assertEqual(3, len({each.request_id for each in (
            gpu, card, again)}))

    def test_equal_flavors_have_equal_requests(self):
        self.assertEqual(_requests('gpu:2,card:1'), _requests('gpu:2,card:1'))

    def test_flavor_without_devices(self):
        self.assertEqual((), _requests(None))

    def test_policy_of_the_flavor_or_the_image_overrides_the_alias(self):
        for flavor, image in (('socket', None), (None, 'socket'),
                              ('socket', 'socket')):
            specs, properties = _policies(flavor, image)
            [request] = _requests('card:1', properties, **specs)
            self.assertEqual('socket', request.affinity)

    def test_unknown_alias_has_the_text_of_nova(self):
        with self.assertRaisesRegex(
                exception.HardwareRequestInvalid,
                '^PCI alias tpu is not defined$') as caught:
            _requests('gpu:1,tpu:1')
        self.assertEqual('PciRequestAliasNotDefined', caught.exception.error)

    def test_value_of_another_form_is_refused_by_the_extra_spec(self):
        for value in ('', 'gpu', 'gpu:', 'gpu:x', ':1', 'gpu:1,', 'gpu:-1',
                      'gpu:1.5', 'a:b:1', 'gpu:' + '9' * 99):
            with self.subTest(value), self.assertRaises(
                    exception.InvalidField) as caught:
                _requests(value)
            self.assertEqual(
                'extra_specs.pci_passthrough:alias', caught.exception.field)
            self.assertIn('gpu:1,card:2', str(caught.exception))


class AffinityTest(unittest.TestCase):
    def test_different_policies_have_the_text_of_nova(self):
        with self.assertRaisesRegex(
                exception.HardwareRequestInvalid,
                "Image property 'hw_pci_numa_affinity_policy' is not "
                'permitted to override') as caught:
            aliases.affinity(*_policies('socket', 'required'))
        self.assertEqual(
            'ImagePCINUMAPolicyForbidden', caught.exception.error)

    def test_unknown_policy_has_the_text_of_nova(self):
        for policies in _policies('near'), _policies(None, 'near'):
            with self.assertRaisesRegex(
                    exception.HardwareRequestInvalid,
                    '^Invalid PCI NUMA affinity configured: near$'):
                aliases.affinity(*policies)

    def test_no_policy(self):
        for policies in _policies(None), _policies('', ''):
            self.assertIsNone(aliases.affinity(*policies))
