# SPDX-License-Identifier: Apache-2.0
"""Options of the API database: ``[api_database]``, the same as a cell's."""

import copy

from oslo_config import cfg

from cellsched.conf import database

GROUP = cfg.OptGroup('api_database', title='Database of the API')

OPTS = copy.deepcopy(database.OPTS)


def register_opts(conf):
    # A group remembers what is set in it, so each configuration has its own.
    conf.register_group(copy.deepcopy(GROUP))
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts():
    return {GROUP: OPTS}
