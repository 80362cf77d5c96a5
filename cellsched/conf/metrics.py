# SPDX-License-Identifier: Apache-2.0
"""Options of the metrics of hosts: ``[metrics]``."""

import math
from typing import Any

from oslo_config import cfg
from oslo_config import types

GROUP = cfg.OptGroup('metrics', title='Metrics of hosts')


class Ratio(types.String):
    """The type of an option with a name and a ratio: ``name=ratio``.

    The value is a pair of the name and a finite number. A pair stays as it is.
    """

    def __init__(self) -> None:
        super().__init__(type_name='name=ratio value')

    def __call__(self, value: object) -> Any:
        if isinstance(value, tuple):
            name, number = value
            return str(name), float(number)
        name, _, text = str(value).partition('=')
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not name.strip() or not math.isfinite(number):
            raise ValueError(f'{value!a:.60} is not valid; expected '
                             'name=ratio')
        return name.strip(), number

    def __repr__(self) -> str:
        return 'Ratio'


OPTS = [
    cfg.FloatOpt('weight_multiplier', default=1.0, mutable=True, help="""
Multiplier of the weight of the metrics of a host.

A negative value prefers hosts with lower sums. An aggregate overrides it with
the metadata ``metrics_weight_multiplier``.

Related options:

* ``[filter_scheduler] weight_classes`` must name ``MetricsWeigher``.
"""),
    cfg.ListOpt('weight_setting', default=[], item_type=Ratio(), mutable=True,
                help="""
Metrics to weigh hosts by, each with its ratio: ``name1=1.0, name2=-1.3``.

The weight of a host is the sum of the values of its metrics, each multiplied
by its ratio. ``MetricsFilter`` rejects hosts that do not report all metrics.
"""),
    cfg.BoolOpt('required', default=True, mutable=True, help="""
Fail a request if a weighed host does not report all metrics.

Enable ``MetricsFilter`` to reject these hosts before. If this is off, their
weight is ``weight_of_unavailable``.
"""),
    cfg.FloatOpt('weight_of_unavailable', default=-10000.0, mutable=True,
                 help="""
Weight of a host that does not report all metrics with a ratio.

Related options:

* ``[metrics] required`` must be off.
"""),
]
