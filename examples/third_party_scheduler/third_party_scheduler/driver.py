# SPDX-License-Identifier: Apache-2.0
"""A driver that fills one host after the other."""

from oslo_config import cfg

from cellsched.scheduler.drivers import filter_scheduler
from cellsched.weighers import base


class PackingScheduler(filter_scheduler.FilterScheduler):
    """Select the fullest host that passes the configured filters.

    Hosts without servers stay empty as long as possible, so that they can be
    switched off. The configured weighers are not used.
    """

    group = 'packing_scheduler'

    @classmethod
    def opts(cls):
        return [cfg.IntOpt(
            'servers_max', default=0, min=0,
            help='Servers up to which a host is filled; a host with more is '
                 'selected last. With 0, hosts are filled completely.')]

    def make_pipeline(self):
        return filter_scheduler.pipeline_of(
            self.conf, weighed_by=[_Fullness(self.conf.packing_scheduler)])


class _Fullness(base.Weigher):
    """Weigh a host by the number of its servers; has no multiplier."""

    multiplier_name = ''

    def multiplier(self, hosts):
        return 1.0

    def score(self, hosts, request):
        servers, most = hosts['num_instances'], self.options.servers_max
        return servers * (servers < most) if most else servers
