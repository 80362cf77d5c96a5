# SPDX-License-Identifier: Apache-2.0
"""The invariants of servers, hosts and providers, as checks.

Each function yields the findings of one invariant; the page on the audit
describes the invariants: the fate of a server (S2, S3) and its requests (S13),
tasks in progress (L1), claims (S4), faults of servers in ERROR (S13), mapped
hosts (S3), and counters and capacities of the claim store (S1).
"""

import collections
from collections.abc import Callable
from collections.abc import Container
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import enum
from typing import Any
from typing import NamedTuple

from cellsched.audit.findings import Action
from cellsched.audit.findings import Finding
from cellsched.audit import references
from cellsched.audit.state import add_up
from cellsched.audit.state import MISSING
from cellsched.audit.state import ServerSize
from cellsched.audit.state import ServerState
from cellsched.audit.state import StateReader
from cellsched.claims import base as claims_base
from cellsched.claims import listing
from cellsched.db.api import host_mappings
from cellsched.db.api import shared_providers
from cellsched.db.cell import audit_queries
from cellsched.db.cell import on_host
from cellsched.db.cell import server_moves
from cellsched.db.cell import services
from cellsched.db.cell import states
from cellsched import exception
from cellsched.hardware import units
from cellsched import objects

_CELL0 = objects.CELL0_UUID

_TWO_RUN = ('find out on the hosts which of the two is in use, stop the other '
            'one there, and delete its row')


def check_fate(server: ServerState) -> Iterator[Finding]:
    """Check that a server is in the one cell that its mapping names.

    Cells that did not answer cause no findings. A build with a request is in
    progress, and its conductor is responsible for it.
    """
    mapping = server.mapping
    if mapping is None:
        yield from _unmapped(server)
    elif mapping.deleted:
        yield from _deleted(server)
    elif server.requested:
        yield from _requested(server)
    elif mapping.cell is None:
        yield from _undecided(server)
    elif mapping.cell not in server.unheard:
        yield from _decided(server, mapping.cell)


def found(
    server: ServerState, kind: str, text: str,
    cell: str | None = None, action: Action | None = None, advice: str = '',
) -> Finding:
    """Return a finding about a server."""
    return Finding(kind, server.uuid, text, cell, action, advice)


def _unmapped(server: ServerState) -> Iterator[Finding]:
    if server.requested:
        yield found(server, 'request-unmapped',
                    'has a build request and no mapping', None, Action.MAP)
    for cell, row in server.rows.items():
        if not row.deleted:
            yield found(
                server, 'row-unmapped',
                'is in a cell and the API database does not know it', cell,
                Action.MAP)


def _deleted(server: ServerState) -> Iterator[Finding]:
    if server.requested:
        yield found(server, 'request-of-deleted',
                    'was deleted by its user and has a build request', None,
                    Action.FORGET)
    for cell, row in server.rows.items():
        if row.deleted or row.task_state == 'deleting':
            # Its agent deletes it when it is up again.
            continue
        yield found(
            server, 'deleted-visible',
            'was deleted by its user, and its cell shows it', cell,
            None if row.host else Action.DELETE,
            'it may run on its host; delete it once more')


def _requested(server: ServerState) -> Iterator[Finding]:
    assert server.mapping is not None
    if server.broken is not None:
        begun = server.visible() or (server.mapping.cell not in (None, _CELL0))
        newer = isinstance(server.broken, exception.RequestTooNew)
        yield found(
            server, 'request-unreadable',
            f'cannot be built: its {server.broken.what} '
            f'{server.broken.problem}', None,
            None if begun or newer else Action.BURY_REQUEST,
            'start conductors of that release, which build it' if newer else
            'its build began before; a conductor above the cells rolls it '
            'back and buries the server')
    rows = [cell for cell, row in server.visible().items() if row.ran]
    right = server.mapping.cell
    if right is None and len(rows) == 1:
        # A restored API database has lost the decision.
        [right] = rows
    for cell in rows:
        if cell == right:
            yield found(
                server, 'request-left',
                'is on a host and has a build request, so that it would be '
                'built once more', cell, Action.FORGET)
        elif right is not None:
            yield found(
                server, 'row-elsewhere',
                'is on a host of a cell and is mapped to another one, where '
                'it is being built', cell, None, _TWO_RUN)


