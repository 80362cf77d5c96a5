# SPDX-License-Identifier: Apache-2.0
"""Checks of a deployment before its services are upgraded, or after.

The text of a failed check ends with the command that fixes the problem.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import datetime
import functools
from typing import Any

from oslo_upgradecheck import upgradecheck

from cellsched.audit.checks import check_capacity
from cellsched.audit import state
from cellsched.cells import gather
from cellsched.cells import registry
from cellsched.claims import base as claims_base
from cellsched import context
from cellsched.db import api as api_schema
from cellsched.db.api import host_mappings
from cellsched.db import cell as cell_schema
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import services
from cellsched.db import errors
from cellsched.db import session
from cellsched import exception
from cellsched import objects
from cellsched.rpc import compute

Result = upgradecheck.Result
Code = upgradecheck.Code

#: How many hosts, or kinds of findings, are named.
_NAMED_MAX = 5

_AGAIN = 'run: cellsched-status upgrade check'


@dataclasses.dataclass(frozen=True)
class CellAnswer:
    """The state of a cell.

    :param version: of its schema; None where it has no tables
    :param hosts: hosts of its compute nodes
    :param services: versions of its compute services, by host; 0 where one
        does not tell
    :param down: its services that are down and not disabled
    """

    version: str | None
    hosts: Sequence[str] = ()
    services: Mapping[str, int] = dataclasses.field(default_factory=dict)
    down: Sequence[str] = ()


class CheckedDeployment:
    """A deployment to check; all cells are read once, in parallel.

    :param make_claims: returns the claim store, or None if other processes
        do not share it
    :param down_s: seconds without a report after which a service is down
    """

    def __init__(
        self, database: session.Database, cells: registry.CellRegistry,
        gatherer: gather.Gatherer,
        make_claims: Callable[[], claims_base.ClaimStore | None],
        down_s: float,
    ) -> None:
        self.database = database
        self._down = datetime.timedelta(seconds=down_s)
        self._cells = cells
        self._gatherer = gatherer
        self._make_claims = make_claims

    @functools.cached_property
    def claims(self) -> claims_base.ClaimStore | None:
        """The claim store; its schema is checked."""
        store = self._make_claims()
        if store is not None:
            store.check()
        return store

    @functools.cached_property
    def cells(self) -> dict[str, objects.CellMapping]:
        """The cells, cell0 among them, by their uuids."""
        return {cell.uuid: cell for cell in self._cells.all()}

    @functools.cached_property
    def gathered(self) -> gather.GatherResult:
        """Answers of the cells."""
        return self._gatherer.gather(
            context.admin(), self.cells.values(),
            functools.partial(_look, self._down))

    def answers(self) -> dict[str, CellAnswer]:
        """Return the answers of cells by their identities."""
        return {self.cells[uuid].identity: answer
                for uuid, answer in self.gathered.results.items()}


def _look(
    down: datetime.timedelta, cell_context: context.RequestContext
) -> CellAnswer:
    assert cell_context.cell is not None
    database = cell_context.cell.database
    version = cell_schema.SCHEMA.version(database)
    if version is None:
        return CellAnswer(None)
    with database.reader() as connection:
        return CellAnswer(
            version, compute_nodes.list_hosts(connection),
            services.list_versions(connection, services.COMPUTE),
            [f'{row.binary} of host {row.host}' for row in services.list_all(
                connection, database.now() - down)
             if row.state == services.DOWN and not row.disabled])


def check_cells(deployment: CheckedDeployment) -> Result:
    """Check that cell0 and another cell are mapped, and that all answer."""
    if objects.CELL0_UUID not in deployment.cells:
        return Result(Code.FAILURE, 'Cell0 is not mapped; run: '
                      'cellsched-manage cell_v2 map_cell0')
    if len(deployment.cells) == 1:
        return Result(Code.FAILURE, 'No cell is mapped besides cell0; run: '
                      'cellsched-manage cell_v2 create_cell')
    gathered = deployment.gathered
    reasons = {**dict.fromkeys(gathered.silent, 'it is silent'),
               **{uuid: _reason(failure)
                  for uuid, failure in gathered.failures.items()}}
    if not reasons:
        return Result(Code.SUCCESS)
    return Result(Code.FAILURE, ' '.join(
        f'Cell {deployment.cells[uuid].identity} does not answer: {reason}.'
        for uuid, reason in reasons.items())
        + ' Bring their databases back, or correct their mappings; then '
        + _AGAIN)


def _reason(failure: Exception) -> str:
    """Return a failure in words without secrets."""
    if isinstance(failure, exception.CellschedException):
        return failure.format_message().rstrip('.')
    return f'unexpected {type(failure).__name__}'


def check_schemas(deployment: CheckedDeployment) -> Result:
    """Check that all databases have the schemas of this release."""
    texts = []
    version = api_schema.SCHEMA.version(deployment.database)
    if version != api_schema.SCHEMA.head:
        texts.append(
            f'The API database has schema version {version or "none"}, not '
            f'{api_schema.SCHEMA.head}; '
            f'run: {errors.SYNC_COMMANDS["API"]}')
    try:
        _ = deployment.claims
    except exception.SchemaOutOfDate as exc:
        texts.append(exc.format_message())
    old = {identity: answer.version or 'none'
           for identity, answer in deployment.answers().items()
           if answer.version != cell_schema.SCHEMA.head}
    if old:
        texts.append(
            'Not of schema version ' + cell_schema.SCHEMA.head + ': '
            + ', '.join(f'cell {identity} ({found})'
                        for identity, found in old.items())
            + f'; run: {errors.SYNC_COMMANDS["cell"]} --all-cells')
    if texts:
        return Result(Code.FAILURE, '. '.join(texts))
    return Result(Code.SUCCESS)


def check_hosts(deployment: CheckedDeployment) -> Result:
    """Check that hosts are mapped."""
    discover = 'run: cellsched-manage cell_v2 discover_hosts --verbose'
    answers = deployment.answers()
    if not any(answer.hosts for answer in answers.values()):
        return Result(Code.SUCCESS, 'There are no hosts yet; when their '
                      f'agents have reported, {discover}')
    unmapped = {}
    for identity, answer in answers.items():
        with deployment.database.reader() as connection:
            mapped = host_mappings.get_many(connection, answer.hosts)
        if remaining := sorted({*answer.hosts} - mapped.keys()):
            unmapped[identity] = remaining
    if not unmapped:
        return Result(Code.SUCCESS)
    return Result(Code.WARNING, 'Not mapped, so that nothing is built there: '
                  + '; '.join(f'{_named(hosts)} of cell {identity}'
                              for identity, hosts in unmapped.items())
                  + f'; {discover}')


def check_heartbeats(deployment: CheckedDeployment) -> Result:
    """Check that no service is down that an operator has not disabled."""
    down = [f'{each} in cell {identity}'
            for identity, answer in deployment.answers().items()
            for each in answer.down]
    if not down:
        return Result(Code.SUCCESS)
    return Result(Code.WARNING, f'Down: {_named(down)}. Start these services, '
                  'or delete those that no longer exist by cellsched service '
                  f'delete; then {_AGAIN}')


def check_services(deployment: CheckedDeployment) -> Result:
    """Check that compute services are understood, and how old they are."""
    versions = {
        f'{host} of cell {identity}': version
        for identity, answer in deployment.answers().items()
        for host, version in answer.services.items()}
    oldest, newest = min(compute.SERVICE_VERSIONS), compute.SERVICE_VERSION
    too_old = [each for each, version in versions.items() if version < oldest]
    if too_old:
        return Result(
            Code.FAILURE, f'Older than version {oldest} of compute services, '
            f'the oldest that is spoken to: {_named(too_old)}; upgrade them, '
            f'or delete those of hosts that are gone; then {_AGAIN}')
    if versions and min(versions.values()) > newest:
        return Result(
            Code.FAILURE, 'Every compute service is newer than version '
            f'{newest}, the newest that is known here; upgrade this package, '
            f'then {_AGAIN}')
    old = [each for each, version in versions.items() if version < newest]
    if old:
        return Result(
            Code.SUCCESS, f'{len(old)} of {len(versions)} compute services '
            f'are older than version {newest}: {_named(old)}. They go on, '
            'and may be upgraded')
    return Result(Code.SUCCESS)


def check_claims(deployment: CheckedDeployment) -> Result:
    """Check that no host gives more than it has, as the audit does."""
    if deployment.claims is None:
        return Result(Code.SUCCESS, 'Claims are seen by one process only, '
                      'and were not checked')
    found = check_capacity(deployment.claims, state.PAGE)
    if not found:
        return Result(Code.SUCCESS)
    return Result(Code.WARNING, f'{len(found)} figures of the claim store '
                  'are wrong: ' + _named([
                      f'{each.kind} of {each.of}' for each in found])
                  + '; run: cellsched-manage audit')


def _named(names: Sequence[str]) -> str:
    more = len(names) - _NAMED_MAX
    return ', '.join(names[:_NAMED_MAX]) + (
        f', and {more} more' if more > 0 else '')


def _checking(
    check: Callable[[CheckedDeployment], Result]
) -> Callable[['UpgradeChecks'], Result]:
    """Return a check for oslo.upgradecheck; an error is a failed check."""
    def run(checks: 'UpgradeChecks') -> Result:
        try:
            return check(checks.deployment)
        except exception.DATABASE_UNAVAILABLE as exc:
            return Result(Code.FAILURE, f'{exc.format_message()}; bring it '
                          f'back, then {_AGAIN}')
        except exception.CellschedException as exc:
            return Result(Code.FAILURE, exc.format_message())

    return run


class UpgradeChecks(upgradecheck.UpgradeCommands):
    """All checks, in the order in which they are made."""

    _upgrade_checks: tuple[tuple[str, Any], ...] = (
        ('Cells v2', _checking(check_cells)),
        ('Schemas', _checking(check_schemas)),
        ('Host mappings', _checking(check_hosts)),
        ('Heartbeats', _checking(check_heartbeats)),
        ('Compute services', _checking(check_services)),
        ('Claims', _checking(check_claims)),
    )

    def __init__(self, deployment: CheckedDeployment) -> None:
        self.deployment = deployment
