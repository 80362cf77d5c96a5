# SPDX-License-Identifier: Apache-2.0
"""Network plug-ins with options."""

from oslo_config import cfg


def make(plugin, **options):
    conf = cfg.ConfigOpts()
    conf.register_opts(plugin.opts(), group=plugin.group)
    conf([], default_config_files=[], default_config_dirs=[])
    for name, value in options.items():
        conf.set_override(name, value, plugin.group)
    return plugin(conf)
