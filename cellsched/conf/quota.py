# SPDX-License-Identifier: Apache-2.0
"""Options of quotas: ``[quota]``."""

import copy

from oslo_config import cfg

GROUP = cfg.OptGroup('quota', title='Quotas')

OPTS = [
    cfg.StrOpt('driver', default='DbQuotaDriver', help="""
Driver that says how much a project may have.

Names are entry points in ``cellsched.quota``; Nova's, which have a module
before the name, are taken too. ``UnifiedLimitsDriver`` has its limits from
Keystone, and ``NoopQuotaDriver`` limits nothing.
"""),
    cfg.IntOpt('instances', default=10, min=-1, help="""
Servers that a project may have.

-1 is no limit. ``cellsched quota set`` gives a project other limits.
"""),
    cfg.IntOpt('cores', default=20, min=-1, help="""
Virtual CPUs that the servers of a project may have together.

-1 is no limit.
"""),
    cfg.IntOpt('ram', default=50 * 1024, min=-1, help="""
Memory in MB that the servers of a project may have together.

-1 is no limit.
"""),
    cfg.BoolOpt('recheck_quota', default=True, help="""
Let conductors count once more, before a server is built.

Requests that come at the same time may all be accepted though together they
are too many; then as many as fit are built, and the others are in ERROR.
Switched off, such a burst exceeds the limits.
"""),
    cfg.StrOpt('unified_limits_resource_strategy', default='require',
               choices=('require', 'ignore'), help="""
Meaning of a resource for which Keystone has no registered limit.

With ``require`` nobody may have any of the resources in
``unified_limits_resource_list``, and the others are not limited; with
``ignore`` it is the reverse. ``UnifiedLimitsDriver`` reads it.
"""),
    cfg.ListOpt('unified_limits_resource_list', default=['servers'], help="""
Resources that ``unified_limits_resource_strategy`` speaks of.

Those that are counted are ``servers``, ``class:VCPU`` and
``class:MEMORY_MB``.
"""),
    cfg.IntOpt('unified_limits_refresh_interval', default=10, min=0, help="""
Seconds for which limits that Keystone told are not asked for again.

A limit that is changed there holds here after that time. If Keystone does not
answer then, what it told last holds on, and it is asked again after as long.
0 asks for each request.
"""),
]


def register_opts(conf):
    # A group remembers what is set in it, so each configuration has its own.
    conf.register_group(copy.deepcopy(GROUP))
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts():
    return {GROUP: OPTS}
