# SPDX-License-Identifier: Apache-2.0
"""Options of quotas: ``[quota]``."""

from oslo_config import cfg

GROUP = cfg.OptGroup('quota', title='Quotas')

OPTS = [
    cfg.StrOpt('driver', default='DbQuotaDriver', help="""
Driver that provides the limits of projects.

Names are entry points in ``cellsched.quota``. Nova's names, which begin with a
module, are accepted too. ``UnifiedLimitsDriver`` reads the limits from
Keystone, and ``NoopQuotaDriver`` has no limits.
"""),
    cfg.IntOpt('instances', default=10, min=-1,
               deprecated_group='DEFAULT',
               deprecated_name='quota_instances', help="""
Limit of the servers of a project.

-1 means no limit. ``cellsched quota set`` sets other limits for a project.
"""),
    cfg.IntOpt('cores', default=20, min=-1,
               deprecated_group='DEFAULT',
               deprecated_name='quota_cores', help="""
Limit of the virtual CPUs of all servers of a project.

-1 means no limit.
"""),
    cfg.IntOpt('ram', default=50 * 1024, min=-1,
               deprecated_group='DEFAULT',
               deprecated_name='quota_ram', help="""
Limit of the memory of all servers of a project, in MB.

-1 means no limit.
"""),
    cfg.BoolOpt('recheck_quota', default=True, help="""
Check the quota again before a server is built.

Concurrent requests may be accepted although together they exceed the limit.
With this check, as many servers as allowed are built, and the others are in
ERROR. If it is off, concurrent requests can exceed the limit.
"""),
    cfg.IntOpt('servers_per_minute', min=1, help="""
Largest number of servers that a project may request in a minute.

A request beyond it is refused with code 429, and the error says when to retry.
A project that requested nothing for a minute may request this number at once,
or more in one request; the next request then waits longer. Each process of a
front end, and each service that embeds a conductor, counts for itself.

By default there is no limit: the builds of projects take turns anyway.
"""),
    cfg.StrOpt('unified_limits_resource_strategy', default='require',
               choices=('require', 'ignore'), help="""
Meaning of a resource for which Keystone has no registered limit.

With ``require``, a resource in ``unified_limits_resource_list`` has the limit
0, and another one has no limit; with ``ignore`` it is the reverse.
``UnifiedLimitsDriver`` reads it.
"""),
    cfg.ListOpt('unified_limits_resource_list', default=['servers'], help="""
Resources for ``unified_limits_resource_strategy``.

The counted resources are ``servers``, ``class:VCPU`` and
``class:MEMORY_MB``.
"""),
    cfg.IntOpt('unified_limits_refresh_interval', default=10, min=0, help="""
Seconds for which limits from Keystone are cached.

A changed limit takes effect after this time. If Keystone does not answer, the
cached limit stays in force for this time again. With 0, Keystone is asked for
each request.
"""),
]
