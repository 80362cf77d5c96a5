# SPDX-License-Identifier: Apache-2.0
"""Options of the scheduler service: ``[scheduler]``."""

import copy

from oslo_config import cfg

GROUP = cfg.OptGroup('scheduler', title='Scheduler service')

OPTS = [
    cfg.StrOpt('driver', default='filter_scheduler', help="""
Scheduler driver to run.

Names are entry points in ``cellsched.scheduler.drivers``; ``cellsched plugin
list`` shows those that are installed.
"""),
    cfg.IntOpt('max_attempts', default=3, min=1, help="""
Hosts to offer for each instance: the chosen one and its alternates.

A build that fails on the chosen host is tried on the alternates, in the same
cell, before the instance goes to ERROR.
"""),
    cfg.IntOpt('workers', min=1, help="""
Processes of the scheduler service; unset, one for each CPU.

Each keeps its own table of hosts; the claim store settles their races.
"""),
    cfg.IntOpt('claim_attempts', default=10, min=1, help="""
Times to choose for one request when other schedulers take the room.

Then the request ends with ``NoValidHost``, which says how many hosts were lost
to others.

Related options:

* ``[filter_scheduler] refused_host_subset_size``
"""),
    cfg.IntOpt('max_placement_results', default=1000, min=1, help="""
Hosts with room that ``provider_scheduler`` has the claim store find at most.

Where there are more, it decides among so many of them, chosen by chance, and
among all hosts if none of these does. A request costs in proportion to it.
Other drivers do not read it.

Related options:

* ``driver``
"""),
    cfg.FloatOpt('refresh_interval', default=1.0, min=0.0, help="""
Seconds between readings of what changed in the cells and the claim store.

A request that finds no host makes the scheduler read at once. With zero it
reads for each request.
"""),
    cfg.FloatOpt('full_refresh_interval', default=300.0, min=0.0, help="""
Seconds between readings of everything in the cells.

What the services of this project write is followed as it changes. Whoever else
writes hosts to the cells' databases, such as Nova's own compute service, is
seen only by reading everything.
"""),
    cfg.IntOpt('discover_hosts_in_cells_interval', default=0, min=-1, help="""
Seconds between discoveries of new hosts, which maps them to their cells.

With zero each scheduler maps a host as soon as it sees it, within
``refresh_interval``. With more, one of the schedulers does it for all, in this
interval and when it starts; another one takes over when that has been silent
for one and a half intervals. With -1 schedulers map none: agents of this
project map their own host where they reach the API database, and
``cellsched-manage cell_v2 discover_hosts`` maps all. A host gets no servers
before it is mapped.

Give all schedulers the same value.

Related options:

* ``refresh_interval``
"""),
    cfg.FloatOpt('stale_cell_timeout', default=30.0, min=0.0, help="""
Seconds of silence after which the hosts of a cell get no more servers.

Until then a cell that does not answer is decided on as it was last known. Keep
it below ``[DEFAULT] service_down_time``: a host whose reports cannot be read
seems to be down.
"""),
    cfg.FloatOpt('cell_failure_half_life', default=300.0, min=1.0, help="""
Seconds in which half of a cell's failures are forgotten.

Failed builds and failed readings of its database count; see
``CellFailureWeigher``.
"""),
    cfg.FloatOpt('slow_plugin_seconds', default=1.0, min=0.0, help="""
Seconds that a filter or a weigher may take in the decision on one request.

One that takes longer is named in the log, in a warning with the request's id.
A decision keeps others of its process waiting, so a slow plug-in slows down
all requests.
"""),
    cfg.IntOpt('decision_retention', default=3600, min=0, help="""
Seconds for which decisions are kept for ``cellsched explain``; zero for none.
"""),
    cfg.BoolOpt('limit_tenants_to_placement_aggregate', default=False, help="""
Keep projects in the host aggregates that are theirs.

An aggregate is a project's, if its metadata has the project's id for a key
that begins with ``filter_tenant_id``.
"""),
    cfg.BoolOpt('placement_aggregate_required_for_tenants', default=False,
                help="""
Refuse projects that have no host aggregate.

Related options:

* ``limit_tenants_to_placement_aggregate`` must be set.
"""),
    cfg.BoolOpt('enable_isolated_aggregate_filtering', default=False, help="""
Keep hosts for servers that need what they can do.

The hosts of an aggregate whose metadata has ``trait:NAME`` as ``required``
take only servers whose flavor or image requires all those traits.
"""),
    cfg.BoolOpt('query_placement_for_image_type_support', default=False,
                help="""
Choose only hosts that have the trait of the image's disk format.

It is named ``COMPUTE_IMAGE_TYPE_`` and the format, such as ``QCOW2``. Servers
that boot from a volume, and formats that have no trait, are not restricted.
"""),
    cfg.BoolOpt('query_placement_for_routed_network_aggregates',
                default=False, help="""
Choose only hosts that the segments of the requested routed networks reach.

The network plug-in says in which host aggregates these are; one that knows
nothing of segments restricts no request.

Related options:

* ``[DEFAULT] network_driver``
"""),
    cfg.BoolOpt('image_metadata_prefilter', default=False, help="""
Choose only hosts that have the traits of the devices that an image names.

Properties of the image such as ``hw_disk_bus`` and ``hw_vif_model`` become
traits such as ``COMPUTE_STORAGE_BUS_SCSI``. The agents have to report these.
"""),
    cfg.StrOpt('unmet_demands', default='refuse',
               choices=[
                   ('refuse', 'end the request with ``NoValidHost``, which '
                              'names them'),
                   ('ignore', 'place it as if it did not ask for them, and '
                              'log a warning')],
               help="""
What becomes of a request that asks for what no enabled stage reads.

A NUMA topology, a PCI device or what else nothing here looks at would
otherwise be promised and not given: the server would run where it must not.
Filters declare what they read; the demands that there are, and who reads
them, are listed in the reference.

Related options:

* ``[filter_scheduler] enabled_filters``
"""),
    cfg.StrOpt('unknown_hints', default='refuse',
               choices=[
                   ('refuse', 'end the request with an error that names the '
                              'hint'),
                   ('ignore', 'pass over them, as Nova does')],
               help="""
What becomes of a request with scheduler hints that no enabled filter reads.

Users write hints, so one that nothing reads is mostly a mistake of theirs. To
ignore them is for callers that keep hints with their servers and send them
again, such as Nova's. A hint whose name begins with ``_`` is refused in any
case. API services and schedulers read this option.

Related options:

* ``[filter_scheduler] enabled_filters``
"""),
    cfg.IntOpt('max_instances_per_request', default=1000, min=1, help="""
Instances that one request may ask for.
"""),
    cfg.IntOpt('max_names_per_request', default=1000, min=1, help="""
Hints that one request may have, and extra specs, and image properties.
"""),
    cfg.IntOpt('max_values_per_list', default=100_000, min=1, help="""
Hosts, group members or aggregates that one list of a request may name.
"""),
    cfg.StrOpt('remote_exceptions', default='cellsched',
               choices=[
                   ('cellsched', 'as those of ``cellsched.exception``'),
                   ('nova', 'as those of ``nova.exception``: '
                            '``NoValidHost``, also for what is refused, and '
                            '``MaxRetriesExceeded``')],
               help="""
The names under which callers get errors.

A caller makes an error anew if it allows the module that the error is said to
come from. Services of Nova's, and what is like them, allow
``nova.exception``; the conductors of this project allow
``cellsched.exception``.
"""),
]


def register_opts(conf):
    # A group remembers what is set in it, so each configuration has its own.
    conf.register_group(copy.deepcopy(GROUP))
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts():
    return {GROUP: OPTS}
