# SPDX-License-Identifier: Apache-2.0
"""Going through a whole deployment."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import itertools

from oslo_log import log

from cellsched.audit import capacity
from cellsched.audit import claim_holders
from cellsched.audit.facts import Facts
from cellsched.audit.facts import Reader
from cellsched.audit import fates
from cellsched.audit import findings
from cellsched.audit import hosts
from cellsched.audit import providers
from cellsched.audit import reasons
from cellsched.audit import repairs
from cellsched.audit import tasks
from cellsched.claims import moves
from cellsched.clock import Clock
from cellsched.db.api import audit_queries as api
from cellsched.db.cell import audit_queries
from cellsched.db import statements
from cellsched import exception

LOG = log.getLogger(__name__)

#: Rounds of repairs: one may show what another one mends.
_ROUNDS_MAX = 4

#: Foreign consumers to name.
_EXAMPLES_MAX = 10

Progress = Callable[[int], None]


def judge(facts: Facts) -> Iterator[findings.Finding]:
    """Yield all that is wrong with a server."""
    yield from fates.check(facts)
    yield from claim_holders.check(facts)
    yield from tasks.check(facts)
    yield from reasons.check(facts)


class Auditor:
    """Looks for what must not be, twice: things may be on their way.

    The first look goes through everything. Some time later those are looked
    at again, and in all cells, that something was wrong with; what is wrong
    still is told.
    """

    def __init__(
        self, reader: Reader, repairs_: repairs.Repairs,
        clock: Clock,
    ) -> None:
        self._reader = reader
        self._repairs = repairs_
        self._clock = clock

    def size(self) -> int:
        """Return how much there is to go through, for a progress bar."""
        with self._reader.database.reader() as connection:
            mapped = api.count(connection)
        rows = self._reader.ask(
            lambda cell, connection: audit_queries.count(connection),
            self._reader.cells())
        return mapped + sum(rows.values())

    def run(
        self, settle_s: float, fix: bool = False,
        progress: Progress = lambda done: None,
    ) -> findings.AuditReport:
        """Look for what is wrong, and repair what is safe to repair.

        :param settle_s: seconds between the two looks
        :param progress: is told how much of :meth:`size` was gone through
        """
        report = findings.AuditReport()
        self._reader.begin()
        suspects, moved = self._scan(progress)
        first, foreign = self._everything(suspects, moved)
        if first:
            self._clock.sleep(settle_s)
            self._reader.begin()
            again, still = self._everything(
                {found.of for found in first}, moved)
            keys = {found.key for found in first}
            report.left = [each for each in again if each.key in keys]
            foreign &= still
        report.foreign = len(foreign)
        report.examples = sorted(foreign)[:_EXAMPLES_MAX]
        if fix and report.left:
            self._fix(report, moved)
        report.left.sort(key=lambda found: (found.invariant, found.kind,
                                            found.of, found.cell))
        return report

    def _scan(self, progress: Progress) -> tuple[set[str], set[str]]:
        """Return servers that may be wrong, and names that moved ones use."""
        done = 0
        suspects: set[str] = set()
        moved: set[str] = set()
        for uuids in itertools.chain(
                self._reader.pages(api.mapped_after),
                self._reader.pages(api.requested_after)):
            for facts in self._reader.facts(uuids, asked=True).values():
                if any(judge(facts)):
                    suspects.add(facts.uuid)
                if facts.moved:
                    moved.add(moves.consumer(facts.uuid))
            done += len(uuids)
            progress(done)
        for pages in self._reader.cell_pages(audit_queries.present_after):
            for cell, uuids in pages.items():
                suspects |= self._misplaced(cell, uuids)
                done += len(uuids)
            progress(done)
        return suspects, moved

    def _misplaced(self, cell: str, uuids: list[str]) -> set[str]:
        """Return those that are not mapped to the cell that they are in."""
        with self._reader.database.reader() as connection:
            mappings = api.mappings(connection, uuids)
        return {uuid for uuid in uuids
                if uuid not in mappings or mappings[uuid].cell != cell}

    def _everything(
        self, suspects: Iterable[str], moved: set[str]
    ) -> tuple[list[findings.Finding], set[str]]:
        """Return what is wrong, and who claims and is not known here."""
        found = list(self._of_servers(suspects))
        found += hosts.check(self._reader)
        foreign: set[str] = set()
        store = self._reader.claims

        def look(held: capacity.Held) -> None:
            consumers = list(held)
            unknown = (held.keys() - self._reader.known(consumers)) - moved
            foreign.update(unknown)

        if store is not None:
            found += capacity.check(store, self._reader.page, look)
            found += providers.check(self._reader, store)
        found += self._unheard()
        return found, foreign

    def _of_servers(
        self, suspects: Iterable[str]
    ) -> Iterator[findings.Finding]:
        for uuids in statements.chunks(sorted(suspects)):
            facts = self._reader.facts(uuids, everywhere=True, asked=True)
            for each in facts.values():
                yield from judge(each)

    def _unheard(self) -> list[findings.Finding]:
        names = self._reader.names()
        return [findings.Finding(
            'cell-unreachable', cell,
            f'nothing is known of the servers of this cell: {reason}',
            names.get(cell, cell), cell, None,
            'bring its database back, and audit again')
            for cell, reason in self._reader.unheard.items()]

    def _fix(self, report: findings.AuditReport, moved: set[str]) -> None:
        """Repair what is left, and look again."""
        before = report.left
        for provider in sorted({
                each.of for each in before
                if each.action is findings.Action.RECOUNT}):
            self._repairs.recount(provider)
        wanted = [each for each in before
                  if each.action and each.is_of_server]
        suspects = {each.of for each in wanted}
        for _ in range(_ROUNDS_MAX):
            if not any(each.action for each in wanted):
                break
            self._repair(wanted)
            wanted = list(self._of_servers(suspects))
        after, _ = self._everything(suspects, moved)
        known = {each.key for each in before}
        report.left = [each for each in after
                       if each.of in suspects or each.key in known]
        report.left += [each for each in before if each.of not in suspects
                        and each.is_of_server]
        keys = {each.key for each in report.left}
        report.repaired = [each for each in before if each.key not in keys]

    def _repair(self, wanted: list[findings.Finding]) -> None:
        by_server: dict[str, list[findings.Finding]] = {}
        for each in wanted:
            by_server.setdefault(each.of, []).append(each)
        for uuids in statements.chunks(by_server):
            facts = self._reader.facts(uuids, everywhere=True, asked=True)
            for uuid in uuids:
                self._repair_one(facts[uuid], {
                    each.key for each in by_server[uuid]})

    def _repair_one(
        self, facts: Facts, wanted: Iterable[tuple[str | None, ...]]
    ) -> None:
        """Repair those of the findings that hold still."""
        for finding in judge(facts):
            if finding.action is None or finding.key not in wanted:
                continue
            try:
                self._repairs.repair(finding, facts)
            except exception.CellschedException as exc:
                LOG.warning('Could not repair %s of %s: %s',
                            finding.kind, finding.of, exc.format_message())
            except Exception:
                # The others are not to wait until this is mended.
                LOG.exception('Could not repair %s of %s', finding.kind,
                              finding.of)
