# SPDX-License-Identifier: Apache-2.0
"""Options of compute agents: ``[compute]``."""

from oslo_config import cfg

GROUP = cfg.OptGroup('compute', title='Compute agent')

OPTS = [
    cfg.StrOpt('provider_config_location',
               default='/etc/cellsched/provider_config/', help="""
Directory of provider configuration files for the nodes of this host.

Each file whose name ends with ``.yaml`` is read, in the format of Nova. Its
traits are added to those of the driver. The files are read when the agent
starts, and again when one changes. The directory may be missing.
"""),
]