def _undecided(server: ServerState) -> Iterator[Finding]:
    rows = server.visible()
    ran = [cell for cell, row in rows.items() if row.ran]
    if len(rows) + server.buried() > 1:
        yield from _several(server, rows, ran[0] if len(ran) == 1 else None)
    if len(ran) == 1 or not rows and server.buried():
        cell = ran[0] if ran else _CELL0
        yield found(server, 'undecided',
                    'is in a cell, and is mapped to none', cell,
                    Action.DECIDE)
    elif len(rows) == 1 and not server.buried():
        yield found(
            server, 'undecided',
            'is in a cell, is mapped to none, and is not being built',
            next(iter(rows)), Action.PURGE)
    elif not rows and not server.unheard:
        yield found(
            server, 'no-fate',
            'was accepted, is in no cell, and is not being built', None,
            Action.BURY)


def _decided(server: ServerState, cell: str) -> Iterator[Finding]:
    row = server.rows.get(cell)
    rows = server.visible()
    if row is not None:
        yield from _unasked(server, cell, row)
        yield from _several(server, rows, cell)
        return
    for each, other in rows.items():
        yield found(
            server, 'row-elsewhere',
            'is in a cell and is mapped to another one, which does not have '
            'it', each, Action.REMAP if belongs(server, each) else None,
            'map it to the cell that it is in' if other.ran else
            'find out what became of it in the cell that it is mapped to')
    if cell == _CELL0 and not rows:
        yield found(server, 'row-lost',
                    'is mapped to cell0, which does not have it', cell,
                    Action.BURY)
    elif not rows:
        yield found(
            server, 'row-lost',
            'is mapped to a cell, which does not have it', cell, None,
            'restore the database of the cell; if the server is gone for '
            'good, delete it')


def belongs(server: ServerState, cell: str) -> bool:
    """Return whether a server is in a cell in spite of its mapping.

    The server is on a host that is mapped to the cell, and holds its claims
    there. No other cell has a row of it, and all cells have answered.
    """
    row = server.visible()[cell]
    here, elsewhere = server.held(row)
    return (
        row.host is not None
        and server.host_cells.get(row.host) == cell
        and [*server.visible()] == [cell] and not server.buried()
        and not server.unheard and not server.moved
        and row.task_state is None and not row.moving
        and any(claim.provider not in server.shared for claim in here)
        and not elsewhere)


def _unasked(
    server: ServerState, cell: str, row: audit_queries.ServerRow
) -> Iterator[Finding]:
    """Check the request specification of a server that may be moved."""
    if (server.size is not None and server.size.problem and not row.deleted
            and cell != _CELL0):
        yield found(
            server, 'spec-missing' if server.size is MISSING
            else 'spec-unreadable',
            f'cannot be moved: its request specification '
            f'{server.size.problem}', cell, None,
            'it runs as it is; restore the row of request_specs, or build '
            'another server in its place')


def _several(
    server: ServerState, rows: dict[str, audit_queries.ServerRow],
    right: str | None
) -> Iterator[Finding]:
    """Yield the rows of a server in cells other than the right one.

    :param right: the cell of the server; None if that is not certain
    """
    for cell, row in rows.items():
        if cell == right:
            continue
        with_cell0 = server.buried() or right == _CELL0
        yield found(
            server, 'cell-and-cell0' if with_cell0 else 'two-cells',
            'is in this cell, and in '
            + ('cell0' if with_cell0 else 'another one') + ' too', cell,
            None if row.ran or right is None else Action.PURGE, _TWO_RUN)
    if server.buried() and right != _CELL0:
        yield found(
            server, 'cell-and-cell0',
            'is in cell0, and in another cell too', _CELL0,
            Action.PURGE if right is not None else None, _TWO_RUN)


def check_tasks(server: ServerState) -> Iterator[Finding]:
    """Check that a server's task or build is in progress.

    The cell keeps the message to the host during a build, and the row of the
    move during any other task. Both are written and deleted together with the
    state of the server.
    """
    cell, row = server.cell, server.row
    if row is None or server.requested or cell == objects.CELL0_UUID:
        return
    if row.deleted:
        if row.move is not None and row.move.kind in server_moves.KINDS:
            yield found(
                server, 'move-stranded', f'has a move ({row.move.kind}, '
                f'{row.move.status}), and is deleted', cell, Action.GIVE_UP)
    elif row.task_state == 'deleting':
        if row.down:
            yield found(
                server, 'deleting-waits',
                f'is being deleted, and its host {row.host} is down', cell,
                advice='start the agent of the host, which removes it; if the '
                       'host is gone for good, delete the server again')
        if not row.served:
            yield found(
                server, 'deleting-stranded', 'is being deleted, and '
                + ('its host is not there' if row.host else 'is on no host'),
                cell, Action.DELETE)
    elif is_stranded(row):
        assert row.move is not None
        yield found(
            server, 'move-stranded',
            f'has a move ({row.move.kind}, {row.move.status}), and '
            + ('is in ERROR' if row.vm_state == 'error'
               else 'does not wait for it'), cell, Action.GIVE_UP)
    elif row.vm_state in (None, states.WAITING.vm_state):
        if not row.cast:
            yield _build(server, cell, row)
    elif row.task_state is not None and row.move is None:
        yield found(
            server, 'task-stranded',
            f'has the task {row.task_state}, and is not being moved', cell,
            Action.TAKE_BACK if reverting(row) else None,
            'find out which program set this task; cellsched has none')


