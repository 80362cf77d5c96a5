# SPDX-License-Identifier: Apache-2.0
"""Options of the conductor service: ``[conductor]``."""

import copy

from oslo_config import cfg

GROUP = cfg.OptGroup('conductor', title='Conductor service')

OPTS = [
    cfg.IntOpt('workers', min=1, help="""
Processes of the conductor service; unset, one for each CPU.
"""),
    cfg.IntOpt('build_lease', default=60, min=1, help="""
Seconds for which a conductor has a build to itself.

After that another conductor may take the build up. A lease only says who
should try; what was decided is fenced in the databases.
"""),
]


def register_opts(conf):
    # A group remembers what is set in it, so each configuration has its own.
    conf.register_group(copy.deepcopy(GROUP))
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts():
    return {GROUP: OPTS}
