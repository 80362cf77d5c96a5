# SPDX-License-Identifier: Apache-2.0
"""The audit of a whole deployment, and the release of leaked claims."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
import itertools

from oslo_log import log

from cellsched.audit import checks
from cellsched.audit.findings import Action
from cellsched.audit.findings import AuditReport
from cellsched.audit.findings import Finding
from cellsched.audit import references
from cellsched.audit import repairs
from cellsched.audit.state import ServerState
from cellsched.audit.state import StateReader
from cellsched.claims import base
from cellsched.claims import listing
from cellsched.clock import Clock
from cellsched.db.api import audit_queries as api
from cellsched.db.cell import audit_queries
from cellsched.db import statements
from cellsched import exception
from cellsched import migrations

LOG = log.getLogger(__name__)

#: Maximum number of rounds, as a repair may reveal another finding.
_ROUNDS_MAX = 4

_UNREACHABLE = 'cell-unreachable'

#: Maximum number of foreign consumers in a report.
_EXAMPLES_MAX = 10

Progress = Callable[[int], None]


def judge(server: ServerState) -> Iterator[Finding]:
    """Yield all findings of a server."""
    yield from checks.check_fate(server)
    yield from checks.check_place(server)
    yield from checks.check_owner(server)
    yield from checks.check_group(server)
    yield from checks.check_claims(server)
    yield from checks.check_tasks(server)
    yield from checks.check_faults(server)


class Auditor:
    """Checks a deployment twice, as operations may be in progress.

    The first pass reads everything. Some time later the servers with findings
    are read again, in all cells; only findings of both passes are reported.
    """

    def __init__(
        self, reader: StateReader, repairs_: repairs.Repairs,
        clock: Clock,
    ) -> None:
        self._reader = reader
        self._repairs = repairs_
        self._clock = clock
        self._foreign = False
        #: Values of the cells that have the wrong type.
        self._wrong: list[Finding] = []

    def size(self) -> int:
        """Return the number of rows to read, for a progress bar."""
        if references.check_api_values(self._reader):
            return 0
        with self._reader.database.reader() as connection:
            mapped = api.count(connection)
        rows = self._reader.ask(
            lambda cell, connection: audit_queries.count(connection),
            self._reader.cells())
        return mapped + sum(rows.values())

    def run(
        self, settle_s: float, fix: bool = False,
        progress: Progress = lambda done: None, foreign: bool = False,
    ) -> AuditReport:
        """Audit the deployment, and repair what is safe to repair.

        Blocks for at least ``settle_s`` if there are findings.

        :param settle_s: seconds between the two passes
        :param progress: called with the part of :meth:`size` that is done
        :param foreign: whether unknown consumers belong to other services, as
            they always do if the API database knows no server
        """
        report = AuditReport(references.check_api_values(self._reader))
        if report.remaining:
            return report
        report.names = self._reader.names()
        self._begin()
        suspects, moved, servers = self._scan(progress)
        self._foreign = foreign or not servers
        first, strangers = self._everything(suspects, moved)
        if first:
            self._clock.sleep(settle_s)
            self._begin()
            again, unknown = self._everything(
                {found.of for found in first}, moved)
            keys = {found.key for found in first}
            report.remaining = [each for each in again if each.key in keys
                                or each.kind == _UNREACHABLE]
            strangers &= unknown
        report.foreign = len(strangers)
        report.examples = sorted(strangers)[:_EXAMPLES_MAX]
        if fix and report.remaining:
            self._fix(report, moved)
        report.remaining.sort(key=lambda found: (
            found.invariant, found.kind, found.of, report.cell_of(found)))
        return report

    def _begin(self) -> None:
        self._reader.begin()
        self._wrong = references.check_cell_values(self._reader)

    def _scan(self, progress: Progress) -> tuple[set[str], set[str], int]:
        """Return servers with findings, and consumers of moved servers.

        The third result is the number of servers of the API database.
        """
        done = 0
        suspects: set[str] = set()
        moved: set[str] = set()
        for uuids in itertools.chain(
                self._reader.pages(api.mapped_after),
                self._reader.pages(api.requested_after)):
            for server in self._reader.servers(uuids, asked=True).values():
                if any(judge(server)):
                    suspects.add(server.uuid)
                moved.update(claim.consumer for claim in server.moved)
            done += len(uuids)
            progress(done)
        servers = done
        for pages in self._reader.cell_pages(audit_queries.present_after):
            for cell, uuids in pages.items():
                suspects |= self._misplaced(cell, uuids)
                done += len(uuids)
            progress(done)
        return suspects, moved, servers

    def _misplaced(self, cell: str, uuids: list[str]) -> set[str]:
        """Return the servers that are not mapped to their cell."""
        with self._reader.database.reader() as connection:
            mappings = api.mappings(connection, uuids)
        return {uuid for uuid in uuids
                if uuid not in mappings or mappings[uuid].cell != cell}

    def _everything(
        self, suspects: Iterable[str], moved: set[str]
    ) -> tuple[list[Finding], set[str]]:
        """Return all findings, and the consumers of other services."""
        found = [*self._wrong, *self._of_servers(suspects)]
        found += references.check_all(self._reader)
        found += checks.check_hosts(self._reader)
        found += checks.check_guests(self._reader)
        unknown: dict[str, str] = {}
        store = self._reader.claims

        def look(held: checks.Held) -> None:
            consumers = list(held)
            for each in held.keys() - self._reader.known(consumers) - moved:
                unknown[each] = held[each][0].provider
            found.extend(checks.check_amounts(held))

        if store is not None:
            # The counters of an unreadable provider are not known.
            problems = store.problems()
            unreadable = {each.provider for each in problems}
            found += checks.check_records(problems)
            found += checks.check_capacity(
                store, self._reader.page, look, unreadable)
            found += checks.check_providers(self._reader, store, unreadable)
        lost = set() if self._foreign else self._lost(unknown)
        found += [
            Finding('consumer-unknown', each,
                    f'holds a claim on {unknown[each]}, and neither the API '
                    'database nor a cell knows it',
                    advice='find out which program claimed it, and let that '
                           'release it; if another service claims, audit '
                           'with --foreign')
            for each in lost]
        return [*found, *self._unheard()], unknown.keys() - lost

    def _lost(self, unknown: Iterable[str]) -> set[str]:
        """Return the consumers that no cell knows; none if one is silent."""
        lost = set(unknown)
        for chunk in statements.chunks(sorted(lost)):
            servers = self._reader.servers(chunk, everywhere=True)
            lost -= {server.uuid for server in servers.values()
                     if server.visible() or server.buried()}
        if lost:
            # A move may have begun since the servers were read.
            for pages in self._reader.cell_pages(audit_queries.moved_after):
                for uuids in pages.values():
                    lost -= set(map(migrations.consumer, uuids))
        if lost:
            for moves in self._reader.ask(
                    lambda cell, connection: audit_queries.moves_among(
                        connection, sorted(lost)),
                    self._reader.cells()).values():
                lost -= moves
        return set() if self._reader.unheard else lost

    def _of_servers(self, suspects: Iterable[str]) -> Iterator[Finding]:
        for uuids in statements.chunks(sorted(suspects)):
            servers = self._reader.servers(uuids, everywhere=True, asked=True)
            for each in servers.values():
                yield from judge(each)

    def _unheard(self) -> list[Finding]:
        wrong = {found.cell_uuid for found in self._wrong}
        return [Finding(
            _UNREACHABLE, cell,
            f'the servers of this cell could not be checked: {reason}',
            cell, None,
            'make its database available, and audit again')
            for cell, reason in self._reader.unheard.items()
            if cell not in wrong]

    def _fix(self, report: AuditReport, moved: set[str]) -> None:
        """Repair the findings, and check again."""
        before = report.remaining
        # 1. Repair what is not about a server. These repairs are safe at any
        #    time and make no other finding, so one call of each is enough.
        for provider in sorted({
                each.of for each in before
                if each.action is Action.RECOUNT}):
            self._repairs.recount(provider)
        if any(each.action is Action.EXPIRE for each in before):
            self._repairs.expire(references.LEASE_MAX_S)
        if any(each.action is Action.MEND for each in before):
            self._repairs.mend()
        # 2. Repair servers, and check them again: a repair can uncover the
        #    next one, for example the claim of a row that was removed.
        repairable = [each for each in before
                      if each.action and each.is_of_server]
        suspects = {each.of for each in repairable}
        for _ in range(_ROUNDS_MAX):
            if not any(each.action for each in repairable):
                break
            self._repair(repairable)
            repairable = list(self._of_servers(suspects))
        # 3. Check everything again. A new finding about something else began
        #    after the audit and may be an operation in progress, so it is not
        #    reported.
        after, _ = self._everything(suspects, moved)
        known = {each.key for each in before}
        report.remaining = [
            each for each in after
            if each.of in suspects or each.key in known
            or each.kind == _UNREACHABLE]
        if self._reader.unheard:
            # The unreachable cell may hide a finding that has no repair.
            found = {each.key for each in after}
            report.remaining += [
                each for each in before if each.action is None
                and not each.is_of_server and each.key not in found]
        report.remaining += [
            each for each in before
            if each.of not in suspects and each.is_of_server]
        keys = {each.key for each in report.remaining}
        report.repaired = [each for each in before if each.key not in keys]

    def _repair(self, repairable: list[Finding]) -> None:
        by_server: dict[str, list[Finding]] = {}
        for each in repairable:
            by_server.setdefault(each.of, []).append(each)
        for uuids in statements.chunks(by_server):
            servers = self._reader.servers(uuids, everywhere=True, asked=True)
            for uuid in uuids:
                self._repair_one(servers[uuid], {
                    each.key for each in by_server[uuid]})

    def _repair_one(
        self, server: ServerState, repairable: Iterable[tuple[str | None, ...]]
    ) -> None:
        """Repair the findings of a server that are still valid."""
        for finding in judge(server):
            if finding.action is None or finding.key not in repairable:
                continue
            try:
                self._repairs.repair(finding, server)
            except exception.CellschedException as exc:
                LOG.warning('Could not repair %s: %s', finding.kind,
                            exc.format_message(), instance_uuid=finding.of)
            except Exception:
                # A defect of one repair does not stop the others.
                LOG.exception('Could not repair %s', finding.kind,
                              instance_uuid=finding.of)


class LeakedClaims:
    """Releases claims of servers that are deleted, buried or moved away.

    A claim is released if two successive runs find it leaked, as operations
    may be in progress. Consumers that the API database does not know belong
    to another program, and are kept. A server gets claims back that a process
    withdrew before it stopped.
    """

    def __init__(self, reader: StateReader, repairs_: repairs.Repairs) -> None:
        self._reader = reader
        self._repairs = repairs_
        self._suspected: set[tuple[str, Action]] = set()
        #: Consumers of other programs.
        self._foreign: set[str] = set()

    def release_leaked(self) -> int:
        """Check all claims once; return the number of released ones."""
        store = self._reader.claims
        if store is None:
            return 0
        self._reader.begin()
        released = 0
        suspected = set()
        pages, holders = self._consumers(store)
        for uuids in self._servers(pages):
            servers = self._reader.servers(uuids, holders=holders)
            for server in servers.values():
                for action in _leaks(server):
                    if (server.uuid, action) not in self._suspected:
                        suspected.add((server.uuid, action))
                    elif self._release(server, action):
                        released += 1
        self._suspected = suspected
        return released

    def run(self) -> None:
        """Check all claims once; errors are logged, not raised."""
        try:
            self.release_leaked()
        except Exception:
            LOG.exception('Check for leaked claims failed')

    def _release(self, server: ServerState, action: Action) -> bool:
        try:
            released = self._repairs.release(server.uuid, action)
        except Exception:
            # An error with one server does not stop the others.
            LOG.exception('Could not release the claim of the server',
                          instance_uuid=server.uuid)
            return False
        if released:
            LOG.warning('Released a leaked claim of the server',
                        instance_uuid=server.uuid)
        return released

    def _consumers(
        self, store: base.ClaimStore
    ) -> tuple[Iterable[list[str]], Collection[str] | None]:
        """Return pages of consumers, and the set of all if it is known."""
        pages = listing.pages(store, self._reader.page)
        if base.Capability.CONSUMER_LIST in store.capabilities:
            return pages, None
        # In these stores a read of each consumer is a request, so only
        # consumers with claims are read. A concurrent transfer may hide one,
        # which the next run finds.
        known = [*pages]
        return known, frozenset(itertools.chain.from_iterable(known))

    def _servers(self, pages: Iterable[list[str]]) -> Iterator[list[str]]:
        """Yield servers with claims, and then moved ones, in pages.

        The consumer of a move is not the server's uuid, so the servers that
        were moved come from the cells. See :func:`.migrations.withdraw` for
        other servers with such a consumer.
        """
        unknown: set[str] = set()
        for consumers in pages:
            known = self._reader.known(consumers)
            unknown.update(uuid for uuid in consumers if uuid not in known)
            yield [uuid for uuid in consumers if uuid in known]
        for moved in self._reader.cell_pages(audit_queries.moved_after):
            for uuids in moved.values():
                unknown.difference_update(map(migrations.consumer, uuids))
                yield list(dict.fromkeys(uuids))
        # All servers are read only if there is a new consumer.
        if unknown <= self._foreign:
            return
        for uuids in self._reader.pages(api.mapped_after):
            withdrawn = [uuid for uuid in uuids
                         if migrations.consumer(uuid) in unknown]
            unknown.difference_update(map(migrations.consumer, withdrawn))
            yield withdrawn
        self._foreign = unknown


def _leaks(server: ServerState) -> Iterator[Action]:
    expected = checks.expected_claims(server)
    if server.claims and expected is checks.Expected.NONE:
        yield Action.RELEASE
    if checks.move_leaks(server, expected):
        yield Action.RELEASE_MOVE
