# SPDX-License-Identifier: Apache-2.0
"""Options of the conductor service: ``[conductor]``."""

from oslo_config import cfg

GROUP = cfg.OptGroup('conductor', title='Conductor service')

OPTS = [
    cfg.IntOpt('workers', min=1, help="""
Processes of the conductor service; by default one for each CPU.
"""),
    cfg.FloatOpt('build_lease', default=8, min=0.1, help="""
Seconds of the lease of a conductor on a build.

A conductor renews the leases of its builds three times within this time. After
it, another conductor takes the builds of a dead conductor, and builds of which
no conductor was notified. A lease only avoids double work; the databases fence
the results. Raise this if conductors pause for longer, such as during a live
migration of their machines.

Related options:

* ``recovery_interval``
"""),
    cfg.IntOpt('claims_check_interval', default=300, min=1, help="""
Seconds between two searches for leaked claims.

That is a claim of a server that is deleted, in cell0, or in ERROR without a
host. Most of these claims are released at once. A claim that two searches in a
row find is released too. Claims of consumers that the API database does not
know are kept. A search reads all claims. Raise this if the claim store has
many claims and lacks the capability ``consumer_list``: it is then queried for
each host and each server.
"""),
    cfg.IntOpt('network_sweep_interval', default=60, min=1, help="""
Seconds between two searches for leaked networks of servers, in each cell.

Most servers release their networks at their end. The search finds servers
without a host, and servers whose networks could not be released.
"""),
    cfg.IntOpt('build_deadline', default=1800, min=1, help="""
Seconds after which an unfinished build fails.

The server is then in cell0, with the reason. The build is attempted at least
``build_attempts`` times, so that a wrong clock cannot fail a new build.
"""),
    cfg.IntOpt('build_attempts', default=3, min=1, help="""
Attempts of a build before ``build_deadline`` applies.
"""),
    cfg.IntOpt('joint_transactions', default=1, min=1, help="""
Concurrent transactions of builds, from the decision to the end of the request.

Builds that arrive meanwhile wait, and share the next transactions.
"""),
    cfg.FloatOpt('recovery_interval', default=1, min=0.1, help="""
Seconds between two searches for interrupted builds and due retries.

Each search is one indexed query of the API database.
"""),
    cfg.IntOpt('recovery_threads', default=16, min=1, help="""
Batches of interrupted builds that a process recovers at the same time.

More threads shorten the recovery after an outage, and need more connections to
databases and more requests to schedulers.
"""),
    cfg.FloatOpt('retry_delay', default=1, min=0.1, help="""
Seconds before the first retry of a build after a transient error.

A transient error is one such as a restart of a database. Each further retry
waits twice as long, up to four seconds, or always this long if this is more.

Related options:

* ``retries``
"""),
    cfg.IntOpt('retries', default=3, min=0, help="""
Retries of a build by the same conductor after transient errors.

After that the conductor ends its lease, and any conductor takes the build
within ``recovery_interval``. If the API database does not answer, the
conductor keeps the build and goes on retrying.
"""),
    cfg.FloatOpt('scheduling_timeout', default=5, min=0.1, help="""
Seconds to wait for a decision before the request is sent again.

A decision takes milliseconds, so a scheduler that does not answer has most
likely been killed or stopped. To send the request again is safe: the same
builds get the same hosts. A request for 100 servers or more may take longer if
its scheduler sends heartbeats within this time.

Related options:

* ``[DEFAULT] long_rpc_timeout``
"""),
    cfg.FloatOpt('cast_timeout', default=5, min=0.1, help="""
Seconds to wait until a compute host starts a build.

After that the message is sent again with twice the timeout, up to eight times
the timeout. After ``cast_attempts`` messages the build goes to another host of
the cell. A host whose service is down loses its builds after the timeout too.
"""),
    cfg.FloatOpt('cast_check_interval', default=2, min=0.1, help="""
Seconds between two searches for builds that no host has started.

Each search is one indexed query of the database of each cell.
"""),
    cfg.IntOpt('cast_attempts', default=6, min=1, help="""
Messages to a compute host before the build goes to another host.
"""),
    cfg.IntOpt('move_deadline', default=600, min=1, help="""
Seconds without progress after which the move of a server is ended.

A move is a rebuild, an evacuation, a migration, a shelve or an unshelve. A
server that has not moved yet stays on its host, and one that has moved is on
the new host. The value must be longer than the build of a server takes.
"""),
    cfg.IntOpt('send_retries', default=2, min=-1, help="""
Retries of sending a message while a broker is unreachable.

With -1 the sender retries forever, and waits. A message that is not sent is
sent when the recovery finds the build.
"""),
]
