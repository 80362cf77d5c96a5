# SPDX-License-Identifier: Apache-2.0
"""The parts of a process that has the API database, and so all cells."""

import functools
from typing import TYPE_CHECKING

from cellsched.cells import registry
from cellsched.cells import target
from cellsched.db import api as api_schema
from cellsched.db import session
from cellsched.parts import process

if TYPE_CHECKING:
    from futurist import ThreadPoolExecutor

    from cellsched.cells.discovery import Discovery
    from cellsched.cells.gather import Gatherer
    from cellsched.rpc import compute_cap


class APIDatabaseParts(process.ProcessParts):
    """The API database, and what reaches all cells."""

    def lowest_compute(self) -> 'compute_cap.Lowest':
        """Return the lowest version of the compute services of all cells."""
        from cellsched.cells import versions as cell_versions

        return cell_versions.over_cells(self.cells, self.gatherer)

    @functools.cached_property
    def database(self) -> session.Database:
        """The API database."""
        return self.open_database('api_database', api_schema.SCHEMA.name)

    @functools.cached_property
    def cells(self) -> registry.CellRegistry:
        """The cells that there are."""
        return registry.CellRegistry(
            self.database, self.clock, self.conf.cells.refresh_interval)

    @functools.cached_property
    def targets(self) -> target.Targets:
        """Databases and transports of cells."""
        return target.Targets(
            self.databases, self.transports,
            session.engine_options(self.conf, 'database'),
            self.conf.database.connection)

    @functools.cached_property
    def executor(self) -> 'ThreadPoolExecutor':
        """Threads that ask cells."""
        # Many a command asks none.
        from futurist import ThreadPoolExecutor

        return ThreadPoolExecutor(self.conf.cell_worker_thread_pool_size)

    @functools.cached_property
    def gatherer(self) -> 'Gatherer':
        """Asks all cells at once."""
        from cellsched.cells import gather

        return gather.Gatherer(
            self.executor, self.targets, self.clock, self.conf.cells.timeout)

    @functools.cached_property
    def discovery(self) -> 'Discovery':
        """Maps hosts to their cells."""
        from cellsched.cells import discovery

        return discovery.Discovery(
            self.database, self.cells, self.targets, self.clock)

    def close(self) -> None:
        if 'executor' in self.__dict__:
            self.executor.shutdown(wait=False)
        super().close()
