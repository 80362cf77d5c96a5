# SPDX-License-Identifier: Apache-2.0
"""Options of the locks between processes: ``[coordination]``."""

from oslo_config import cfg

GROUP = cfg.OptGroup('coordination', title='Locks between processes')

OPTS = [
    cfg.StrOpt('backend_url', secret=True, help="""
URL of the backend of tooz that has the locks between processes.

Processes whose claims on the same host disturb each other in Cassandra or
Placement wait for each other before they write. This saves work only: without
an answer of the backend, or after a second, they write without the lock.

By default it is the database of ``[api_database] connection``: advisory locks
of PostgreSQL, which need the package ``psycopg2``, named locks of MySQL and
MariaDB, or files beside a file of SQLite. Another backend is, for example,
``etcd3+http://HOST:PORT``. An empty value turns the locks off.
"""),
]
