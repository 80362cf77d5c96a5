# SPDX-License-Identifier: Apache-2.0
"""Options of the claim store: ``[claims]``."""

import copy

from oslo_config import cfg

GROUP = cfg.OptGroup('claims', title='Claim store')

OPTS = [
    cfg.StrOpt('store', default='sql', help="""
Store that keeps what is taken on which host.

Names are entry points in ``cellsched.claims``. ``memory`` forgets with its
process and serves tests and simulations only.
"""),
    cfg.StrOpt('connection', secret=True, help="""
Where the store is.

Schedulers, conductors and compute agents all need it. For ``sql`` it is a
SQLAlchemy URL, and unset it is the database of ``[api_database] connection``;
for ``etcd``, ``etcd://HOST:PORT,HOST:PORT/PREFIX``; for ``cassandra``,
``cassandra://USER:PASSWORD@HOST:PORT,HOST:PORT/KEYSPACE``. Of ``placement``
the options of ``[placement]`` say where it is, and this one stays unset.
"""),
    cfg.ListOpt('require', default=[], help="""
Promises that the store must make, or the service does not start.

Possible values:

* ``atomic``: a batch is taken whole or not at all, whoever dies meanwhile
* ``durable``: claims outlive the process that took them
* ``shared``: every process sees a claim once it is taken
* ``groups``: hard policies of server groups hold, whoever is placed at the
  same time
* ``feed``: to hear of what changed costs what changed, however many hosts
  there are
* ``consumer_list``: all who hold something are listed, without asking each
  host
* ``query``: the hosts that have room are found by the store, which
  ``provider_scheduler`` needs
"""),
]


def register_opts(conf):
    # A group remembers what is set in it, so each configuration has its own.
    conf.register_group(copy.deepcopy(GROUP))
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts():
    return {GROUP: OPTS}
