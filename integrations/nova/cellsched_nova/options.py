# SPDX-License-Identifier: Apache-2.0
"""Options of this package, beside those of Nova's."""

from oslo_config import cfg

from cellsched.claims.placement import messages

GROUP = cfg.OptGroup('cellsched', title='The scheduler in Nova\'s place')

OPTS = [
    cfg.FloatOpt('refresh_interval', default=1.0, min=0.0, help="""
Seconds for which hosts are decided on as they were last read.

With 0 they are read for each request. To read costs a query of each cell for
what changed, and one of Placement.
"""),
    cfg.IntOpt('full_refresh_interval', default=300, min=1, help="""
Seconds between readings of all aggregates.

In between, what nova-api tells of aggregates counts.
"""),
    cfg.FloatOpt('claim_timeout', default=30.0, min=0.0, help="""
Seconds for which a request asks a Placement again that does not answer.

They are those of the whole request, whatever it reads and claims. Longer ones
outlast a restart of Placement; the caller waits as long. When they are over,
the request fails.
"""),
    cfg.IntOpt('placement_guards', default=64, min=1, max=messages.GUARDS_MAX,
               help="""
Guards that all schedulers of the deployment share.

Each claim in Placement needs one, and no two at a time the same; more of them
are needed where more claims are made at a time. All schedulers should have the
same.
"""),
    cfg.StrOpt('no_valid_host_text', default='nova',
               choices=[('nova', 'as Nova says it'),
                        ('cellsched', 'with the number of hosts that each '
                                      'filter rejected, and the nearest '
                                      'miss')], help="""
The text of ``NoValidHost``, which users read.

Some tools look for Nova's words. The reasons are in the log in either case,
and in what ``cellsched-nova explain`` shows.
"""),
    cfg.StrOpt('records_connection', secret=True,
               default='sqlite:///$state_path/cellsched.sqlite', help="""
Database of decisions and of comparisons, which is none of Nova's.

Schedulers make the tables in it. Those on several machines share one on a
server, such as ``mysql+pymysql://…`` or ``postgresql+psycopg://…``.
"""),
    cfg.IntOpt('decision_retention', default=3600, min=0, help="""
Seconds for which decisions are kept for ``cellsched-nova explain``; zero for
none.

Related options:

* ``records_connection``
"""),
    cfg.IntOpt('comparison_retention', default=7 * 86400, min=1, help="""
Seconds for which ``cellsched-nova-shadow`` keeps what it compared.

Of the newest, no more than 100 000 are kept.

Related options:

* ``records_connection``
"""),
    cfg.IntOpt('shadow_timeout', default=60, min=1, help="""
Seconds after which ``cellsched-nova-shadow`` takes it that Nova refused.

Nova tells that it begins to choose, and that it is done, but not that there
was no host.
"""),
    cfg.StrOpt('shadow_pool', default='cellsched-shadow', help="""
Pool in which ``cellsched-nova-shadow`` listens to notifications.

Those who listen in other pools, or in none, hear them all the same. With
RabbitMQ it is the name of a queue, which stays when the process ends.
"""),
]


def register_opts(conf):
    """Register the options; a second time changes nothing."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP)


def list_opts():
    """Return the options as oslo.config's generator wants them."""
    return [(GROUP.name, OPTS)]
