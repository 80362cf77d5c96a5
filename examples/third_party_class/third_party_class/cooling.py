# SPDX-License-Identifier: Apache-2.0
"""Keep hosts that take in cool air."""

from oslo_config import cfg

from cellsched.filters import base
from cellsched.hosts import columns

#: Agents report the metric; a host that does not is as hot as can be.
COLUMNS = (columns.Column(
    'inlet_celsius', 'float64', 1000.0, 'temperature of the air that the host '
    'takes in, °C', source='metrics.inlet.celsius'),)


class CoolHostFilter(base.Filter):
    """Reject a host that takes in hot air, or does not say how hot it is."""

    reason = 'takes in hot air'
    local = True
    run_filter_once_per_request = True
    group = 'cooling'

    @classmethod
    def opts(cls):
        return [cfg.FloatOpt('inlet_celsius_max', default=35.0, help="""
The highest temperature of the air that a host takes in, in °C.
""")]

    def keep(self, hosts, request):
        return hosts['inlet_celsius'] <= self.options.inlet_celsius_max

    def shortfall(self, hosts, request):
        return hosts['inlet_celsius'] - self.options.inlet_celsius_max, '°C'
