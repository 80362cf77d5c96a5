# SPDX-License-Identifier: Apache-2.0
"""Options of databases, as oslo.db defines them.

They are the same in ``[database]`` and in ``[api_database]``.
"""

import copy

from oslo_config import cfg
from oslo_db import options

GROUP = cfg.OptGroup('database', title='Database of a cell')
API_GROUP = cfg.OptGroup('api_database', title='Database of the API')

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
    cfg.FloatOpt('lock_timeout', default=5.0, min=0.0, max=3600.0, help="""
Seconds that a statement waits for a lock of another session.

After this time the statement fails, its transaction is rolled back, and the
work is repeated later. It must not be lower than ``idle_transaction_timeout``,
so that a statement outlives a client that stopped with a lock. The value is
the ``lock_timeout`` of PostgreSQL, the ``innodb_lock_wait_timeout`` and
``lock_wait_timeout`` of MariaDB and MySQL, in whole seconds, and the
``busy_timeout`` of SQLite. 0 leaves the setting of the server.

Related options:

* ``statement_timeout``
* ``idle_transaction_timeout``
"""),
    cfg.FloatOpt('statement_timeout', default=30.0, min=0.0, max=86400.0,
                 help="""
Seconds that a statement may take.

After this time the server ends the statement. Set a higher value if listings
of many servers fail on a slow database. Migrations of the schema have no such
limit. The value is the ``statement_timeout`` of PostgreSQL, the
``max_statement_time`` of MariaDB and the ``max_execution_time`` of MySQL,
which limits only queries. SQLite has no such limit. 0 leaves the setting of
the server.

Related options:

* ``lock_timeout``
"""),
    cfg.FloatOpt('idle_transaction_timeout', default=4.0, min=0.0,
                 max=86400.0, help="""
Seconds that a session may be idle within a transaction.

After this time the server ends the session and releases its locks, so that a
process that stopped, or a machine that was cut off, does not keep the rows
that other processes need. The process continues with a new connection. Set a
higher value if processes pause for longer, for example while their machines
are migrated. The value is the ``idle_in_transaction_session_timeout`` of
PostgreSQL and the ``idle_transaction_timeout`` of MariaDB, in whole seconds.
MySQL and SQLite have no such limit. 0 leaves the setting of the server.

Related options:

* ``lock_timeout``
"""),
]

_NAMES = {option.name for option in _OURS}

#: Other options of oslo.db that the engines of this project use. The module
#: ``refusals`` has the rest.
_THEIRS = {
    'connection', 'connection_debug', 'connection_parameters',
    'connection_recycle_time', 'connection_trace', 'max_retries',
    'mysql_sql_mode', 'mysql_wsrep_sync_wait', 'pool_timeout',
    'retry_interval'}

OPTS = _OURS + [copy.deepcopy(option) for option in options.database_opts
                if option.name in _THEIRS - _NAMES]

# By default oslo.db waits for a hundred seconds: a database that is down would
# look like a slow one.
cfg.set_defaults(OPTS, max_retries=1, retry_interval=1, pool_timeout=5)


def be_impatient(conf):
    """Report a database that is down at once, for commands.

    :param conf: a configuration with the options of oslo.db
    """
    for group in ('api_database', 'database'):
        conf.set_default('max_retries', 0, group)
