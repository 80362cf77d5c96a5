# SPDX-License-Identifier: Apache-2.0
"""Releasing leaked claims while a conductor runs."""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
import itertools

from oslo_log import log

from cellsched.audit import claim_holders
from cellsched.audit.facts import Facts
from cellsched.audit.facts import Reader
from cellsched.audit import findings
from cellsched.audit import repairs
from cellsched.claims import base
from cellsched.claims import listing
from cellsched.db.cell import audit_queries

LOG = log.getLogger(__name__)

Action = findings.Action


class LeakedClaims:
    """Releases claims of servers that are deleted, buried or gone.

    A claim goes when two runs in a row find it leaked, so that what is on its
    way has come to its end. Those of consumers that the API database does not
    know belong to somebody else, and stay.
    """

    def __init__(
        self, reader: Reader, repairs_: repairs.Repairs
    ) -> None:
        self._reader = reader
        self._repairs = repairs_
        self._suspected: set[tuple[str, Action]] = set()

    def release_leaked(self) -> int:
        """Go through the claims once; return how many were released."""
        store = self._reader.claims
        if store is None:
            return 0
        self._reader.begin()
        released = 0
        suspected = set()
        pages, holders = self._consumers(store)
        for uuids in self._servers(pages):
            for facts in self._reader.facts(uuids, holders=holders).values():
                for action in _leaks(facts):
                    if (facts.uuid, action) not in self._suspected:
                        suspected.add((facts.uuid, action))
                    elif self._release(facts, action):
                        released += 1
        self._suspected = suspected
        return released

    def run(self) -> None:
        """Go through the claims once; what goes wrong waits for the next."""
        try:
            self.release_leaked()
        except Exception:
            LOG.exception('Check for leaked claims failed')

    def _release(self, facts: Facts, action: Action) -> bool:
        try:
            released = self._repairs.release(facts.uuid, action)
        except Exception:
            # The others are not to wait until this is mended.
            LOG.exception('Could not release the claim of instance %s',
                          facts.uuid)
            return False
        if released:
            LOG.warning('Released a leaked claim of instance %s', facts.uuid)
        return released

    def _consumers(
        self, store: base.ClaimStore
    ) -> tuple[Iterable[list[str]], Collection[str] | None]:
        """Return who holds something, in pages; all of them, if in memory."""
        pages = listing.pages(store, self._reader.page)
        if base.Capability.CONSUMER_LIST in store.capabilities:
            return pages, None
        # To ask what one holds is a request there, if it is nothing too. Who
        # is missed, as it moves just then, is there for the next run.
        known = [*pages]
        return known, frozenset(itertools.chain.from_iterable(known))

    def _servers(self, pages: Iterable[list[str]]) -> Iterator[list[str]]:
        """Yield who holds something, and who was moved, a page at a time.

        What a server holds to be moved is in another name, which does not
        tell whose it is.
        """
        for consumers in pages:
            known = self._reader.known(consumers)
            yield [uuid for uuid in consumers if uuid in known]
        for moved in self._reader.cell_pages(audit_queries.moved_after):
            for uuids in moved.values():
                yield list(dict.fromkeys(uuids))


def _leaks(facts: Facts) -> Iterator[Action]:
    state = claim_holders.due(facts)
    if facts.claims and state is claim_holders.Due.NOTHING:
        yield Action.RELEASE
    if claim_holders.move_leaks(facts, state):
        yield Action.RELEASE_MOVE
