# SPDX-License-Identifier: Apache-2.0
"""Versions of messages during an upgrade: ``[upgrade_levels]``."""

from oslo_config import cfg

GROUP = cfg.OptGroup('upgrade_levels', title='Versions during an upgrade')

OPTS = [
    cfg.StrOpt('scheduler', help="""
Newest version of messages that may be sent to schedulers.

A version or the name of a release, such as ``4.4`` or ``pike``. Set it while
some schedulers are older than their callers. A conductor of this project needs
``4.5`` and does not start with less.
"""),
    cfg.StrOpt('compute', help="""
Newest version of messages that may be sent to compute agents.

A version, such as ``6.0``, or ``auto``, which finds the version of the oldest
agent in all cells; a service without the API database reads its cell only. A
cell that does not answer within ``[cells] timeout`` is skipped. The version is
found again at SIGHUP.
"""),
    cfg.StrOpt('conductor', help="""
Newest version of messages that may be sent to conductors.

A version, such as ``1.19``. A compute agent needs ``1.19`` to return builds,
and does not start with less.
"""),
]
