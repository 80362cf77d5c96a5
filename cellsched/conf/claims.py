# SPDX-License-Identifier: Apache-2.0
"""Options of the claim store and its locks.

The groups are ``[claims]`` and ``[coordination]``.
"""

from oslo_config import cfg

GROUP = cfg.OptGroup('claims', title='Claim store')

OPTS = [
    cfg.StrOpt('store', default='sql', help="""
Store of the claims of servers on the resources of hosts.

Names are entry points in ``cellsched.claims``. ``memory`` loses its claims
with the process, and is for tests and simulations only.
"""),
    cfg.StrOpt('connection', secret=True, help="""
URL of the store.

Schedulers, conductors and compute agents need the same one. For ``sql`` it is
a SQLAlchemy URL, and by default the database of ``[api_database] connection``;
for ``etcd``, ``etcd://HOST:PORT,HOST:PORT/PREFIX``; for ``cassandra``,
``cassandra://USER:PASSWORD@HOST:PORT,HOST:PORT/KEYSPACE``. With ``etcds`` or
``cassandras``, connections use TLS. For ``placement``
the options of ``[placement]`` are used, and this one stays unset.
"""),
    cfg.FloatOpt('lock_timeout', default=1.0, min=0.0, max=3600.0, help="""
Seconds that a statement of the store ``sql`` waits for a lock.

After this time the scheduler passes over a host whose rows are locked, as if
the host had no capacity, and selects another one. The default is short, as a
claim locks rows for milliseconds. SQLite, which locks whole files, uses the
``lock_timeout`` of the database instead. 0 leaves the setting of the server.

Related options:

* ``[api_database] lock_timeout``
"""),
    cfg.ListOpt('require', default=[], help="""
Capabilities that the store must have, or the service does not start.

Possible values:

* ``atomic``: a batch is claimed completely or not at all, even if a process
  dies
* ``durable``: claims outlive the process that made them
* ``shared``: every process sees a claim once it is made
* ``groups``: hard policies of server groups hold for concurrent requests
* ``feed``: the cost of reading changes depends on the number of changes, not
  of hosts
* ``consumer_list``: all consumers are listed without a query for each host
* ``query``: the store finds hosts with capacity, as ``provider_scheduler``
  needs
* ``any_of``: the first host with room is claimed in one round trip
"""),
]

COORDINATION_GROUP = cfg.OptGroup(
    'coordination', title='Lock between processes')

COORDINATION_OPTS = [
    cfg.StrOpt('connection', secret=True, help="""
SQLAlchemy URL of the database with the lock between processes.

Processes whose claims disturb each other in etcd, Cassandra or Placement wait
for each other before they write. This saves work only: without an answer of
the database, or after one to fifteen seconds, they write without the lock.

By default it is the database of ``[api_database] connection``. An empty value
turns the lock off.
"""),
]
