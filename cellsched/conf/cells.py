# SPDX-License-Identifier: Apache-2.0
"""Options of requests to several cells: ``[cells]``."""

from oslo_config import cfg

GROUP = cfg.OptGroup('cells', title='Cells')

OPTS = [
    cfg.FloatOpt('timeout', default=10.0, min=0.1, help="""
Seconds to wait for the answer of a cell.

A cell that does not answer in time is skipped. Raise this where databases of
cells are slow or far away.
"""),
    cfg.FloatOpt('refresh_interval', default=10.0, min=0.0, help="""
Seconds between two readings of the list of cells.

New, disabled and changed cells are used after this time, without a restart.
"""),
]
