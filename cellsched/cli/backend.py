# SPDX-License-Identifier: Apache-2.0
"""The deployment of the configuration, as commands use it.

A command imports this module when it runs, and no earlier. A member imports
the modules that only some commands need: to import a scheduler or a conductor
takes longer than most commands.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import difflib
import functools
import itertools
import types
from typing import Any
from typing import cast
from typing import TextIO
from typing import TYPE_CHECKING

from oslo_config import cfg

from cellsched.api import validation
from cellsched.cells.gather import Gatherer
from cellsched.cells.gather import GatherResult
from cellsched.claims.base import Capability
from cellsched.claims.base import ClaimStore
from cellsched.claims.copying import ClaimCopier
from cellsched.cli.deployment import FILTERING
from cellsched.cli.deployment import Planner
from cellsched.cli.deployment import ReadDeployment
from cellsched.cli import terminal
from cellsched.clock import Clock
from cellsched.conf import database
from cellsched.conf import loader
from cellsched.context import admin
from cellsched.context import RequestContext
from cellsched.db import api as api_schema
from cellsched.db.api import decisions
from cellsched.db.api.decisions import DecisionRow
from cellsched.db.api import flavors
from cellsched.db.api import host_mappings
from cellsched.db import cell as cell_schema
from cellsched.db.cell import instance_history
from cellsched.db.schema import Schema
from cellsched.db.session import Database
from cellsched import exception
from cellsched import objects
from cellsched.wiring.api import API
from cellsched.wiring.api import command_api
from cellsched.wiring.api import read_hints
from cellsched.wiring.components import Components

if TYPE_CHECKING:
    from cellsched.audit.archive import Archiver
    from cellsched.audit.auditor import Auditor
    from cellsched.hosts import document
    from cellsched.scheduler import planning


#: The beginning of the id of a request.
_REQUEST = 'req-'


@dataclasses.dataclass(eq=False)
class Backend(ReadDeployment):
    """The configuration, and the components made of it on first use.

    :param options: the options that name the configuration files
    :param kinds: kinds of plug-ins that the command uses
    :param sends: whether the command sends messages
    :param stderr: the stream of progress bars
    """

    options: Sequence[str]
    kinds: Collection[str]
    sends: bool
    clock: Clock
    stderr: TextIO

    retention_option = '[scheduler] decision_retention'

    @functools.cached_property
    def conf(self) -> cfg.ConfigOpts:
        """The configuration.

        :raises cellsched.exception.ConfigurationInvalid: names the file and
            the option
        """
        conf = loader.load(self.options, kinds=self.kinds, messages=self.sends)
        database.be_impatient(conf)
        return conf

    @functools.cached_property
    def parts(self) -> Components:
        """Databases, transports and the components on top of them."""
        return Components(self.conf, self.clock, messages=self.sends)

    @functools.cached_property
    def api(self) -> API:
        """The API that a front end calls."""
        made = command_api(self.parts)
        if self.sends:
            made.check_messages()
            self.parts.trace('api')
        return made

    def problems(
        self, foreign: Collection[str], connect: bool
    ) -> Iterator[exception.CellschedException]:
        """Yield the errors in the configuration.

        :param foreign: groups of options of other programs
        :param connect: whether to connect to databases and brokers
        """
        # It imports the scheduler, and so NumPy, and oslo.policy.
        from cellsched.wiring import configuration

        # 1. Errors in the files, and in the values that they set.
        conf, problems = loader.examine(self.options, foreign=foreign)
        found = [*problems, *configuration.version_problems(conf)]
        yield from found
        yield from configuration.problems(conf)
        if found:
            return
        # 2. Errors in URLs, and in their drivers.
        database.be_impatient(conf)
        parts = Components(conf, self.clock)
        try:
            invalid = list(configuration.url_problems(parts))
            yield from invalid
            if connect and not invalid:
                yield from configuration.connection_problems(parts)
        finally:
            parts.close()

    def files(self) -> list[str]:
        """Return the configuration files."""
        return loader.files(self.options)

    def archiver(self) -> 'Archiver':
        """Return the archiver of deleted rows."""
        made: Archiver = self._maintenance.archiver(self.parts)
        return made

    def auditor(self) -> 'Auditor':
        """Return the auditor of all databases."""
        made: Auditor = self._maintenance.auditor(self.parts)
        return made

    @property
    def _maintenance(self) -> types.ModuleType:
        # Most commands need neither archiver nor auditor: 60 ms of CPU.
        from cellsched.wiring import maintenance

        return maintenance

    @property
    def cell_schema(self) -> Schema:
        """The schema of a cell's database."""
        return cell_schema.SCHEMA

    def schema(self, name: str) -> tuple[Schema, Database]:
        """Return the schema ``API``, ``cell`` or ``claims``, and its database.

        :raises cellsched.exception.ConfigurationInvalid: the claim store is
            not ``sql``
        """
        if name == 'API':
            return api_schema.SCHEMA, self.parts.database
        if name == 'cell':
            return cell_schema.SCHEMA, self.parts.cell_database
        # Most commands, and other claim stores, do not need it: 20 ms of CPU.
        from cellsched.claims import sql

        store = self.conf.claims.store
        if store != 'sql':
            raise exception.ConfigurationInvalid(
                field='[claims] store',
                problem=f'the store {store} has no schema', expected='sql')
        return sql.schema.SCHEMA, sql.database(self.conf, self.parts.databases)

    def claims_are_shared(self) -> bool:
        """Return whether other processes see the claim store."""
        return Capability.SHARED in self.parts.claims.capabilities

    def shared_claims(self) -> ClaimStore:
        """Return the claim store, if other processes see it.

        :raises cellsched.exception.ConfigurationInvalid: they do not
        """
        store = self.parts.claims
        if Capability.SHARED not in store.capabilities:
            raise exception.ConfigurationInvalid(
                field='[claims] store',
                problem=f'only one process sees the store '
                        f'{self.conf.claims.store}',
                expected='a store that other processes see')
        return store

    def claims_on(
        self, host: str, provider: str
    ) -> dict[str, dict[str, int]]:
        page = self.api.servers.list(admin(), {'host': host})
        claims = self.parts.claims.claims_of(
            each.uuid for each in page.servers)
        return {each.consumer: dict(each.resources)
                for held in claims.values() for each in held
                if each.provider == provider}

    def copier(
        self, target: 'Backend', target_name: str, batch: int
    ) -> ClaimCopier:
        """Return a copier of the claims of this deployment.

        :param target: the deployment with the other claim store
        :param target_name: the name of its configuration in errors
        """
        def store_of(backend: Backend, name: str) -> ClaimStore:
            try:
                store = backend.shared_claims()
            except exception.ConfigurationInvalid as exc:
                raise exception.ConfigurationInvalid(
                    f'{name}: {exc.format_message()}') from exc
            store.check()
            return store

        return ClaimCopier(store_of(self, 'the source'),
                           store_of(target, target_name), batch)

    def other(self, files: Sequence[str]) -> 'Backend':
        """Return the deployment of other configuration files."""
        return Backend([f'--config-file={file}' for file in files],
                       self.kinds, self.sends, self.clock, self.stderr)

    def durable_claims(self) -> ClaimStore:
        """Return the claim store, if its claims outlive the process.

        :raises cellsched.exception.ConfigurationInvalid: they do not
        """
        store, name = self.parts.claims, self.conf.claims.store
        if Capability.DURABLE not in store.capabilities:
            raise exception.ConfigurationInvalid(
                field='[claims] store',
                problem=f'the store {name} keeps claims only in its process',
                expected='a durable store')
        return store

    @property
    def retention_s(self) -> int:
        retention_s: int = self.conf.scheduler.decision_retention
        return retention_s

    @property
    def hints(self) -> frozenset[str] | None:
        return read_hints(self.conf)

    def cells(self) -> Mapping[str, str]:
        return {cell.uuid: cell.name or cell.uuid
                for cell in self.parts.cells.all()}

    def flavor(self, name: str) -> objects.Flavor:
        return self.api.flavors.get(admin(), name)

    def server_group(self, uuid: str) -> objects.InstanceGroup:
        return self.api.server_groups.get(admin(), uuid)

    def snapshot(self) -> 'document.HostDocument':
        self.parts.gatherer = cast(Gatherer, CountingGatherer(
            self.parts.gatherer, self.stderr))
        return self._schedulers.host_source(self.parts).snapshot(admin())

    def planner(
        self, snapshot: 'document.HostDocument | None' = None
    ) -> Planner:
        if snapshot is None:
            planner: Planner = self._schedulers.planner(self.parts)
            return planner
        driver = self.conf.scheduler.driver
        if driver not in FILTERING:
            raise exception.ConfigurationInvalid(
                field='[scheduler] driver',
                problem=f'{driver} cannot decide on a snapshot',
                expected=f'one of {", ".join(FILTERING)}')
        made: Planner = self._planning.on_snapshot(
            self.conf, snapshot, self.parts.random)
        return made

    def capacity(
        self, snapshot: 'document.HostDocument', request: objects.RequestSpec
    ) -> 'planning.Capacity':
        found: planning.Capacity = self._planning.capacity(
            self.conf, snapshot, request)
        return found

    @property
    def _planning(self) -> types.ModuleType:
        # The scheduler imports NumPy.
        from cellsched.scheduler import planning

        return planning

    @property
    def _schedulers(self) -> types.ModuleType:
        # The scheduler imports NumPy.
        from cellsched.wiring import scheduler

        return scheduler

    def decisions(self, name: str, limit: int | None) -> list[DecisionRow]:
        with self.parts.database.reader() as connection:
            found = decisions.find(connection, name, limit)
        if not found:
            with contextlib.suppress(
                    exception.InstanceNotFound, exception.CellsDown):
                uuid = self.api.servers.find(admin(), name)
                with self.parts.database.reader() as connection:
                    found = decisions.find(connection, uuid, limit)
        return found

    def has_server(self, name: str) -> bool:
        servers = self.api.servers
        try:
            servers.get(admin(), servers.find(admin(), name))
        except exception.InstanceNotFound:
            return name.startswith(_REQUEST)
        except exception.CellsDown:
            pass
        return True

    def latest_decisions(self, limit: int) -> list[DecisionRow]:
        """Return the newest recorded decisions, the newest first."""
        with self.parts.database.reader() as connection:
            return decisions.latest(connection, limit)

    def latest_failures(self, limit: int) -> Sequence[Any]:
        """Return the newest faults in cell0, the newest first.

        :raises cellsched.exception.CellMappingNotFound: cell0 is not mapped
        :raises cellsched.exception.CellUnreachable: cell0 does not answer
        """
        def read(cell_context: RequestContext) -> Sequence[Any]:
            assert cell_context.cell is not None
            with cell_context.cell.database.reader() as connection:
                return instance_history.newest_faults(connection, limit)

        cell0 = self.parts.cells.cell0()
        gathered = self.parts.gatherer.gather(admin(), [cell0], read)
        if cell0.uuid not in gathered.results:
            raise exception.CellUnreachable(
                cell='cell0', reason='it records the failed builds')
        rows: Sequence[Any] = gathered.results[cell0.uuid]
        return rows

    def similar(self, error: exception.CellschedException) -> str:
        """Return a question with a similar name, or an empty text.

        :param error: a cell, a flavor or a host does not exist
        """
        with self.parts.database.reader() as connection:
            if isinstance(error, exception.FlavorNotFound):
                name, names = error.flavor, [
                    each.name for each in flavors.list_all(connection)]
            elif isinstance(error, exception.CellMappingNotFound):
                name, names = error.uuid, [
                    each.name for each in self.parts.cells.all() if each.name]
            else:
                name, names = error.host, [
                    host for hosts in host_mappings.by_cell(
                        connection).values() for host in hosts]
        found = difflib.get_close_matches(name, sorted(names), 1)
        return '' if found in ([], [name]) else f'; did you mean {found[0]}?'

    def context(self, project_id: str, user_id: str) -> RequestContext:
        """Return the context of an administrator.

        :raises cellsched.exception.InvalidField: an id is invalid
        """
        validation.check_text('options', '--os-project-id', project_id)
        validation.check_text('options', '--os-user-id', user_id)
        return RequestContext(
            project_id=project_id, user_id=user_id, is_admin=True)

    def close(self) -> None:
        """Close the components, if they were made."""
        if 'parts' in self.__dict__:
            self.parts.close()


class CountingGatherer:
    """Gathers from cells, and shows how many have answered."""

    def __init__(self, gatherer: Gatherer, stream: TextIO) -> None:
        self._gatherer = gatherer
        self._stream = stream

    def gather(
        self, context: RequestContext, cells: Iterable[objects.CellMapping],
        function: Callable[[RequestContext], Any],
        timeout_s: float | None = None,
    ) -> GatherResult:
        cells = list(cells)
        done = itertools.count(1)
        with terminal.progress('Reading cells', len(cells),
                               self._stream) as advance:
            def read(cell_context: RequestContext) -> Any:
                try:
                    return function(cell_context)
                finally:
                    advance(next(done))

            return self._gatherer.gather(context, cells, read, timeout_s)

    def call(
        self, name: str, function: Callable[[], Any], timeout_s: float
    ) -> GatherResult:
        return self._gatherer.call(name, function, timeout_s)
