# SPDX-License-Identifier: Apache-2.0
"""Options of filters and weighers as a whole: ``[filter_scheduler]``."""

import math
from typing import Any

from oslo_config import cfg
from oslo_config import types

GROUP = cfg.OptGroup('filter_scheduler', title='Filters and weighers')

#: In ``weight_classes``: every weigher that is installed.
ALL_WEIGHERS = ('all_weighers', 'nova.scheduler.weights.all_weighers')

#: In ``available_filters``: every filter that is installed.
ALL_FILTERS = ('all_filters', 'nova.scheduler.filters.all_filters')


class FlavorShare(types.String):
    """The type of an option with a size of servers and its share.

    ``VCPUS:MEMORY_MB=SHARE``, or ``VCPUS:MEMORY_MB:DISK_GB=SHARE``. The value
    is a tuple of the four numbers.
    """

    def __init__(self) -> None:
        super().__init__(type_name='vcpus:memory=share value')

    def __call__(self, value: object) -> Any:
        if isinstance(value, tuple):
            return value
        size, _, text = str(value).partition('=')
        try:
            amounts = [int(each) for each in size.split(':')]
            share = float(text)
        except ValueError:
            amounts, share = [], math.nan
        if (len(amounts) not in (2, 3) or min(amounts) < 0
                or not any(amounts) or not 0 < share < math.inf):
            raise ValueError(
                f'{value!a:.60} is not valid; expected '
                'VCPUS:MEMORY_MB=SHARE or VCPUS:MEMORY_MB:DISK_GB=SHARE, '
                'with a share above 0')
        return (*amounts, *[0] * (3 - len(amounts)), share)

    def __repr__(self) -> str:
        return 'FlavorShare'


OPTS = [
    cfg.MultiStrOpt('available_filters', default=[ALL_FILTERS[0]], help="""
Filters that ``enabled_filters`` may name.

``all_filters`` means all installed entry points in
``cellsched.scheduler.filters``. Another class is given by its import path
here, and by the name of the class in ``enabled_filters``.
"""),
    cfg.ListOpt('enabled_filters', default=[
        'ComputeFilter', 'ComputeCapabilitiesFilter', 'ImagePropertiesFilter',
        'ServerGroupAntiAffinityFilter', 'ServerGroupAffinityFilter'], help="""
Filters that a host must pass, in this order.

``cellsched plugin list`` shows the installed filters. Put filters that reject
many hosts first, and filters that check one host after the other last. A
scheduler hint is accepted only if an enabled filter supports it.
"""),
    cfg.ListOpt('weight_classes', default=[ALL_WEIGHERS[0]], help="""
Weighers that rank the hosts that passed the filters.

Names are entry points in ``cellsched.scheduler.weighers`` or import paths;
``all_weighers`` means all installed weighers.
"""),
    cfg.IntOpt('host_subset_size', default=1, min=1, mutable=True, help="""
Number of the best hosts from which one is selected at random.

With more than one, concurrent schedulers select different hosts, but not
always the best one.

Related options:

* ``refused_host_subset_size`` and ``evacuation_host_subset_size``, for retries
  and evacuations
"""),
    cfg.IntOpt('refused_host_subset_size', default=32, min=1, mutable=True,
               help="""
Largest number of hosts from which one is selected at random in a retry.

If another scheduler claims the selected host first, the scheduler selects
again: from 4 hosts, from 16 hosts in the next retry, and from this many after
that. Schedulers that lost the same race know the same hosts, and would
otherwise conflict again. With 1 the best host is selected again, so that many
schedulers on a nearly full cloud reject requests that would fit.

A host whose weight is more than 10 below the best, such as one with failed
builds, is not selected at random.

Related options:

* ``host_subset_size``, the smallest number of hosts
* ``[scheduler] claim_attempts``
"""),
    cfg.IntOpt('evacuation_host_subset_size', default=10, min=1, mutable=True,
               help="""
Number of the best hosts from which one is selected for an evacuation.

A request counts as an evacuation if it excludes a host that is down or
disabled. Many servers leave that host at the same time. With 1, each gets the
best host, which may be the same one for many servers: if weights prefer nearly
full hosts, or several schedulers select concurrently.

A host whose weight is more than 10 below the best, such as one with failed
builds, is not selected at random.

Related options:

* ``host_subset_size``, the smallest number of hosts
"""),
    cfg.BoolOpt('shuffle_best_same_weighed_hosts', default=False, mutable=True,
                help="""
Select at random among the hosts with the greatest weight.

Related options:

* ``rotate_best_same_weighed_hosts``, which costs less
"""),
    cfg.BoolOpt('rotate_best_same_weighed_hosts', default=True, mutable=True,
                help="""
Let each scheduler prefer another one of the hosts with the greatest weight.

Each process searches for the best host from its own random position in the
host table. Otherwise all processes select the host that has been known for the
longest time, and conflict.

Related options:

* ``shuffle_best_same_weighed_hosts``
"""),
]


def filter_paths(conf):
    """Return the import paths of available filters, by the classes' names."""
    return {path.rpartition('.')[2]: path
            for path in conf.filter_scheduler.available_filters
            if path not in ALL_FILTERS}
