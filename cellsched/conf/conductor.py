# SPDX-License-Identifier: Apache-2.0
"""Options of the conductor service: ``[conductor]``."""

import copy

from oslo_config import cfg

GROUP = cfg.OptGroup('conductor', title='Conductor service')

OPTS = [
    cfg.IntOpt('workers', min=1, help="""
Processes of the conductor service; unset, one for each CPU.
"""),
    cfg.FloatOpt('build_lease', default=10, min=0.1, help="""
Seconds for which a conductor has a build to itself, unless it says so again.

It does that of all its builds, three times within that time, for as long as it
lives. What a dead one had, and what was accepted and told to none, another
conductor takes up after it. A lease only says who should try; what was decided
is fenced in the databases. Raise this where conductors pause for longer, as
when their machines are moved.

Related options:

* ``recovery_interval``
"""),
    cfg.IntOpt('claims_check_interval', default=300, min=1, help="""
Seconds between two looks for claims of servers that are deleted, buried or in
ERROR without a host.

Most are released when that happens. One that two looks in a row find is
released then. Claims of consumers that the API database does not know stay.
A look goes through all claims. Raise this where the claim store has many and
does not promise ``consumer_list``: it is asked for each host and each server.
"""),
    cfg.IntOpt('network_sweep_interval', default=60, min=1, help="""
Seconds between two looks of a cell's conductor for servers that ended and
still have networks.

Most give them back when they end. This finds those that no host was left to
do it for, and those whose networks could not be taken back at the time.
"""),
    cfg.IntOpt('build_deadline', default=1800, min=1, help="""
Seconds after which a build that no conductor brings to an end is given up.

It ends in cell0 with the reason. It is given up only after it was tried
``build_attempts`` times, so that a clock that is wrong gives nothing up.
"""),
    cfg.IntOpt('build_attempts', default=3, min=1, help="""
How often a build is taken up, at least, before ``build_deadline`` counts.
"""),
    cfg.IntOpt('joint_transactions', default=1, min=1, help="""
Transactions of builds at a time, from the decision to the end of the request.

Builds that come there meanwhile wait, and then go through them together.
"""),
    cfg.FloatOpt('recovery_interval', default=1, min=0.1, help="""
Seconds between two looks for builds that were left lying, or are to be tried
again.

Each is one query of the API database, by an index.
"""),
    cfg.IntOpt('recovery_threads', default=16, min=1, help="""
Batches of builds that were left lying which a process works on at a time.

More make it faster to go on after an outage, and keep more connections to
databases and more requests at schedulers.
"""),
    cfg.FloatOpt('retry_delay', default=1, min=0.1, help="""
Seconds after which a conductor tries builds again that failed of something
that passes, such as a database that restarts.

Each time after that it waits twice as long.

Related options:

* ``retries``
"""),
    cfg.IntOpt('retries', default=3, min=0, help="""
How often a conductor tries such builds again itself.

Then it lets go of them, and any conductor tries them each time that
``build_lease`` has passed.
"""),
    cfg.FloatOpt('scheduling_timeout', default=5, min=0.1, help="""
Seconds to wait for a scheduler's decision before another one is asked.

A decision takes milliseconds, so one that does not answer was most likely
killed or stopped with the request. To ask again is safe: the same builds get
the same hosts. A request for 100 servers or more may take longer, as long as
its scheduler sends heartbeats within this time.

Related options:

* ``[DEFAULT] long_rpc_timeout``
"""),
    cfg.FloatOpt('cast_timeout', default=10, min=0.1, help="""
Seconds within which a compute host has to take up a build that it was told of.

After that it is told again and has twice as long, up to eight times as long,
and after ``cast_attempts`` times another host of the cell is told. A host
whose service is down loses its builds then too.
"""),
    cfg.FloatOpt('cast_check_interval', default=5, min=0.1, help="""
Seconds between two looks into the cells for builds that no host took up.

Each is one query of each cell's database, by an index.
"""),
    cfg.IntOpt('cast_attempts', default=4, min=1, help="""
How often a compute host is told of a build before another one is.
"""),
    cfg.IntOpt('move_deadline', default=600, min=1, help="""
Seconds without news after which the move of a server is ended: a rebuild, an
evacuation, a migration, or its leaving or coming back to a host.

A server that has not gone stays where it is, and one that has gone is there.
It has to be longer than a host takes to build a server.
"""),
    cfg.IntOpt('send_retries', default=2, min=-1, help="""
How often to try to send a message again while a broker is away.

With -1 without end, and what sends waits for it. What was not sent is sent
when the build is found lying.
"""),
]


def register_opts(conf):
    # A group remembers what is set in it, so each configuration has its own.
    conf.register_group(copy.deepcopy(GROUP))
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts():
    return {GROUP: OPTS}
