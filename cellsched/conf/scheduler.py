# SPDX-License-Identifier: Apache-2.0
"""Options of the scheduler service: ``[scheduler]``."""

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

Each has its own table of hosts, and the claim store resolves conflicts.
"""),
    cfg.IntOpt('claim_attempts', default=10, min=1, help="""
Selections for one request while other schedulers claim the selected hosts.

After that the request fails with ``NoValidHost``, which has the number of
hosts that other schedulers claimed first.

Related options:

* ``[filter_scheduler] refused_host_subset_size``
"""),
    cfg.IntOpt('max_placement_results', default=1000, min=1, help="""
Largest number of hosts that ``provider_scheduler`` gets from the claim store.

If more hosts have capacity, the driver decides among a random selection of
them, and among all hosts if none of these passes. The cost of a request grows
with this number. Other drivers do not use it.

Related options:

* ``driver``
"""),
    cfg.FloatOpt('refresh_interval', default=1.0, min=0.0, help="""
Seconds between two readings of changes in the cells and the claim store.

Changes of operators are read before the next request, and all changes if a
request finds no host. With 0, all changes are read for each request. A claim
store that takes long to read is read less often: the pauses are at least four
times as long as a reading.
"""),
    cfg.FloatOpt('full_refresh_interval', default=300.0, min=0.0, help="""
Seconds between two complete readings of the cells.

Changes by services of this project are read continuously. Changes of hosts by
other programs, such as the compute service of Nova, are seen only by a
complete reading.
"""),
    cfg.IntOpt('discover_hosts_in_cells_interval', default=0, min=-1, help="""
Seconds between discoveries of new hosts, which maps them to their cells.

With 0, each scheduler maps a host as soon as it sees it, within
``refresh_interval``. With a larger value, one scheduler maps hosts in this
interval and at its start; another one takes over if it has been silent for one
and a half intervals. With -1, schedulers map no hosts: an agent that reaches
the API database maps its own host, and ``cellsched-manage cell_v2
discover_hosts`` maps all hosts. A host gets no servers before it is mapped.

Give all schedulers the same value.

Related options:

* ``refresh_interval``
"""),
    cfg.FloatOpt('stale_cell_timeout', default=30.0, min=0.0, help="""
Seconds without an answer after which the hosts of a cell get no servers.

Until then the scheduler uses the last known state of the cell. The value must
be below ``[DEFAULT] service_down_time``, because a host whose reports cannot
be read counts as down. The default is half of that option if it is lower.
"""),
    cfg.FloatOpt('cell_failure_half_life', default=300.0, min=1.0, help="""
Half-life of the failures of a cell, in seconds.

Failed builds and failed readings of the database count; see
``CellFailureWeigher``.
"""),
    cfg.FloatOpt('slow_plugin_seconds', default=1.0, min=0.0, help="""
Seconds after which a filter or a weigher counts as slow.

A warning in the log names the slow plug-in and the id of the request. A
decision delays the other decisions of the process, so a slow plug-in delays
all requests.
"""),
    cfg.IntOpt('decision_retention', default=3600, min=0, help="""
Seconds for which decisions are kept for ``cellsched explain``; 0 keeps none.
"""),
    cfg.StrOpt('record', help="""
Beginning of the names of the files to which decisions are recorded.

``cellsched replay`` decides recorded requests again, with the same or with
other filters and weighers. Each process writes files of its own, whose names
have a number of the process and a number of the file:
``/var/lib/cellsched/decisions.0.000001``. The files have requests, hosts and
answers, without tokens and passwords. Only the scheduler's user can read them.
Unset, nothing is recorded. The driver ``provider_scheduler`` records nothing.

Related options:

* ``record_mb``
"""),
    cfg.IntOpt('record_mb', default=1024, min=4, help="""
Largest size of the recording of one process, in MB.

The oldest quarter is removed if the recording becomes larger. Each quarter
begins with all hosts, which take about 40 bytes each.

Related options:

* ``record``
"""),
    cfg.BoolOpt('limit_tenants_to_placement_aggregate', default=False, help="""
Restrict a project to its host aggregates.

An aggregate belongs to a project if its metadata has the id of the project for
a key that begins with ``filter_tenant_id``.
"""),
    cfg.BoolOpt('placement_aggregate_required_for_tenants', default=False,
                help="""
Reject requests of projects without a host aggregate.

Related options:

* ``limit_tenants_to_placement_aggregate`` must be set.
"""),
    cfg.BoolOpt('enable_isolated_aggregate_filtering', default=False, help="""
Reserve hosts for servers that require their traits.

If the metadata of an aggregate has ``trait:NAME`` with the value ``required``,
its hosts take only servers whose flavor or image requires all these traits.
"""),
    cfg.BoolOpt('query_placement_for_image_type_support', default=False,
                help="""
Select only hosts with the trait of the disk format of the image.

The name of the trait is ``COMPUTE_IMAGE_TYPE_`` with the format, such as
``QCOW2``. Servers that boot from a volume, and formats without a trait, are
not restricted.
"""),
    cfg.BoolOpt('query_placement_for_routed_network_aggregates',
                default=False, help="""
Select only hosts that the segments of the requested routed networks reach.

The network plug-in names the host aggregates of the segments. A plug-in
without segments restricts no request.

Related options:

* ``[DEFAULT] network_driver``
"""),
    cfg.BoolOpt('image_metadata_prefilter', default=False, help="""
Select only hosts with the traits of the devices that an image requires.

Properties of the image such as ``hw_disk_bus`` and ``hw_vif_model`` become
traits such as ``COMPUTE_STORAGE_BUS_SCSI``, which the agents must report.
"""),
    cfg.StrOpt('unmet_demands', default='refuse',
               choices=[
                   ('refuse', 'fail the request with ``NoValidHost``, which '
                              'names them'),
                   ('ignore', 'schedule the servers without them, and log a '
                              'warning')],
               help="""
Handling of a request with requirements that no enabled filter supports.

Without a filter for a NUMA topology or a PCI device, a server would run on a
host that does not provide it. Filters declare what they support; the reference
lists the requirements and the filters.

Related options:

* ``[filter_scheduler] enabled_filters``
"""),
    cfg.StrOpt('unknown_hints', default='refuse',
               choices=[
                   ('refuse', 'fail the request with an error that names the '
                              'hint'),
                   ('ignore', 'ignore them, as Nova does')],
               help="""
Handling of a request with scheduler hints that no enabled filter supports.

Such a hint is mostly a mistake of a user. Ignore hints if a caller keeps them
with its servers and sends them again, as Nova does. A hint whose name begins
with ``_`` is always rejected. API services and schedulers use this option.

Related options:

* ``[filter_scheduler] enabled_filters``
"""),
    cfg.IntOpt('max_instances_per_request', default=1000, min=1, help="""
Largest number of instances of a request.
"""),
    cfg.IntOpt('max_names_per_request', default=1000, min=1, help="""
Largest number of hints, of extra specs, and of image properties of a request.
"""),
    cfg.IntOpt('max_values_per_list', default=100_000, min=1, help="""
Largest number of hosts, group members or aggregates in a list of a request.
"""),
    cfg.StrOpt('remote_exceptions', default='cellsched',
               choices=[
                   ('cellsched', 'as those of ``cellsched.exception``'),
                   ('nova', 'as those of ``nova.exception``: '
                            '``NoValidHost``, also for invalid requests, and '
                            '``MaxRetriesExceeded``')],
               help="""
Module of the errors that callers get.

A caller recreates an error only if it allows the module of the error. Services
of Nova allow ``nova.exception``; the conductors of this project allow
``cellsched.exception``.
"""),
]
