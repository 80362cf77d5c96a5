# SPDX-License-Identifier: Apache-2.0
"""Options of filters and weighers as a whole: ``[filter_scheduler]``."""

import copy

from oslo_config import cfg

GROUP = cfg.OptGroup('filter_scheduler', title='Filters and weighers')

#: In ``weight_classes``: every weigher that is installed.
ALL_WEIGHERS = ('all_weighers', 'nova.scheduler.weights.all_weighers')

#: In ``available_filters``: every filter that is installed.
ALL_FILTERS = ('all_filters', 'nova.scheduler.filters.all_filters')

OPTS = [
    cfg.MultiStrOpt('available_filters', default=[ALL_FILTERS[0]], help="""
Filters that ``enabled_filters`` may name.

``all_filters`` stands for every one that is installed as an entry point in
``cellsched.scheduler.filters``. A class that is none is named by its import
path, and in ``enabled_filters`` by its own name.
"""),
    cfg.ListOpt('enabled_filters', default=[
        'ComputeFilter', 'ComputeCapabilitiesFilter', 'ImagePropertiesFilter',
        'ServerGroupAntiAffinityFilter', 'ServerGroupAffinityFilter'], help="""
Filters that a host must pass, in this order.

``cellsched plugin list`` shows those that are installed. Put the ones that
reject most first, and those that look at one host after the other last. A
scheduler hint is accepted only if an enabled filter reads it.
"""),
    cfg.ListOpt('weight_classes', default=[ALL_WEIGHERS[0]], help="""
Weighers that rank the hosts that passed the filters.

Names are entry points in ``cellsched.scheduler.weighers`` or import paths;
``all_weighers`` stands for every one that is installed.
"""),
    cfg.IntOpt('host_subset_size', default=1, min=1, help="""
Of how many of the best hosts one is chosen by chance.

More than one lets several schedulers choose different hosts at a time.
"""),
    cfg.BoolOpt('shuffle_best_same_weighed_hosts', default=False, help="""
Choose by chance among hosts that share the greatest weight.

Otherwise it is the one that has been known for longest.
"""),
]


def register_opts(conf):
    # A group remembers what is set in it, so each configuration has its own.
    conf.register_group(copy.deepcopy(GROUP))
    conf.register_opts(OPTS, group=GROUP.name)


def filter_paths(conf):
    """Return the import paths of available filters, by the classes' names."""
    return {path.rpartition('.')[2]: path
            for path in conf.filter_scheduler.available_filters
            if path not in ALL_FILTERS}


def list_opts():
    return {GROUP: OPTS}
