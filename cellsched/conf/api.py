# SPDX-License-Identifier: Apache-2.0
"""Options of the calls that a front end makes: ``[api]``."""

import copy

from oslo_config import cfg

GROUP = cfg.OptGroup('api', title='API calls')

OPTS = [
    cfg.IntOpt('max_limit', default=1000, min=1, help="""
Servers that one listing returns at most.
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


def register_opts(conf):
    # A group remembers what is set in it, so each configuration has its own.
    conf.register_group(copy.deepcopy(GROUP))
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts():
    return {GROUP: OPTS}