def is_stranded(row: audit_queries.ServerRow) -> bool:
    """Return whether a row has a move that its task does not match."""
    if row.move is None or row.move.status not in server_moves.UNMOVED:
        return False
    kind = server_moves.KINDS.get(row.move.kind)
    return kind is not None and row.task_state not in {
        states.TRANSITIONS[name].after.task_state
        for name in (kind.ask, kind.begin) if name is not None}


class Revert(NamedTuple):
    """The transition that reverts a task, and the task's public name."""

    transition: str
    task: str


def reverting(row: audit_queries.ServerRow) -> Revert | None:
    """Return the transition that reverts a server's task, if any."""
    return _REVERTS.get(states.State(row.vm_state or '', row.task_state))


#: By state; a rebuild and an evacuation have the same state.
_REVERTS = {
    state: Revert(kind.revert, name)
    for name, kind in server_moves.KINDS.items()
    for state in states.TRANSITIONS[kind.revert].before or ()}


def _build(
    server: ServerState, cell: str | None, row: audit_queries.ServerRow
) -> Finding:
    failable = row.host is None and states.State(
        row.vm_state or '', row.task_state) in states.OF_BUILD
    return found(
        server, 'build-stranded',
        'is to be built, and no host has received the build', cell,
        Action.FAIL if failable else None,
        'its agent ends it when it is up; if the host is gone for good, '
        'delete it')


class Expected(enum.Enum):
    """The claims that a server should hold."""

    CLAIM = enum.auto()
    NONE = enum.auto()
    EITHER = enum.auto()  #: It is changing between the two.
    UNKNOWN = enum.auto()   #: Its cell did not answer, or has another finding.


def check_claims(server: ServerState) -> Iterator[Finding]:
    """Check the claims of a server, and those of its move."""
    expected = expected_claims(server)
    cell, row = server.cell, server.row
    if server.claims and expected is Expected.NONE:
        yield found(
            server, 'claim-leaked',
            f'holds a claim on {server.claims[0].provider}, and should hold '
            'none',
            cell, Action.RELEASE)
    if move_leaks(server, expected):
        yield found(
            server, 'move-claim-leaked',
            f'holds a claim on {server.moved[0].provider} for a move, '
            'and is not being moved', cell, Action.RELEASE_MOVE)
    size = server.size
    if row is not None and row.vm_state == 'error' and server.claims and (
            expected is Expected.EITHER and at_rest(server, row)):
        # After a failed move or rebuild it may hold none.
        yield from _at_rest(server, cell, row)
    elif expected in (Expected.CLAIM, Expected.EITHER) and (
            row is None or not at_rest(server, row)):
        yield from _owner(server, cell, None,
                          'audit again when it has no task')
    if expected is not Expected.CLAIM or size is not None and (
            size.total == {}):
        return
    assert row is not None
    if not server.claims and not server.moved:
        chosen = row.provider and size is not None and (
            size.grouped or size.has_hardware)
        yield found(
            server, 'unclaimed', 'uses a host, and holds no claim', cell,
            Action.CLAIM if row.provider and not chosen else None,
            _anew(size, size.has_hardware)[1] if chosen and size else
            'its provider is not known; delete it, unless its build goes on')
    elif at_rest(server, row):
        yield from _at_rest(server, cell, row)


def at_rest(server: ServerState, row: audit_queries.ServerRow) -> bool:
    """Return whether a server is on a node and no task is in progress."""
    return (row.provider is not None and row.task_state is None
            and not row.moving and not server.moved
            and row.vm_state not in (None, states.WAITING.vm_state))


