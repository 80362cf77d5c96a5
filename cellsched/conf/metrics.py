# SPDX-License-Identifier: Apache-2.0
"""Options of what reads the metrics of hosts: ``[metrics]``."""

import copy
import math
from typing import Any

from oslo_config import cfg
from oslo_config import types

GROUP = cfg.OptGroup('metrics', title='Metrics of hosts')


class Ratio(types.String):
    """A name, as of a metric, with its ratio: ``name=ratio``.

    What is read is a pair of the name and a finite number.
    """

    def __init__(self) -> None:
        super().__init__(type_name='name=ratio value')

    def __call__(self, value: object) -> Any:
        name, _, text = str(value).partition('=')
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not name.strip() or not math.isfinite(number):
            raise ValueError(f'{value!r} is not a name with its ratio, '
                             'name=ratio')
        return name.strip(), number

    def __repr__(self) -> str:
        return 'Ratio'


OPTS = [
    cfg.FloatOpt('weight_multiplier', default=1.0, help="""
Multiplier of the weight that the metrics of a host give it.

A negative one prefers hosts with lower sums. Aggregates override it by the
metadata ``metrics_weight_multiplier``.

Related options:

* ``[filter_scheduler] weight_classes`` must name ``MetricsWeigher``.
"""),
    cfg.ListOpt('weight_setting', default=[], item_type=Ratio(), help="""
Metrics to weigh hosts by, each with its ratio: ``name1=1.0, name2=-1.3``.

The weight of a host is the sum of the values of its metrics, each multiplied
by its ratio. ``MetricsFilter`` rejects hosts that report not all of them.
"""),
    cfg.BoolOpt('required', default=True, help="""
Fail a request if a host that is weighed does not report all metrics.

Enable ``MetricsFilter`` so that such hosts are rejected before. Without it,
their weight is ``weight_of_unavailable``.
"""),
    cfg.FloatOpt('weight_of_unavailable', default=-10000.0, help="""
Weight of a host that does not report all metrics that have a ratio.

Related options:

* ``[metrics] required`` must be off.
"""),
]


def register_opts(conf):
    # A group remembers what is set in it, so each configuration has its own.
    conf.register_group(copy.deepcopy(GROUP))
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts():
    return {GROUP: OPTS}
