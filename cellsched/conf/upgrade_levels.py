# SPDX-License-Identifier: Apache-2.0
"""Options of what is sent during an upgrade: ``[upgrade_levels]``."""

import copy

from oslo_config import cfg

GROUP = cfg.OptGroup('upgrade_levels', title='Versions during an upgrade')

OPTS = [
    cfg.StrOpt('scheduler', help="""
Newest version of messages that may be sent to schedulers.

A number or the name of a release, as long as some schedulers are older than
who calls them: ``4.4`` or ``pike``. A conductor of this project asks for what
came with ``4.5`` and does not start with less.
"""),
    cfg.StrOpt('compute', help="""
Newest version of messages that may be sent to compute agents.

A number, such as ``6.0``, or ``auto``, which asks all cells, or in a cell
without the API database that cell, for the oldest agent. A cell that does not
answer within ``[cells] timeout`` is left out. What was found holds until
SIGHUP.
"""),
    cfg.StrOpt('conductor', help="""
Newest version of messages that may be sent to conductors.

A number, such as ``1.19``. A compute agent hands builds on by what came with
``1.19`` and does not start with less.
"""),
]


def register_opts(conf):
    # A group remembers what is set in it, so each configuration has its own.
    conf.register_group(copy.deepcopy(GROUP))
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts():
    return {GROUP: OPTS}
