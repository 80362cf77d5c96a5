# SPDX-License-Identifier: Apache-2.0
"""Filters and weighers in place of those that are configured."""

from cellsched.conf import loader
from cellsched.scheduler.drivers import filter_scheduler
from cellsched.testing import builders
from tests.unit import base


class TestPipeline(base.TestCase):

    def names(self, *args):
        path = self.temporary_directory() / 'conf'
        path.write_text('[filter_scheduler]\n'
                        'enabled_filters = ComputeFilter\n'
                        'weight_classes = RAMWeigher\n')
        made = filter_scheduler.pipeline_of(
            loader.load(files=[str(path)], dirs=[]), *args)
        return ([each.name for each in made.filters],
                [each.name for each in made.weighers])

    def test_option_packs_cells(self):
        request = builders.request(extra_specs={'hw:numa_nodes': '1'})
        for packs in False, True:
            path = self.temporary_directory() / 'conf'
            path.write_text(
                '[filter_scheduler]\nenabled_filters = NUMATopologyFilter\n'
                '[compute]\n'
                f'packing_host_numa_cells_allocation_strategy = {packs}\n')
            made = filter_scheduler.pipeline_of(
                loader.load(files=[str(path)], dirs=[]))
            self.assertIs(packs, made.hardware(request).packs)

    def test_other_plugins_can_be_named(self):
        self.assertEqual((['ComputeFilter'], ['RAMWeigher']), self.names())
        self.assertEqual((['IoOpsFilter'], ['RAMWeigher']),
                         self.names(['IoOpsFilter']))
        self.assertEqual((['ComputeFilter'], ['CPUWeigher']),
                         self.names(None, ['CPUWeigher']))
