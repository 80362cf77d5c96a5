# SPDX-License-Identifier: Apache-2.0
"""All options, those of the plug-ins among them, for who gathers them."""

from cellsched.conf import api
from cellsched.conf import api_database
from cellsched.conf import cells
from cellsched.conf import claims
from cellsched.conf import conductor
from cellsched.conf import database
from cellsched.conf import default
from cellsched.conf import filter_scheduler
from cellsched.conf import metrics
from cellsched.conf import notifications
from cellsched.conf import quota
from cellsched.conf import scheduler
from cellsched.conf import upgrade_levels
from cellsched import plugins

MODULES = (api, api_database, cells, claims, conductor, database, default,
           filter_scheduler, metrics, notifications, quota, scheduler,
           upgrade_levels)

#: Kinds of plug-ins that have options; a plug-in says them by ``opts()`` and
#: where they go by ``group``.
NAMESPACES = (plugins.FILTERS, plugins.WEIGHERS, plugins.CLAIMS, plugins.VIRT,
              plugins.NETWORKS, plugins.DRIVERS, plugins.QUOTA)


def register_opts(conf):
    """Register the options of every group and of every installed plug-in."""
    for module in MODULES:
        module.register_opts(conf)
    for plugin in _plugins():
        conf.register_opts(plugin.opts(), group=plugins.group(plugin))


def list_opts():
    """Return the options as oslo.config's generator wants them.

    This is the entry point ``cellsched`` in ``oslo.config.opts``.
    """
    by_group = {}
    for module in MODULES:
        for group, opts in module.list_opts().items():
            by_group[group.name] = list(opts)
    for plugin in _plugins():
        known = by_group.setdefault(plugin.group, [])
        known.extend(opt for opt in plugin.opts() if opt not in known)
    return sorted(by_group.items())


def _plugins():
    for namespace in NAMESPACES:
        for plugin in plugins.load_all(namespace).values():
            # Those that are written as Nova's have none.
            if hasattr(plugin, 'opts'):
                yield plugin
