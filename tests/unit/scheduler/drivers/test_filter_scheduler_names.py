# SPDX-License-Identifier: Apache-2.0
"""Filters and weighers in place of those that are configured."""

from cellsched.conf import loader
from cellsched.scheduler.drivers import filter_scheduler
from tests.unit import base


class TestPipeline(base.TestCase):

    def names(self, *args):
        path = self.temporary_directory() / 'conf'
        path.write_text('[filter_scheduler]\n'
                        'enabled_filters = ComputeFilter\n'
                        'weight_classes = RAMWeigher\n')
        made = filter_scheduler.pipeline_of(
            loader.load(files=[str(path)], dirs=[]), *args)
        return ([each.name for each in made._filters],
                [each.name for each in made._weighers])

    def test_configured_plugins_are_the_default(self):
        self.assertEqual((['ComputeFilter'], ['RAMWeigher']), self.names())

    def test_other_plugins_can_be_named(self):
        self.assertEqual((['IoOpsFilter'], ['RAMWeigher']),
                         self.names(['IoOpsFilter']))
        self.assertEqual((['ComputeFilter'], ['CPUWeigher']),
                         self.names(None, ['CPUWeigher']))
