# SPDX-License-Identifier: Apache-2.0
"""Keep hosts whose inlet air is cool."""

from oslo_config import cfg

from cellsched.filters import base
from cellsched.hosts import columns

#: Agents report the metric. The default rejects hosts that do not report it.
COLUMNS = (columns.Column(
    'inlet_celsius', 'float64', 1000.0, 'temperature of the air that the host '
    'takes in, °C', source='metrics.inlet.celsius'),)


class CoolHostFilter(base.Filter):
    """Reject a host whose inlet air is too hot or has no known temperature."""

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
