# SPDX-License-Identifier: Apache-2.0
"""Options of filters and weighers as a whole: ``[filter_scheduler]``."""

import copy

from oslo_config import cfg

GROUP = cfg.OptGroup('filter_scheduler', title='Filters and weighers')

#: In ``weight_classes``: every weigher that is installed.
ALL_WEIGHERS = 'all_weighers'

OPTS = [
    cfg.ListOpt('enabled_filters',
                default=['AvailabilityZoneFilter', 'ComputeFilter'], help="""
Filters that a host must pass, in this order.

Names are entry points in ``cellsched.scheduler.filters``; ``cellsched plugin
list`` shows those that are installed. Put the ones that reject most first. A
scheduler hint is accepted only if an enabled filter reads it.
"""),
    cfg.ListOpt('weight_classes', default=[ALL_WEIGHERS], help="""
Weighers that rank the hosts that passed the filters.

Names are entry points in ``cellsched.scheduler.weighers``; ``all_weighers``
stands for every one that is installed.
"""),
]


def register_opts(conf):
    # A group remembers what is set in it, so each configuration has its own.
    conf.register_group(copy.deepcopy(GROUP))
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts():
    return {GROUP: OPTS}
