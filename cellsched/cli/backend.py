# SPDX-License-Identifier: Apache-2.0
"""The deployment of the configuration, as commands use it.

A command imports this module when it runs, and no earlier. What only some
commands need is imported by the member that needs it: to import a scheduler
or a conductor takes longer than most commands.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import itertools
from typing import Any
from typing import cast
from typing import TextIO
from typing import TYPE_CHECKING

from oslo_config import cfg

from cellsched.api import validation
from cellsched.cells.gather import Gathered
from cellsched.cells.gather import Gatherer
from cellsched.cli.deployment import Planner
from cellsched.cli.deployment import ReadDeployment
from cellsched.cli import progress
from cellsched.clock import Clock
from cellsched.conf import database
from cellsched.conf import loader
from cellsched.context import admin
from cellsched.context import RequestContext
from cellsched.db.api import decisions
from cellsched import objects
from cellsched.wiring.api import API
from cellsched.wiring import command as assembly

if TYPE_CHECKING:
    from cellsched.archive.archiver import Archiver
    from cellsched.audit import checks
    from cellsched import embedding
    from cellsched.hosts import document
    from cellsched.scheduler import planning
    from cellsched.wiring import planner


class Backend:
    """The configuration, and the components made of it on first use.

    :param options: the options that name the configuration files
    :param kinds: kinds of plug-ins that the command uses
    :param sends: whether the command sends messages
    :param stderr: the stream of progress bars
    """

    def __init__(
        self, options: Sequence[str], kinds: Collection[str], sends: bool,
        clock: Clock, stderr: TextIO,
    ) -> None:
        self._options = options
        self._kinds = kinds
        self._sends = sends
        self._clock = clock
        self._stderr = stderr

    @functools.cached_property
    def conf(self) -> cfg.ConfigOpts:
        """The configuration.

        :raises cellsched.exception.ConfigurationInvalid: names the file and
            the option
        """
        conf = loader.load(
            self._options, kinds=self._kinds, messages=self._sends)
        database.be_impatient(conf)
        return conf

    @functools.cached_property
    def parts(self) -> assembly.CommandParts:
        """Databases, transports and the components on top of them."""
        parts = assembly.CommandParts(self.conf, self._clock)
        if self._sends:
            parts.check_messages()
        return parts

    @functools.cached_property
    def planner_parts(self) -> 'planner.PlannerParts':
        """The parts of a scheduler."""
        from cellsched.wiring import planner

        return planner.PlannerParts(
            self.conf, self._clock, None, self.parts.databases,
            self.parts.transports)

    @functools.cached_property
    def conductor_parts(self) -> 'embedding.ConductorParts':
        """The parts of a conductor."""
        from cellsched import embedding

        return embedding.ConductorParts(
            self.conf, self._clock, None, self.parts.databases,
            self.parts.transports)

    @functools.cached_property
    def api(self) -> API:
        """The API that a front end calls."""
        made = assembly.api(self.conf, self.parts)
        if self._sends:
            made.check_messages()
        return made

    @functools.cached_property
    def deployment(self) -> ReadDeployment:
        """The deployment, for commands that only read."""
        return ConfiguredDeployment(self, self._stderr)

    def archiver(self) -> 'Archiver':
        """Return the archiver of deleted rows."""
        from cellsched.wiring import archiver

        return archiver.archiver(self.conf, self.conductor_parts)

    def auditor(self) -> 'checks.Auditor':
        """Return the auditor of all databases."""
        from cellsched.wiring import auditor

        return auditor.auditor(self.conf, self.conductor_parts)

    def context(self, project_id: str, user_id: str) -> RequestContext:
        """Return the context of an administrator.

        :raises cellsched.exception.InvalidField: an id is invalid
        """
        validation.check_text('options', '--os-project-id', project_id)
        validation.check_text('options', '--os-user-id', user_id)
        return RequestContext(
            project_id=project_id, user_id=user_id, is_admin=True)

    def close(self) -> None:
        """Close what was made, in the order of its dependencies."""
        for name in ('planner_parts', 'conductor_parts', 'parts'):
            if name in self.__dict__:
                getattr(self, name).close()


class ConfiguredDeployment(ReadDeployment):
    """The deployment of the configuration."""

    retention_option = '[scheduler] decision_retention'

    def __init__(self, backend: Backend, stderr: TextIO) -> None:
        self._backend = backend
        self._stderr = stderr

    @property
    def retention_s(self) -> int:
        retention_s: int = self._backend.conf.scheduler.decision_retention
        return retention_s

    @property
    def hints(self) -> frozenset[str] | None:
        from cellsched.filters import registry

        return registry.hints(self._backend.conf)

    def cells(self) -> Mapping[str, str]:
        return {cell.uuid: cell.name or cell.uuid
                for cell in self._backend.parts.cells.all()}

    def flavor(self, name: str) -> objects.Flavor:
        return self._backend.api.flavors.get(admin(), name)

    def server_group(self, uuid: str) -> objects.InstanceGroup:
        return self._backend.api.server_groups.get(admin(), uuid)

    def snapshot(self) -> 'document.HostDocument':
        parts = self._backend.planner_parts
        parts.gatherer = cast(Gatherer, CountingGatherer(
            parts.gatherer, self._stderr))
        return self._planner().loader.snapshot(admin())

    def planner(
        self, snapshot: 'document.HostDocument | None' = None
    ) -> Planner:
        if snapshot is None:
            return self._planner()
        from cellsched.scheduler import planning

        return planning.on_snapshot(
            self._backend.conf, snapshot, self._backend.planner_parts.random)

    def room(
        self, snapshot: 'document.HostDocument', request: objects.RequestSpec
    ) -> 'planning.Room':
        from cellsched.scheduler import planning

        return planning.room(self._backend.conf, snapshot, request)

    def decisions(
        self, name: str, limit: int | None
    ) -> list[decisions.DecisionRow]:
        with self._backend.parts.database.reader() as connection:
            return decisions.find(connection, name, limit)

    def _planner(self) -> Any:
        from cellsched.wiring import planner

        return planner.planner(
            self._backend.conf, self._backend.planner_parts)


class CountingGatherer:
    """Gathers from cells, and shows how many have answered."""

    def __init__(self, gatherer: Gatherer, stream: TextIO) -> None:
        self._gatherer = gatherer
        self._stream = stream

    def gather(
        self, context: RequestContext, cells: Iterable[objects.CellMapping],
        function: Callable[[RequestContext], Any],
    ) -> Gathered:
        cells = list(cells)
        done = itertools.count(1)
        with progress.bar('Reading cells', len(cells),
                          self._stream) as advance:
            def read(cell_context: RequestContext) -> Any:
                try:
                    return function(cell_context)
                finally:
                    advance(next(done))

            return self._gatherer.gather(context, cells, read)
