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
    cfg.BoolOpt('adopt_guests', default=False, help="""
Whether the agent adopts guests of its machine that belong to another host.

An agent does not start if its machine has guests that the cell places on
another host name, or if it is new in its cell and the cell does not know its
guests. After you renamed the host, set this to start it once: the rows of the
former name, or of these guests, get the name of this host. The agent of the
other host must be down, or must have reported that it does not have the
guests. Guests that the cell does not know run on, and the audit lists them.

Related options:

* ``[DEFAULT] host``
* ``[DEFAULT] state_path``
"""),
]