def _at_rest(
    server: ServerState, cell: str | None, row: audit_queries.ServerRow
) -> Iterator[Finding]:
    assert row.provider is not None
    size = server.size
    here, elsewhere = server.held(row)
    held = add_up(units.plain(claim.resources) for claim in here)
    farther = ', '.join(sorted(claim.provider for claim in elsewhere))
    action, advice = repair = _anew(server.size, any(
        units.named(claim.resources) for claim in server.claims))
    right = size is not None and size.total == held
    if not right and all(claim.provider in server.shared for claim in here):
        yield found(
            server, 'claim-elsewhere',
            f'is on {row.provider}, and holds '
            + (f'a claim on {farther}' if elsewhere else 'no claim there'),
            cell, action, advice)
    elif elsewhere:
        # Its claims here are kept if their amounts are right.
        yield found(
            server, 'claim-second',
            f'is on {row.provider}, and holds a claim on {farther} too', cell,
            Action.RECLAIM if right and repair != _CHOSEN else action, advice)
    elif size is not None and size.total is not None and not right:
        yield found(
            server, 'claim-amount',
            f'needs {_amounts(size.total)}, and holds a claim of '
            + _amounts(held), cell, action, advice)
    else:
        if right and repair != _CHOSEN:
            # A new claim of this row's host, group and owner mends these, too.
            action, advice = Action.RECLAIM, ''
        yield from _membership(server, cell, row, action, advice)
        yield from _owner(
            server, cell, action if server.mapping is not None and (
                row.project_id == server.mapping.project_id) else None,
            advice or 'find out the project of the server')


def _owner(
    server: ServerState, cell: str | None, action: Action | None, advice: str
) -> Iterator[Finding]:
    """Check that the claims of a server and its move have its owner."""
    mapping = server.mapping
    assert mapping is not None
    for claim in (*server.claims, *server.moved):
        for owner, its, claims in (
                ('project', mapping.project_id or '', claim.project_id or ''),
                ('user', mapping.user_id, claim.user_id)):
            if its != claims and (owner == 'project' or its and claims):
                yield found(
                    server, 'claim-owner',
                    f'belongs to {owner} {its or None}, and its claim on '
                    f'{claim.provider} to {owner} {claims or None}', cell,
                    action, advice)
                return


def _membership(
    server: ServerState, cell: str | None, row: audit_queries.ServerRow,
    action: Action | None, advice: str,
) -> Iterator[Finding]:
    """Check the membership that the claim store has of a server.

    A group that was deleted keeps its members there.
    """
    size, member = server.size, server.member
    if size is None or size.problem or not (
            server.checks_groups and server.claims):
        return
    due = claims_base.membership(server.group, row.host or '', server.uuid)
    if member is None:
        wrong = due and f'is no member of its group {due.group}'
    elif member.group != size.group:
        wrong = f'is a member of the group {member.group}'
    elif due and (member.host, member.member) != (due.host, due.member):
        wrong = (f'is the member {member.member} of its group on host '
                 f'{member.host}')
    else:
        return
    if wrong:
        yield found(
            server, 'member-claim',
            f'is on host {row.host}, and in the claim store it {wrong}', cell,
            action, advice)


#: The reason against a new claim of a server whose claims name CPUs, pages or
#: devices. Each of them is claimed once, so a second claim would be refused.
_CHOSEN: tuple[Action | None, str] = (
    None, 'only a scheduler chooses its CPUs, pages and devices; migrate it')


def _anew(
    size: ServerSize | None, has_hardware: bool = False
) -> tuple[Action | None, str]:
    """Return the repair by a new claim, or the reason against it.

    :param has_hardware: whether its claims name CPUs, pages or devices
    """
    if has_hardware:
        return _CHOSEN
    if size is None or size.resources and not size.grouped:
        return Action.RECLAIM, ''
    if size.problem:
        return None, ('its size is not known, as its request specification '
                      f'{size.problem}')
    if size.grouped:
        return None, ('only a scheduler chooses the providers of its '
                      'request groups; migrate it')
    return None, 'it requests no resources; find out what holds the claim'


def _amounts(resources: Mapping[str, int]) -> str:
    return ', '.join(f'{amount} {resource}' for resource, amount
                     in sorted(resources.items())) or 'nothing'


def expected_claims(server: ServerState) -> Expected:
    """Return the claims that a server should hold under its own uuid."""
    mapping = server.mapping
    if mapping is None:
        return Expected.UNKNOWN
    if server.requested:
        return Expected.EITHER
    other_cells = server.visible().keys() - {mapping.cell}
    if other_cells or mapping.cell in server.unheard:
        return Expected.UNKNOWN
    if mapping.cell == objects.CELL0_UUID:
        return Expected.NONE
    row = server.row
    if row is None:
        return Expected.NONE if mapping.deleted else Expected.UNKNOWN
    return expected_in_cell(row)


