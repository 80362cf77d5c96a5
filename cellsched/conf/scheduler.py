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
Times to choose again for one request when another scheduler took the room.
"""),
    cfg.FloatOpt('refresh_interval', default=1.0, min=0.0, help="""
Seconds for which a scheduler trusts its table of hosts before it reads again.

A request that finds no host makes it read at once. With zero it reads for
each request.
"""),
    cfg.IntOpt('max_instances_per_request', default=1000, min=1, help="""
Instances that one request may ask for.
"""),
]


def register_opts(conf):
    # A group remembers what is set in it, so each configuration has its own.
    conf.register_group(copy.deepcopy(GROUP))
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts():
    return {GROUP: OPTS}
