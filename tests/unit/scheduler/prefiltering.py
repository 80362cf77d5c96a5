# SPDX-License-Identifier: Apache-2.0
"""Stages that come before the filters, made from options."""

from oslo_config import cfg

from cellsched.conf import scheduler
from cellsched.scheduler.decision import mandatory_stages
from cellsched.scheduler.decision import pipeline
from cellsched.testing import builders
from tests.unit import base
from tests.unit import strategies


class PrefilterTestCase(base.TestCase):

    def stages(self, **options):
        conf = cfg.ConfigOpts()
        conf.register_opts(scheduler.OPTS, group='scheduler')
        conf([], default_config_files=[], default_config_dirs=[])
        for name, value in options.items():
            conf.set_override(name, value, group='scheduler')
        return mandatory_stages.request_stages(conf.scheduler)

    def stage(self, kind, **options):
        """Return the stage of a kind."""
        [stage] = [stage for stage in self.stages(**options)
                   if type(stage) is kind]
        return stage

    def kept(self, hosts, request=None, **options):
        """Return the rows that are left, and by what others were rejected."""
        stages = self.stages(**options)
        request = request or builders.request()
        for stage in stages:
            # Verdicts are the same however many hosts are seen.
            self.assertEqual(
                strategies.kept_by_columns(stage, hosts, request),
                strategies.kept_of_some(stage, hosts, request))
        found = pipeline.Pipeline([], [], stages).candidates(hosts, request)
        return found.rows.tolist(), [
            each.by for each in found.rejections(request)]