def expected_in_cell(row: audit_queries.ServerRow) -> Expected:
    """Return the claims that a server in a cell should hold."""
    if row.deleted:
        return Expected.NONE
    if row.task_state == 'deleting':
        return Expected.EITHER
    if row.vm_state in ('error', 'shelved_offloaded'):
        at_rest = row.host is None and row.task_state is None
        return Expected.NONE if at_rest and not row.moving else Expected.EITHER
    if row.host is not None or row.task_state == 'scheduling':
        return Expected.CLAIM
    return Expected.EITHER


def move_leaks(server: ServerState, expected: Expected) -> bool:
    """Return whether a server holds a claim for a move that is over."""
    if not server.moved or expected is Expected.UNKNOWN or server.requested:
        return False
    row = server.row
    return row is None or row.deleted or (
        row.task_state is None and not row.moving)


def check_place(server: ServerState) -> Iterator[Finding]:
    """Check that the host and the node of a server exist in its cell."""
    row = server.row
    if row is None or row.deleted or row.task_state == 'deleting' or (
            server.mapping is None or server.mapping.deleted):
        return
    if server.mapping.cell == _CELL0:
        place = ' and '.join(
            f'{noun} {name}' for noun, name in (
                ('host', row.host), ('node', row.node)) if name)
        if place:
            yield found(
                server, 'cell0-host',
                f'is in cell0, which has no hosts, and its row names {place}',
                _CELL0, advice='if that host has a guest of it, destroy the '
                'guest; then remove the name from the row')
        return
    kind, wrong = 'node-missing', None
    if row.host is None:
        wrong = row.node and f'is on node {row.node} of no host'
    elif not row.known_host:
        kind, wrong = (
            'host-missing', f'is on host {row.host}, which does not exist')
    elif row.provider is None:
        wrong = f'is on node {row.node}, which host {row.host} does not have'
    if wrong:
        yield found(
            server, kind, wrong, server.mapping.cell,
            advice='start the agent of its host, or correct the row by the '
                   'host that has the guest; if the host is gone for good, '
                   'evacuate or delete the server')


def check_owner(server: ServerState) -> Iterator[Finding]:
    """Check that all records of a server have one owner and one size."""
    mapping, row = server.mapping, server.row
    if mapping is None or mapping.deleted:
        return
    projects = dict(server.projects)
    live = row is not None and not row.deleted
    if row is not None and live:
        projects['row'] = row.project_id or ''
    for record, project in projects.items():
        if project != (mapping.project_id or ''):
            yield found(
                server, 'owner-differs',
                f'is mapped to project {mapping.project_id}, and its {record} '
                f'has project {project or None}', mapping.cell,
                advice='find out its project, and correct the other record')
    if row is not None and live and None not in (
            row.user_id, mapping.user_id) and row.user_id != mapping.user_id:
        yield found(
            server, 'owner-differs',
            f'is mapped to user {mapping.user_id}, and its row has user '
            f'{row.user_id}', mapping.cell,
            advice='find out its user, and correct the other record')
    if server.size is not None:
        sizes: dict[str, tuple[int | None, ...]] = {
            'mapping': (mapping.vcpus, mapping.memory_mb)}
        if row is not None and live:
            sizes['row'] = row.size
        for record, size in sizes.items():
            names = ('vcpus', 'memory_mb', 'root_gb', 'ephemeral_gb')
            for name, value, due in zip(names, size, server.size.flavor):
                if None not in (value, due) and value != due:
                    yield found(
                        server, f'size-differs:{name}',
                        f'requested {name} {due}, and its {record} has '
                        f'{value}', mapping.cell,
                        advice='find out its flavor, and correct the record')


def check_group(server: ServerState) -> Iterator[Finding]:
    """Check that a server is a member of the group that its request names."""
    size = server.size
    if server.mapping is None or size is None:
        return
    cell, due = server.mapping.cell, size.group
    if server.mapping.deleted:
        if server.groups:
            yield found(
                server, 'group-member-deleted',
                'was deleted by its user, and is a member of a server group',
                cell, Action.LEAVE)
        return
    if size.problem:
        return
    if server.group is not None and due not in server.groups:
        yield found(
            server, 'group-member-missing',
            f'requested server group {due}, and is no member of it', cell,
            Action.JOIN)
    for group in sorted(server.groups - {due}):
        yield found(
            server, 'group-member-extra',
            f'is a member of server group {group}, which its request does '
            'not name', cell, advice='delete its row of instance_group_member')


