# SPDX-License-Identifier: Apache-2.0
"""Options of a cell's database: ``[database]``, as oslo.db defines them."""

import copy

from oslo_config import cfg
from oslo_db import options

GROUP = cfg.OptGroup('database', title='Database of a cell')

OPTS = copy.deepcopy(options.database_opts)

# oslo.db's own defaults wait for a hundred seconds, so that a database that is
# down looks like one that is slow.
cfg.set_defaults(OPTS, max_retries=1, retry_interval=1)


def register_opts(conf):
    # A group remembers what is set in it, so each configuration has its own.
    conf.register_group(copy.deepcopy(GROUP))
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts():
    return {GROUP: OPTS}
