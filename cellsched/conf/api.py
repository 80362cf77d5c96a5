# SPDX-License-Identifier: Apache-2.0
"""Options of the API that a front end calls: ``[api]``."""

from oslo_config import cfg

GROUP = cfg.OptGroup('api', title='API calls')

OPTS = [
    cfg.IntOpt('max_limit', default=1000, min=1, help="""
Largest number of servers of one page of a listing.
"""),
    cfg.StrOpt('instance_list_cells_batch_strategy', default='distributed',
               choices=[
                   ('distributed', 'the limit divided by the number of cells, '
                    'and a tenth more'),
                   ('fixed', '``instance_list_cells_batch_fixed_size``'),
               ], help="""
Strategy for the number of servers that a listing reads from a cell at a time.

With one cell the number is the limit. It is never below 100 or above the
limit. A small batch costs more round trips, and a large one reads servers that
no page shows.
"""),
    cfg.IntOpt('instance_list_cells_batch_fixed_size', default=100, min=100,
               help="""
Servers that a listing reads from each cell at a time.

Related options:

* ``instance_list_cells_batch_strategy`` must be ``fixed``.
"""),
    cfg.BoolOpt('instance_list_per_project_cells', default=False, help="""
Whether a listing of one project reads only the cells in which it has servers.

It costs one more query of the API database, and helps if there are many cells
and each project has servers in few of them.
"""),
    cfg.BoolOpt('list_records_by_skipping_down_cells', default=True, help="""
Whether a listing skips cells that do not answer.

The listing then names these cells, and shows their servers with the status
UNKNOWN. If this is off, the listing fails.
"""),
    cfg.IntOpt('server_group_members', default=1000, min=1, help="""
Largest number of servers of a server group.

All members are read whenever one of them is scheduled.
"""),
    cfg.IntOpt('send_retries', default=2, min=0, help="""
Retries of sending a message when a broker does not answer.

If the message is not sent, the build is accepted all the same: a conductor
finds it after ``[conductor] build_lease`` seconds.

Related options:

* ``send_timeout``
"""),
    cfg.FloatOpt('send_timeout', default=5, min=0.1, help="""
Seconds to wait until a broker accepts a message.

A broker that is short of memory or disk accepts no messages. A message that is
not accepted in time counts as not sent. Up to ``executor_thread_pool_size``
of these messages may be sent later, which does no harm.
"""),
]


def batch_size(conf):
    """Return the servers to read from a cell at a time; None to share."""
    if conf.api.instance_list_cells_batch_strategy == 'fixed':
        return conf.api.instance_list_cells_batch_fixed_size
    return None