def check_faults(server: ServerState) -> Iterator[Finding]:
    """Check that a server in ERROR has a fault that says why.

    A server in cell0 also has a failed action with the id of its request.
    """
    cell, row = server.cell, server.row
    if row is None or row.deleted or server.requested or (
            row.vm_state != 'error' or row.task_state is not None):
        return
    if not (row.reason or '').strip():
        yield found(
            server, 'no-reason', 'is in ERROR without a fault',
            cell, Action.EXPLAIN)
    if cell == objects.CELL0_UUID and not row.failed_action:
        yield found(
            server, 'no-action',
            'is in cell0 without a failed action that names its request',
            cell, Action.EXPLAIN)


def check_hosts(reader: StateReader) -> Iterator[Finding]:
    """Check that each host is mapped to the cell that has its compute node.

    A host that was never mapped is no finding: a scheduler maps it.
    """
    names = reader.names()
    for cell, nodes in _nodes(reader).items():
        # By host: whether one of its nodes was marked as mapped.
        hosts: dict[str, bool] = {}
        for uuid, node in nodes.items():
            if node.vanished:
                yield Finding(
                    'node-vanished', uuid,
                    f'is node {node.name} of host {node.host}, which its '
                    'driver no longer reports, and has servers, moves or '
                    'claims', cell, None, 'make the driver report it again, '
                    'or evacuate or delete its servers')
            hosts[node.host] = node.mapped or hosts.get(node.host, False)
        with reader.database.reader() as connection:
            mapped = host_mappings.get_many(connection, hosts)
        for host, was_mapped in sorted(hosts.items()):
            if host not in mapped:
                if was_mapped:
                    yield Finding(
                        'host-unmapped', host,
                        'has a compute node in this cell, and its mapping is '
                        'missing', cell, None,
                        'map it with cell_v2 discover_hosts --by-service, or '
                        'delete its rows in the cell')
            elif mapped[host].uuid != cell:
                other = names.get(mapped[host].uuid, mapped[host].uuid)
                yield Finding(
                    'host-elsewhere', host,
                    f'has a compute node in this cell, and is mapped to '
                    f'{other}', cell, None,
                    'let its agent report to one of them only, and delete '
                    'its rows in the other')


def _nodes(
    reader: StateReader
) -> dict[str, dict[str, audit_queries.NodeRow]]:
    """Return the compute nodes of each cell that answers, by uuid."""
    return reader.ask(
        lambda cell, connection: audit_queries.nodes(connection),
        reader.cells())


def check_guests(reader: StateReader) -> Iterator[Finding]:
    """Check that each guest has its row, and each row its guest.

    The agents report the guests and the servers; a report can be as old as
    ``[DEFAULT] resume_interval``, or as the last report of a host that is
    down.
    """
    def read(
        cell: str, connection: Any
    ) -> tuple[dict[str, on_host.GuestReport],
               dict[str, audit_queries.ServerRow]]:
        reports = {host: on_host.load(text) for host, text
                   in services.list_guests(connection).items()}
        return reports, audit_queries.rows(connection, [
            uuid for report in reports.values() for uuid in (
                *(guest.uuid for guest in report.unexplained),
                *report.missing, *report.misplaced)])

    for cell, (reports, rows) in reader.ask(read, reader.cells()).items():
        for host, report in sorted(reports.items()):
            for uuid in [guest.uuid for guest in report.unexplained]:
                row = rows.get(uuid)
                place = ('the cell does not know it' if row is None else
                         f'its server is deleted on host {row.host}'
                         if row.deleted else f'its server is on {row.host}'
                         if row.host else 'its server is on no host')
                if row is None or row.deleted or row.host != host:
                    yield Finding(
                        'guest-unexplained', uuid,
                        f'runs on host {host}, and {place}',
                        cell, None, 'find out on the hosts which guest is in '
                        'use; [compute] adopt_guests places it here')
            for uuid in report.missing:
                row = rows.get(uuid)
                if row is not None and not row.deleted and row.host == host:
                    yield Finding(
                        'guest-missing', uuid,
                        f'is on host {host}, which has no guest of it',
                        cell, None,
                        'find out whether another host runs it; if none '
                        'does, rebuild or delete it')
            yield from _misplaced(reader, host, {
                uuid: amounts for uuid, amounts in report.misplaced.items()
                if (row := rows.get(uuid)) is not None and row.host == host
                and not row.deleted}, cell)


