# SPDX-License-Identifier: Apache-2.0
"""Options of the calls that a front end makes: ``[api]``."""

import copy

from oslo_config import cfg

GROUP = cfg.OptGroup('api', title='API calls')

OPTS = [
    cfg.IntOpt('max_limit', default=1000, min=1, help="""
Servers that one listing returns at most.
"""),
    cfg.StrOpt('instance_list_cells_batch_strategy', default='distributed',
               choices=[
                   ('distributed', 'each cell its share of the limit, and a '
                    'tenth more'),
                   ('fixed', '``instance_list_cells_batch_fixed_size``'),
               ], help="""
How many servers a listing reads of each cell at a time.

With one cell it is the limit; it is never less than 100 or more than the
limit. Small batches cost round trips, and large ones read what no page needs.
"""),
    cfg.IntOpt('instance_list_cells_batch_fixed_size', default=100, min=100,
               help="""
Servers that a listing reads of each cell at a time.

Related options:

* ``instance_list_cells_batch_strategy`` must be ``fixed``.
"""),
    cfg.BoolOpt('instance_list_per_project_cells', default=False, help="""
Whether a listing of one project reads only the cells in which it has servers.

It takes one more query of the API database, and pays where there are many
cells and a project is in few of them.
"""),
    cfg.BoolOpt('list_records_by_skipping_down_cells', default=True, help="""
Whether a listing does without the cells that do not answer.

It names them then, and shows their servers with the status UNKNOWN. Otherwise
it fails.
"""),
    cfg.IntOpt('server_group_members', default=1000, min=1, help="""
Servers that a server group may have at most.

All of them are read each time one of them is placed.
"""),
    cfg.IntOpt('send_retries', default=2, min=0, help="""
Times to try again to send a message when a broker does not answer.

A build that no conductor could be told of is accepted all the same; one finds
it when ``[conductor] build_lease`` is over.

Related options:

* ``send_timeout``
"""),
    cfg.FloatOpt('send_timeout', default=5, min=0.1, help="""
Seconds to wait for a broker to take a message.

A broker that is short of memory or disk takes none for as long as it is. What
it does not take in time counts as not sent; of ``executor_thread_pool_size``
messages that hang it may be sent all the same when the broker is well again,
which does no harm.
"""),
]


def batch_size(conf):
    """Return the servers that are read of a cell at a time; None to share."""
    if conf.api.instance_list_cells_batch_strategy == 'fixed':
        return conf.api.instance_list_cells_batch_fixed_size
    return None


def register_opts(conf):
    # A group remembers what is set in it, so each configuration has its own.
    conf.register_group(copy.deepcopy(GROUP))
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts():
    return {GROUP: OPTS}
