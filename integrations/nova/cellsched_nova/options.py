# SPDX-License-Identifier: Apache-2.0
"""Options of this package, in addition to Nova's options."""

from oslo_config import cfg

from cellsched.claims.placement import messages
from cellsched.conf import default

GROUP = cfg.OptGroup('cellsched', title='The scheduler in Nova\'s place')

OPTS = [
    cfg.FloatOpt('refresh_interval', default=1.0, min=0.0, help="""
Seconds between reads of the hosts.

With 0 the scheduler reads the hosts for each request. A read is one query of
each cell for its changes, and one of Placement. If reads take long, the time
between them is eight times as long as a read, and at most half of
``stale_hosts_timeout``.
"""),
    cfg.FloatOpt('stale_hosts_timeout', default=30.0, min=1.0, help="""
Seconds for which requests use the last read of the hosts while no newer read
succeeds.

If Placement or a cell does not answer, a read takes long or fails. Until the
timeout, requests do not wait for it: they are decided on the last read that
Placement answered, and the log says so. Afterwards requests wait for a read,
at most for ``claim_timeout``. Keep it below ``[DEFAULT] service_down_time``.
"""),
    cfg.IntOpt('full_refresh_interval', default=300, min=1, help="""
Seconds between reads of all aggregates.

Between two reads, the scheduler follows the messages of nova-api.
"""),
    cfg.FloatOpt('claim_timeout', default=30.0, min=0.0, help="""
Seconds for which a request waits for Placement.

The limit applies once to the whole request, for all its reads, claims and
retries. A longer timeout outlasts a restart of Placement, and the caller waits
as long. After the timeout the request fails. With 0 nothing is retried, and
each answer may take ``[placement] timeout``.
"""),
    cfg.IntOpt('placement_guards', default=64, min=1, max=messages.GUARDS_MAX,
               help="""
Number of guards that all schedulers of the deployment share.

Each claim in Placement needs a guard of its own while it is written. More
concurrent claims need more guards. Set the same number for all schedulers.
"""),
    cfg.StrOpt('hardware_filters', default='columns',
               choices=[('columns', 'on columns, as all other requests'),
                        ('nova', "with Nova's own filters, one host at a "
                                 'time')], help="""
The way to decide on requests for NUMA cells, dedicated CPUs and PCI devices.

It applies to ``NUMATopologyFilter`` and ``PciPassthroughFilter`` if they are
enabled. With Nova's own filters these requests need allocation candidates, and
cost as much as with Nova's scheduler. The verdicts differ only where Nova
confuses the cells of a server. Placement allocates PCI devices if
``[filter_scheduler] pci_in_placement`` is set: such requests always use Nova's
filters.
"""),
    cfg.StrOpt('no_valid_host_text', default='nova',
               choices=[('nova', 'the text of Nova'),
                        ('cellsched', 'with the number of hosts that each '
                                      'filter rejected, and the nearest '
                                      'miss')], help="""
The text of ``NoValidHost``, which users read.

Some tools search for Nova's text. With both values, the log and
``cellsched-nova explain`` show the reasons.
"""),
    cfg.StrOpt('records_connection', secret=True,
               default='sqlite:///$state_path/cellsched.sqlite', help="""
Database of decisions and comparisons, separate from Nova's databases.

The schedulers create its tables. Schedulers on several machines share one
database on a server, for example ``mysql+pymysql://…`` or
``postgresql+psycopg://…``.
"""),
    cfg.IntOpt('decision_retention', default=3600, min=0, help="""
Seconds to keep decisions for ``cellsched-nova explain``. With 0 the scheduler
records no decisions.

Related options:

* ``records_connection``
"""),
    cfg.StrOpt('record', help="""
Beginning of the names of the files to which decisions are recorded.

``cellsched-nova replay`` decides recorded requests again, with the same or
with other filters and weighers. Each worker writes files of its own, whose
names have a number of the worker and a number of the file:
``/var/lib/nova/decisions.0.000001``. The files have requests, hosts and
answers, without tokens and passwords. Unset, nothing is recorded.

Related options:

* ``record_mb``
"""),
    cfg.IntOpt('record_mb', default=1024, min=4, help="""
Largest size of the recording of one worker, in MB.

The oldest quarter is removed if the recording becomes larger. Each quarter
begins with all hosts.

Related options:

* ``record``
"""),
    cfg.IntOpt('comparison_retention', default=7 * 86400, min=1, help="""
Seconds for which ``cellsched-nova-shadow`` keeps comparisons.

It keeps at most the newest 100 000.

Related options:

* ``records_connection``
"""),
    cfg.IntOpt('shadow_timeout', default=60, min=1, help="""
Seconds after which ``cellsched-nova-shadow`` assumes that Nova found no host.

Nova sends a notification when a selection starts and when it succeeds, but not
when there is no valid host.
"""),
    cfg.StrOpt('shadow_pool', default='cellsched-shadow', help="""
Pool in which ``cellsched-nova-shadow`` listens to notifications.

Listeners in other pools, or without a pool, still receive all notifications.
With RabbitMQ the pool is the name of a queue, which remains when the process
ends.
"""),
]


#: The options of the HTTP port, of which one is for another service.
MONITORING_OPTS = [option for option in default.MONITORING_OPTS
                   if option.name in (
                       'address', 'scheduler_port', 'check_timeout')]

#: Seconds for one answer of Placement, if ``[placement] timeout`` is not set.
_PLACEMENT_TIMEOUT_S = 30


def register_opts(conf):
    """Register the options; a second time changes nothing.

    Nova has no default for the time of an answer of Placement; this sets one.
    """
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP)
    conf.register_opts(MONITORING_OPTS, group=default.MONITORING_GROUP.name)
    conf.set_default('timeout', _PLACEMENT_TIMEOUT_S, 'placement')


def list_opts():
    """Return the options as oslo.config's generator wants them."""
    return [(GROUP.name, OPTS),
            (default.MONITORING_GROUP.name, MONITORING_OPTS)]