def _misplaced(
    reader: StateReader, host: str, used: Mapping[str, Mapping[str, int]],
    cell: str,
) -> Iterator[Finding]:
    """Yield the guests that use other CPUs, pages or devices than claimed.

    :param used: their amounts, as the host has reported them
    """
    held = reader.claims.claims_of(used) if reader.claims and used else {}
    for uuid, amounts in sorted(used.items()):
        claimed = units.named(add_up(
            claim.resources for claim in held.get(uuid, ())
            if claims_base.is_readable(claim)))
        extra = [units.title(each) for each, amount in sorted(amounts.items())
                 if amount > claimed.get(each, 0)]
        if claimed and extra:
            yield Finding(
                'claim-misplaced', uuid,
                f'uses {", ".join(extra)} on host {host}, which its claim '
                'does not name', cell, None,
                'migrate it, which gives it the CPUs, pages and devices of a '
                'new claim')


#: Number of walks through all claims to check providers that change.
_WALKS_MAX = 3

Held = Mapping[str, Sequence[claims_base.Claim]]


def check_capacity(
    store: claims_base.ClaimStore, page: int,
    seen: Callable[[Held], object] = bool,
    unreadable: Container[str] = (),
) -> list[Finding]:
    """Check the counters of the claim store against its claims.

    A provider that changes during a walk through the claims is checked in the
    next walk, up to a limit. A wrong counter is a finding only if two walks
    add up to the same: a transfer between two pages does not change the
    provider, but its claims may be read twice or not at all. The transfer
    changes the consumers, so the next walk differs.

    :param page: number of consumers in a page
    :param seen: called with the claims of each page in the first walk
    :param unreadable: providers to leave out
    """
    found: list[Finding] = []
    open_: set[str] | None = None
    doubted: dict[str, _Taken] = {}
    for _ in range(_WALKS_MAX):
        # 1. Read the counters, then add up the claims, then ask what changed
        #    meanwhile. The store has no snapshot of both.
        before = listing.usages(store)
        taken = _add_up(store, page, seen)
        changed = {usage.provider for usage
                   in store.usages(since=before.token).usages
                   if not listing.is_probe(usage.provider)}
        # 2. Compare the unchanged providers. A difference counts only if the
        #    walk before added up the same.
        seeming: dict[str, _Taken] = {}
        for usage in before.usages:
            provider = usage.provider
            if provider in unreadable:
                continue
            if provider in changed or (
                    open_ is not None and provider not in open_):
                continue
            wrong = [*_compare_claims(usage, taken[provider])]
            if wrong and doubted.get(provider) != taken[provider]:
                seeming[provider] = taken[provider]
            else:
                found += wrong
        # 3. Claims of a provider without counters show in the first walk.
        if open_ is None:
            missing = [
                provider for provider in taken.keys() - changed - {
                    usage.provider for usage in before.usages}
                if provider not in unreadable]
            found += [Finding(
                'provider-missing', provider,
                f'has claims of {taken[provider].holders} consumers, and is '
                'not in the claim store',
                advice='restart the agent of its host, which reports it '
                       'again; if the host is gone for good, delete the '
                       'servers with claims there') for provider in missing]
        # 4. Walk again for the providers that changed or differ.
        open_ = seeming.keys() | (
            changed if open_ is None else changed & open_)
        doubted |= seeming
        seen = bool
        if not open_:
            break
    return found


@dataclasses.dataclass
class _Taken:
    """The sum of the claims on a provider.

    :ivar holders: number of consumers
    :ivar who: sum over the hashes of the consumers, to compare walks
    """

    sums: collections.Counter[str] = dataclasses.field(
        default_factory=collections.Counter)
    holders: int = 0
    who: int = 0


def _add_up(
    store: claims_base.ClaimStore, page: int, seen: Callable[[Held], object]
) -> dict[str, _Taken]:
    """Return the sum of the claims on each provider."""
    taken: dict[str, _Taken] = collections.defaultdict(_Taken)
    for consumers in listing.pages(store, page):
        held = store.claims_of(consumers)
        for consumer, claims in held.items():
            for claim in filter(claims_base.is_readable, claims):
                here = taken[claim.provider]
                here.sums.update(claim.resources)
                here.holders += 1
                here.who += hash(consumer)
        seen(held)
    return taken


