# SPDX-License-Identifier: Apache-2.0
"""Options of what talks to several cells: ``[cells]``."""

import copy

from oslo_config import cfg

GROUP = cfg.OptGroup('cells', title='Cells')

OPTS = [
    cfg.FloatOpt('timeout', default=10.0, min=0.1, help="""
Seconds that a cell may take to answer before the others go on without it.
"""),
    cfg.FloatOpt('refresh_interval', default=10.0, min=0.0, help="""
Seconds after which the list of cells is read again.

New, disabled and changed cells are seen within this time, without a restart.
"""),
]


def register_opts(conf):
    # A group remembers what is set in it, so each configuration has its own.
    conf.register_group(copy.deepcopy(GROUP))
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts():
    return {GROUP: OPTS}
