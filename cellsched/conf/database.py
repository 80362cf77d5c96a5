# SPDX-License-Identifier: Apache-2.0
"""Options of a cell's database: ``[database]``, as oslo.db defines them."""

import copy

from oslo_config import cfg
from oslo_db import options

GROUP = cfg.OptGroup('database', title='Database of a cell')

#: Options of oslo.db with another default or another help.
_OURS = [
    cfg.IntOpt('max_pool_size', min=0,
               sample_default='<threads that use the database>', help="""
Connections that a process keeps open to each database.

By default it is the number of threads that answer messages and read from
cells, so that connections are not closed and opened again all the time. Set a
lower value if the database server does not allow so many connections. 0 means
no limit.

Related options:

* ``max_overflow``
* ``executor_thread_pool_size``
* ``cell_worker_thread_pool_size``
"""),
    cfg.IntOpt('max_overflow', default=10, min=-1, help="""
Connections that a process may open beyond ``max_pool_size``.

They are closed after use. Periodic tasks need them while all other threads are
busy. -1 means no limit.
"""),
    cfg.BoolOpt('sqlite_synchronous', default=True, help="""
Whether a commit to SQLite waits until the data is on the disk.

If it does not wait, a power failure may lose the last commits or damage the
file; the end of a process loses nothing. Other databases have their own
settings for this.
"""),
]

_NAMES = {option.name for option in _OURS}

OPTS = _OURS + [copy.deepcopy(option) for option in options.database_opts
                if option.name not in _NAMES]

# By default oslo.db waits for a hundred seconds, so that a database that is
# down cannot be told from a slow one.
cfg.set_defaults(OPTS, max_retries=1, retry_interval=1)


def register_opts(conf):
    # A group remembers what is set in it, so each configuration has its own.
    conf.register_group(copy.deepcopy(GROUP))
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts():
    return {GROUP: OPTS}


def be_impatient(conf):
    """Report a database that is down at once, as commands need it.

    :param conf: a configuration with the options of oslo.db
    """
    for group in ('api_database', 'database'):
        conf.set_default('max_retries', 0, group)
