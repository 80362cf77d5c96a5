# SPDX-License-Identifier: Apache-2.0
"""Options of compute agents: ``[compute]``."""

import copy

from oslo_config import cfg

GROUP = cfg.OptGroup('compute', title='Compute agent')

OPTS = [
    cfg.StrOpt('provider_config_location',
               default='/etc/cellsched/provider_config/', help="""
Directory of files that say more of what this host's nodes can do.

Each file whose name ends in ``.yaml`` is read, in the form of Nova's provider
configuration files. A node has the traits that they name beside those of the
driver. They are read when the agent starts, and again when one of them
changed; a directory that is not there is as good as an empty one.
"""),
]


def register_opts(conf):
    # A group remembers what is set in it, so each configuration has its own.
    conf.register_group(copy.deepcopy(GROUP))
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts():
    return {GROUP: OPTS}
