# SPDX-License-Identifier: Apache-2.0
"""All options, for oslo.config."""

from oslo_config import cfg

from cellsched.conf import api
from cellsched.conf import claims
from cellsched.conf import conductor
from cellsched.conf import database
from cellsched.conf import default
from cellsched.conf import enabled
from cellsched.conf import filter_scheduler
from cellsched.conf import metrics
from cellsched.conf import notifications
from cellsched.conf import pci
from cellsched.conf import quota
from cellsched.conf import scheduler
from cellsched import exception
from cellsched import plugins

#: Each group with its options.
GROUPS = (
    (api.GROUP, api.OPTS), (default.CELLS_GROUP, default.CELLS_OPTS),
    (claims.GROUP, claims.OPTS), (default.COMPUTE_GROUP, default.COMPUTE_OPTS),
    (conductor.GROUP, conductor.OPTS),
    (claims.COORDINATION_GROUP, claims.COORDINATION_OPTS),
    (database.API_GROUP, database.OPTS), (database.GROUP, database.OPTS),
    (default.GROUP, default.OPTS),
    (default.MONITORING_GROUP, default.MONITORING_OPTS),
    (default.TRACING_GROUP, default.TRACING_OPTS),
    (filter_scheduler.GROUP, filter_scheduler.OPTS),
    (metrics.GROUP, metrics.OPTS), (notifications.GROUP, notifications.OPTS),
    (pci.GROUP, pci.OPTS), (quota.GROUP, quota.OPTS),
    (scheduler.GROUP, scheduler.OPTS),
    (default.UPGRADE_LEVELS_GROUP, default.UPGRADE_LEVELS_OPTS))


def register_opts(conf):
    """Register the options of every group, without those of plug-ins."""
    for group, options in GROUPS:
        # A group remembers what is set in it: each configuration has its own.
        conf.register_opts(options, group=(
            None if group is default.GROUP else
            cfg.OptGroup(group.name, group.title, group.help)))


def list_core():
    """Return the options of every group, without those of plug-ins."""
    return [(group.name, list(options)) for group, options in GROUPS]


def list_opts():
    """Return the options for the generator of sample files.

    They include the options of the plug-ins of this project. This is the
    entry point ``cellsched`` in ``oslo.config.opts``.
    """
    by_group = dict(list_core())
    for namespace in plugins.WITH_OPTIONS:
        for name, plugin in plugins.load_shipped(namespace).items():
            try:
                options = enabled.options_of(plugin, name)
            except exception.ConfigurationInvalid:
                # An extra that the plug-in needs is not installed.
                continue
            known = by_group.setdefault(plugin.group, [])
            known.extend(opt for opt in options if opt not in known)
    return sorted(by_group.items())
