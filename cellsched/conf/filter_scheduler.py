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

More than one lets several schedulers choose different hosts at a time, at the
price of hosts that are not the best.

Related options:

* ``refused_host_subset_size`` and ``evacuation_host_subset_size``, where more
  than the best is chosen anyway
"""),
    cfg.IntOpt('refused_host_subset_size', default=32, min=1, help="""
Of how many of the best hosts one is chosen by chance at most, once refused.

Where another scheduler took the room of what was chosen, the choice is made
again: of 4 hosts, of 16 after the next refusal, and of this many from the
third on. Who lost to the same scheduler knows the same and would choose the
same again. With 1 the best is chosen again, so that many schedulers on a cloud
that is nearly full refuse requests for which there is room.

A host that weighs over 10 less than the best is not chosen by chance, as one
of failed builds.

Related options:

* ``host_subset_size``, of how many one is chosen in any case
* ``[scheduler] claim_attempts``
"""),
    cfg.IntOpt('evacuation_host_subset_size', default=10, min=1, help="""
Of how many of the best hosts one is chosen by chance for an evacuation.

An evacuation is a request that avoids a host that is down or disabled: a
server is to leave it, and others with it. With 1 each goes to the best host,
and where weights prefer hosts that are nearly full, or several schedulers
choose at a time, that is the same one for many of them.

A host that weighs over 10 less than the best is not chosen by chance, as one
of failed builds.

Related options:

* ``host_subset_size``, of how many one is chosen in any case
"""),
    cfg.BoolOpt('shuffle_best_same_weighed_hosts', default=False, help="""
Choose by chance among hosts that share the greatest weight.

Related options:

* ``rotate_best_same_weighed_hosts``, which costs less
"""),
    cfg.BoolOpt('rotate_best_same_weighed_hosts', default=True, help="""
Have each scheduler prefer others of the hosts that share the greatest weight.

Each process begins to look for the best host at another place of its table, by
chance, and always at the same one. Otherwise it is the host that has been
known for longest, for all processes alike, and they race for it.

Related options:

* ``shuffle_best_same_weighed_hosts``
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
