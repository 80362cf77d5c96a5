# SPDX-License-Identifier: Apache-2.0
"""The parts of a process that works in one cell."""

import functools
from typing import TYPE_CHECKING

from cellsched.db import cell as cell_schema
from cellsched.db.cell import services
from cellsched.db import session
from cellsched.parts import process

if TYPE_CHECKING:
    from cellsched.rpc.compute_cap import Lowest


class CellParts(process.ProcessParts):
    """The parts of a process of one cell."""

    def lowest_compute(self) -> 'Lowest':
        """Return the lowest version of the compute services of the cell."""
        from cellsched.rpc import compute_cap

        with self.cell_database.reader() as connection:
            return compute_cap.Lowest(
                services.lowest_version(connection, services.COMPUTE))

    @functools.cached_property
    def cell_database(self) -> session.Database:
        """The database of this process's own cell."""
        return self.open_database('database', cell_schema.SCHEMA.name)
