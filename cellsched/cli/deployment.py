# SPDX-License-Identifier: Apache-2.0
"""The deployment that commands decide on, and only read.

Commands that plan, count or explain ask for what is here and for nothing
else, so that an application for hosts of someone else's has the same ones.
"""

import abc
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import itertools
from typing import Any
from typing import cast
from typing import Protocol
from typing import TextIO
from typing import TYPE_CHECKING

from cellsched.cli import progress

if TYPE_CHECKING:
    from cellsched.cells.gather import Gathered
    from cellsched.cells.gather import Gatherer
    from cellsched.cli.app import App
    from cellsched.context import RequestContext
    from cellsched.db.api.decisions import DecisionRow
    from cellsched.hosts import document
    from cellsched import objects
    from cellsched.scheduler.explanation import decision_record
    from cellsched.scheduler import planning


class Planner(Protocol):
    """Decides as a scheduler does, and takes nothing."""

    def plan(
        self, context: 'RequestContext',
        request: 'objects.RequestSpec', uuids: Sequence[str], alternates: int,
        /,
    ) -> 'tuple[list[list[Any]], decision_record.Decision]':
        """Return for each server its host and others, and the decision.

        :returns: nothing chosen and a reason, where not all of them fit
        """


class ReadDeployment(abc.ABC):
    """A deployment, as commands read it.

    All of it may block, and raises what the application reports.

    :ivar retention_option: the option that says for how long decisions are
        kept
    """

    retention_option: str

    @property
    @abc.abstractmethod
    def retention_s(self) -> int:
        """Seconds for which decisions are kept; zero for none."""

    @property
    @abc.abstractmethod
    def hints(self) -> frozenset[str] | None:
        """The scheduler hints that a request may have; None for any."""

    @abc.abstractmethod
    def cells(self) -> Mapping[str, str]:
        """Return the names of cells, by uuid."""

    @abc.abstractmethod
    def flavor(self, name: str) -> 'objects.Flavor':
        """Return a flavor.

        :param name: its id or name
        :raises cellsched.exception.FlavorNotFound: there is none
        """

    @abc.abstractmethod
    def server_group(self, uuid: str) -> 'objects.InstanceGroup':
        """Return a server group.

        :raises cellsched.exception.InstanceGroupNotFound: there is none
        """

    @abc.abstractmethod
    def snapshot(self) -> 'document.HostDocument':
        """Return the hosts as they are now."""

    @abc.abstractmethod
    def planner(
        self, snapshot: 'document.HostDocument | None' = None
    ) -> Planner:
        """Return what plans on the hosts as they are now.

        :param snapshot: the hosts in place of those
        """

    @abc.abstractmethod
    def room(
        self, snapshot: 'document.HostDocument',
        request: 'objects.RequestSpec',
    ) -> 'planning.Room':
        """Return how many servers of one kind fit, and what rejects.

        :param snapshot: the hosts, from here or from a file
        :raises cellsched.exception.InvalidField: something asked for makes
            no sense, or is read by no filter
        """

    @abc.abstractmethod
    def decisions(
        self, name: str, limit: int | None
    ) -> 'list[DecisionRow]':
        """Return the decisions on a server or a request, the newest first.

        :param name: uuid of a server, or id of a request
        """


class OwnDeployment(ReadDeployment):
    """The deployment that the configuration of an application names."""

    retention_option = '[scheduler] decision_retention'

    def __init__(self, app: 'App') -> None:
        self._app = app

    @property
    def retention_s(self) -> int:
        retention_s: int = self._app.conf.scheduler.decision_retention
        return retention_s

    @property
    def hints(self) -> frozenset[str] | None:
        from cellsched.filters import registry

        return registry.hints(self._app.conf)

    def cells(self) -> Mapping[str, str]:
        return {cell.uuid: cell.name or cell.uuid
                for cell in self._app.parts.cells.all()}

    def flavor(self, name: str) -> 'objects.Flavor':
        from cellsched import context

        return self._app.api.flavors.get(context.admin(), name)

    def server_group(self, uuid: str) -> 'objects.InstanceGroup':
        from cellsched import context

        return self._app.api.server_groups.get(context.admin(), uuid)

    def snapshot(self) -> 'document.HostDocument':
        app = self._app
        parts = app.planner_parts
        from cellsched import context
        from cellsched.wiring import planner

        parts.gatherer = cast('Gatherer', CountingGatherer(
            parts.gatherer, app.stderr))
        return planner.planner(app.conf, parts).loader.snapshot(
            context.admin())

    def planner(
        self, snapshot: 'document.HostDocument | None' = None
    ) -> Planner:
        app = self._app
        parts = app.planner_parts
        if snapshot is not None:
            from cellsched.scheduler import planning

            return planning.on_snapshot(app.conf, snapshot, parts.random)
        from cellsched.wiring import planner

        return planner.planner(app.conf, parts)

    def room(
        self, snapshot: 'document.HostDocument',
        request: 'objects.RequestSpec',
    ) -> 'planning.Room':
        from cellsched.scheduler import planning

        return planning.room(self._app.conf, snapshot, request)

    def decisions(
        self, name: str, limit: int | None
    ) -> 'list[DecisionRow]':
        from cellsched.db.api import decisions

        with self._app.parts.database.reader() as connection:
            return decisions.find(connection, name, limit)


class CountingGatherer:
    """Asks cells, and shows how many are through."""

    def __init__(self, gatherer: 'Gatherer', stream: TextIO) -> None:
        self._gatherer = gatherer
        self._stream = stream

    def gather(
        self, context: 'RequestContext',
        cells: 'Iterable[objects.CellMapping]',
        function: Callable[['RequestContext'], Any],
    ) -> 'Gathered':
        cells = list(cells)
        done = itertools.count(1)
        with progress.bar('Reading cells', len(cells),
                          self._stream) as advance:
            def ask(aimed: 'RequestContext') -> Any:
                try:
                    return function(aimed)
                finally:
                    advance(next(done))

            return self._gatherer.gather(context, cells, ask)
