# SPDX-License-Identifier: Apache-2.0
"""PciPassthroughFilter."""

from cellsched import exception
from cellsched.filters import pci_passthrough
from cellsched.hardware import devices
from cellsched.hardware import documents
from cellsched.testing import builders
from cellsched.testing.suite import filters
from tests.unit import base
from tests.unit.filters import cells


class TestPciPassthroughFilter(filters.FilterSuite, base.TestCase):

    plugin = pci_passthrough.PciPassthroughFilter

    def hosts(self):
        return builders.hosts(device_pools=[
            (), devices.pools([cells.pool(1), cells.pool(1, 1)]),
            devices.pools([cells.pool(3)])])

    def test_host_needs_all_devices(self):
        self.assertKeeps([False, True, True], self.hosts(), builders.request(
            pci_requests=cells.requested(2)))

    def test_two_requests_do_not_share_a_device(self):
        self.assertKeeps([False, False, True], self.hosts(), builders.request(
            pci_requests=cells.requested(2, 1)))

    def test_request_without_devices_may_go_anywhere(self):
        self.assertFalse(builders.plugin(self.plugin).applies(
            builders.request(pci_requests=cells.requested())))

    def test_alias_without_requests_is_refused(self):
        request = builders.request(extra_specs={
            'pci_passthrough:alias': 'gpu:1'})

        with self.assertRaisesRegex(exception.InvalidField, 'pci_requests'):
            builders.plugin(self.plugin).applies(request)

    def reasons(self, pci_requests):
        return [(text, mask.tolist(), missing and missing[0].tolist())
                for text, mask, missing in builders.plugin(
                    self.plugin).reasons(self.hosts(), builders.request(
                        pci_requests=pci_requests))]

    def test_reason_names_the_alias_and_the_missing_number(self):
        self.assertEqual(
            [('lacks 4 PCI devices of alias gpu', [True] * 3, [4, 2, 1])],
            self.reasons(cells.requested(4)))

    def test_host_with_enough_devices_for_each_request_has_a_reason(self):
        # Requests that differ are not taken as one.
        requests = documents.written_requests([devices.DeviceRequest(
            2, ({'vendor_id': '10de'},), 'gpu', affinity=affinity)
            for affinity in (None, devices.PREFERRED)])

        self.assertEqual(
            [('lacks 2 PCI devices of alias gpu', [True, False, False], [2]),
             ('lacks PCI devices for all requests together',
              [False, True, True], None)], self.reasons(requests))