def _compare_claims(
    usage: claims_base.Usage, taken: _Taken
) -> Iterator[Finding]:
    if usage.consumers != taken.holders:
        yield Finding(
            'miscounted-consumers', usage.provider,
            f'has claims of {taken.holders} consumers, and the claim store '
            f'counts {usage.consumers}', action=Action.RECOUNT)
    for resource in sorted(usage.used.keys() | taken.sums.keys()):
        used = usage.used.get(resource, 0)
        real = taken.sums.get(resource, 0)
        capacity = usage.capacity.get(resource, 0)
        if real > capacity:
            yield Finding(
                f'over-capacity:{resource}', usage.provider,
                f'has {capacity} of {units.title(resource)}, and {real} is '
                'claimed',
                advice='move servers away, or increase the inventory again')
        if used != real:
            yield Finding(
                f'miscounted:{resource}', usage.provider,
                f'has claims of {real} of {resource}, and the claim store '
                f'counts {used}', action=Action.RECOUNT)


_NOTHING = claims_base.Inventory(0)


def check_providers(
    reader: StateReader, store: claims_base.ClaimStore,
    unreadable: Container[str] = (),
) -> Iterator[Finding]:
    """Check the providers of the claim store against the databases.

    The store is read first, as a provider is in a database before it is in
    the store. Unknown providers are no finding while a cell does not answer.

    :param unreadable: providers to leave out
    """
    usages = {usage.provider: usage for usage in listing.usages(store).usages
              if usage.provider not in unreadable}
    inventories = listing.inventories(store)
    by_cell = [{uuid: (cell, node) for uuid, node in found.items()}
               for cell, found in _nodes(reader).items()]
    of_all = [(uuid, *where) for each in by_cell
              for uuid, where in each.items()]
    times = collections.Counter(uuid for uuid, _, _ in of_all)
    # What belongs to two nodes cannot be compared with either.
    nodes = {uuid: (cell, node) for uuid, cell, node in of_all
             if times[uuid] == 1}
    shared = {each.uuid: each for each in reader.shared()}
    children = {child for _, _, node in of_all for child in node.children}
    for uuid, usage in usages.items():
        if uuid in nodes:
            cell, node = nodes[uuid]
            yield from _compare_node(usage, node, cell)
        elif not times[uuid] and uuid not in shared and (
                uuid not in children and not reader.unheard) and (
                usage.consumers or any(usage.capacity.values())):
            yield Finding(
                'provider-unknown', uuid,
                f'has claims of {usage.consumers} consumers, and is neither '
                'a compute node of a cell nor a child provider of one nor '
                'shared by an aggregate',
                advice='let the agent of its host report again; if the host '
                       'is gone for good, delete the servers with claims '
                       'there')
    for uuid, provider in shared.items():
        if uuid in unreadable:
            continue
        usage = usages.get(uuid) or claims_base.Usage(uuid, {}, {}, 0)
        yield from _compare_shared(usage, provider)
    yield from references.check_inventories(
        inventories, usages, nodes, shared, unreadable)
    yield from references.check_identity(
        store, by_cell, shared, reader.names())


def check_amounts(held: Held) -> Iterator[Finding]:
    """Yield the consumers with claims whose amounts are no numbers."""
    for consumer, claims in held.items():
        if not all(map(claims_base.is_readable, claims)):
            yield Finding(
                'store-record', consumer, 'holds a claim with an amount that '
                'is no number', advice='correct the amount, and audit again')


def check_records(
    problems: Sequence[claims_base.StoreProblem]
) -> Iterator[Finding]:
    """Yield the records of the claim store that are unreadable or disagree."""
    for problem in problems:
        yield Finding(
            'store-record', problem.record, problem.text,
            action=None if problem.advice else Action.MEND,
            advice=problem.advice)


def _compare_node(
    usage: claims_base.Usage, node: audit_queries.NodeRow, cell: str
) -> Iterator[Finding]:
    # A node that is no longer reported offers nothing.
    for resource, offer in () if node.vanished else node.offers.items():
        right = claims_base.Inventory(*offer).capacity
        capacity = usage.capacity.get(resource, 0)
        if not references.is_close(right, capacity):
            yield Finding(
                f'wrong-capacity:{resource}', usage.provider,
                f'is {node.host}, which offers {right} of {resource}, and '
                f'the claim store has {capacity}', cell, Action.RECOUNT)


def _compare_shared(
    usage: claims_base.Usage, provider: shared_providers.SharedProvider
) -> Iterator[Finding]:
    for resource in sorted({*provider.inventories, *usage.capacity}):
        shared = provider.inventories.get(resource, _NOTHING).capacity
        capacity = usage.capacity.get(resource, 0)
        if capacity != shared:
            yield Finding(
                f'wrong-capacity:{resource}', provider.uuid,
                f'is shared as {provider.name}, which has {shared} of '
                f'{resource}, and the claim store has {capacity}',
                advice=f'cellsched provider set {provider.name}')
