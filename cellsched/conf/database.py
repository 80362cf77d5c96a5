# SPDX-License-Identifier: Apache-2.0
"""Options of a cell's database: ``[database]``, as oslo.db defines them."""

import copy

from oslo_config import cfg
from oslo_db import options

GROUP = cfg.OptGroup('database', title='Database of a cell')

#: Options of oslo.db that have another default here, or say more.
_OURS = [
    cfg.IntOpt('max_pool_size', min=0,
               sample_default='<threads that use the database>', help="""
Connections that a process keeps open to each database.

Unset, it is the number of threads that answer messages and ask cells, so that
a connection is not closed while another thread is about to open one. Set it
where that is more than the database server takes. 0 is no limit.

Related options:

* ``max_overflow``
* ``executor_thread_pool_size``
* ``cell_worker_thread_pool_size``
"""),
    cfg.IntOpt('max_overflow', default=10, min=-1, help="""
Connections that a process may open beyond ``max_pool_size``.

They are closed as soon as they are given back. Periodic tasks need some where
all other threads are busy. -1 is no limit.
"""),
    cfg.BoolOpt('sqlite_synchronous', default=True, help="""
Whether a commit to SQLite waits until it is on the disk.

If not, the end of the machine may lose what was committed last, or damage the
file; that of a process loses nothing. Other databases have settings of their
own for this.
"""),
]

_NAMES = {option.name for option in _OURS}

OPTS = _OURS + [copy.deepcopy(option) for option in options.database_opts
                if option.name not in _NAMES]

# oslo.db's own defaults wait for a hundred seconds, so that a database that is
# down looks like one that is slow.
cfg.set_defaults(OPTS, max_retries=1, retry_interval=1)


def register_opts(conf):
    # A group remembers what is set in it, so each configuration has its own.
    conf.register_group(copy.deepcopy(GROUP))
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts():
    return {GROUP: OPTS}


def be_impatient(conf):
    """Have databases that are away be told of at once.

    Who waits at a terminal can try again.

    :param conf: options of oslo.db's, where they are registered
    """
    for group in ('api_database', 'database'):
        conf.set_default('max_retries', 0, group)
