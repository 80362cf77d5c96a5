# SPDX-License-Identifier: Apache-2.0
"""Options of an embedded conductor, in a configuration of any service."""

from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

from oslo_config import cfg

from cellsched.conf import cells
from cellsched.conf import claims
from cellsched.conf import conductor
from cellsched.conf import database
from cellsched.conf import default
from cellsched.conf import loader
from cellsched.conf import notifications
from cellsched.conf import quota
from cellsched.conf import upgrade_levels
from cellsched.db import api as api_schema
from cellsched.db import cell as cell_schema
from cellsched.wiring.components import Components

_GROUPS = {
    'api_database': database.OPTS, 'cells': cells.OPTS, 'claims': claims.OPTS,
    'conductor': conductor.OPTS, 'database': database.OPTS,
    'notifications': notifications.OPTS, 'quota': quota.OPTS,
    'upgrade_levels': upgrade_levels.OPTS}

#: Options of ``[DEFAULT]`` that are read, besides those of oslo.messaging.
_DEFAULT = ('host', 'service_down_time', 'cell_worker_thread_pool_size',
            'long_rpc_timeout')


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options that an embedded conductor reads.

    An option that the service has registered under the same name is kept, and
    is read here. The call is idempotent.
    """
    for opt in default.OPTS:
        if opt.dest in _DEFAULT and opt.dest not in conf:
            conf.register_opt(opt)
    for group, opts in _GROUPS.items():
        known = set(conf[group]) if group in conf else set()
        conf.register_opts(
            [opt for opt in opts if opt.dest not in known], group=group)
    loader.register_messaging(conf)


def configuration(
    api_database_url: str, transport_url: str, claims_url: str | None = None,
    host: str | None = None, **groups: Mapping[str, Any],
) -> cfg.ConfigOpts:
    """Return a configuration made of arguments; no file is read.

    :param transport_url: the transport of schedulers
    :param claims_url: the database of claims, by default the API database
    :param host: the host name in faults and notifications
    :param groups: other options by group, such as
        ``conductor={'build_lease': 60}``
    :raises oslo_config.cfg.Error: an option is unknown, or its value is
        invalid
    """
    conf = cfg.ConfigOpts()
    register_opts(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    given = {'DEFAULT': {'transport_url': transport_url},
             'api_database': {'connection': api_database_url}}
    if claims_url is not None:
        given['claims'] = {'connection': claims_url}
    if host is not None:
        given['DEFAULT']['host'] = host
    for source in (given, groups):
        for group, options in source.items():
            for name, value in options.items():
                conf.set_override(
                    name, value, None if group == 'DEFAULT' else group)
    return conf


def create_schemas(
    conf: cfg.ConfigOpts, cell_databases: Iterable[str] = ()
) -> None:
    """Create the schemas of all databases, or update them.

    The databases are the API database, that of the claim store, and those of
    the cells. Existing data is kept.

    :param cell_databases: URLs of the databases of cells, including cell0
    :raises cellsched.exception.ConfigurationInvalid: an option is missing or
        invalid, or a URL cannot be parsed
    :raises cellsched.exception.DatabaseUnreachable: a database does not answer
    """
    parts = Components(conf)
    try:
        api_schema.SCHEMA.sync(parts.database)
        parts.claims.sync()
        for url in cell_databases:
            cell_schema.SCHEMA.sync(
                parts.databases.get(url, cell_schema.SCHEMA.name))
    finally:
        parts.close()
