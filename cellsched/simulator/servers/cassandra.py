# SPDX-License-Identifier: Apache-2.0
"""A model of Cassandra, for the requests of the claim store."""

import collections
from collections.abc import Sequence
import dataclasses
from typing import Any

from cellsched.claims.cassandra import requests
from cellsched import exception
from cellsched.simulator.servers import base

_CONDITIONAL = (
    requests.ChangeProvider, requests.Fence, requests.SetFigures,
    requests.WriteConsumer)


@dataclasses.dataclass
class _Partition:
    """The rows and figures of a provider; a new one has no figures."""

    figures: requests.Figures | None = None
    rows: dict[tuple[str, str], requests.ClaimRow] = dataclasses.field(
        default_factory=dict)


class CassandraModel(base.ServerModel):
    """A model of Cassandra that executes each request at once.

    No row expires.

    :param adds: whether a conditional update may add to a column
    """

    def __init__(self, adds: bool = True) -> None:
        self.adds = adds
        self.consumers: dict[str, requests.VersionedRow] = {}
        self.partitions = collections.defaultdict[str, _Partition](_Partition)
        self.trees: dict[str, requests.Tree] = {}
        self.noted = collections.defaultdict[int, dict[str, None]](dict)
        self.created = False

    def answer(self, request: Any) -> Any:
        """Return the answer of the server; raises errors only for misuse."""
        answer: Any = getattr(
            self, requests.method(type(request).__name__))
        return answer(request)

    def cost(self, request: Any) -> tuple[bool, int]:
        parts = _parts(request)
        return (any(isinstance(each, _CONDITIONAL) for each in parts),
                len(parts) - 1)

    def is_conflict(self, request: Any, answer: Any) -> bool:
        answers = answer if isinstance(
            request, requests.Together) else [answer]
        return any(
            isinstance(each, _CONDITIONAL) and not getattr(
                outcome, 'applied', True)
            for each, outcome in zip(_parts(request), answers))

    def partitions_of(self, request: Any) -> set[str]:
        return {str(getattr(each, 'provider', None)
                    or getattr(each, 'consumer', ''))
                for each in _parts(request)}

    def _together(self, request: requests.Together) -> list[Any]:
        return [self.answer(each) for each in request.requests]

    def _read_consumer(
        self, request: requests.ReadConsumer
    ) -> requests.VersionedRow | None:
        return self.consumers.get(request.consumer)

    def _write_consumer(
        self, request: requests.WriteConsumer
    ) -> requests.Written:
        present = self.consumers.get(request.consumer)
        if (present and present.version) != request.seen:
            # The server returns the row only if none was expected.
            return requests.Written(
                False, present if request.seen is None else None)
        if request.row is None:
            del self.consumers[request.consumer]
        else:
            self.consumers[request.consumer] = request.row
        return requests.Written(True)

    def _read_figures(
        self, request: requests.ReadFigures
    ) -> requests.Figures | None:
        return self.partitions[request.provider].figures

    def _read_claims(
        self, request: requests.ReadClaims
    ) -> list[requests.ClaimRow]:
        rows = self.partitions[request.provider].rows
        return [rows[key] for key in sorted(rows)
                if request.keys is None or key in request.keys]

    def _read_provider(self, request: requests.ReadProvider) -> Any:
        rows = self._read_claims(requests.ReadClaims(request.provider))
        return (self.partitions[request.provider].figures,
                [row for row in rows if row.resources])

    def _change_provider(
        self, request: requests.ChangeProvider
    ) -> requests.ProviderChanged:
        if request.seen is None and not self.adds:
            raise exception.ConfigurationInvalid(
                field='request', problem='it adds claims')
        partition = self.partitions[request.provider]
        figures, rows = partition.figures, partition.rows
        if figures is None:
            return requests.ProviderChanged(False)
        holds = (
            figures.inventory == request.inventory
            and (request.seen is None
                 or request.seen.generation == figures.generation)
            and all((amount := figures.used[number]) is not None
                    and amount <= most for number, most in request.bounds)
            and not any(row.key in rows for row in request.inserted)
            and all(rows.get(row.key) == row for row in request.deleted))
        if not holds:
            # The server returns all columns only for an insert.
            return requests.ProviderChanged(
                False, figures if request.inserted else None)
        base = figures if request.seen is None else request.seen
        used = list(base.used)
        for number, more in request.added:
            # The sum of no amount is none.
            amount = used[number]
            used[number] = None if amount is None else amount + more
        partition.figures = dataclasses.replace(
            figures, generation=base.generation + 1,
            consumers=base.consumers + request.consumers,
            open=base.open + request.open, used=tuple(used))
        for row in request.deleted:
            del rows[row.key]
        for row in request.inserted:
            rows[row.key] = row
        return requests.ProviderChanged(True)

    def _set_inventory(
        self, request: requests.SetInventory
    ) -> requests.ProviderChanged:
        partition = self.partitions[request.provider]
        figures = partition.figures
        if (figures and figures.inventory) != request.seen or (
                figures is not None
                and (request.generation not in (None, figures.generation)
                     or any(figures.used[number] != 0
                            for number in request.unused))):
            return requests.ProviderChanged(False)
        if figures is None:
            figures = requests.Figures(
                request.provider, '', 0, 0, 0, (None,) * requests.SLOTS)
        partition.figures = dataclasses.replace(
            figures, inventory=request.inventory,
            generation=figures.generation + 1,
            used=tuple(0 if number in request.cleared else amount
                       for number, amount in enumerate(figures.used)))
        return requests.ProviderChanged(True)

    def _set_figures(
        self, request: requests.SetFigures
    ) -> requests.ProviderChanged:
        partition = self.partitions[request.seen.provider]
        figures = partition.figures
        if figures is None or figures.generation != request.seen.generation:
            return requests.ProviderChanged(False)
        partition.figures = request.figures
        return requests.ProviderChanged(True)

    def _fence(self, request: requests.Fence) -> requests.ClaimRow | None:
        rows = self.partitions[request.provider].rows
        fence = requests.ClaimRow(request.consumer, request.attempt)
        found = rows.get(fence.key)
        rows.setdefault(fence.key, fence)
        return found

    def _scan(self, request: requests.Scan) -> list[Any]:
        known = [partition.figures for _, partition
                 in sorted(self.partitions.items()) if partition.figures]
        if request.figures:
            return known
        return [(each.provider, each.generation) for each in known]

    def _read_tree(self, request: requests.ReadTree) -> requests.Tree | None:
        return self.trees.get(request.provider)

    def _write_tree(self, request: requests.WriteTree) -> bool:
        present = self.trees.get(request.provider)
        if (present and present.version) != request.seen:
            return False
        self.trees[request.provider] = request.tree
        return True

    def _scan_trees(
        self, request: requests.ScanTrees
    ) -> list[tuple[str, str]]:
        return [(provider, tree.root)
                for provider, tree in sorted(self.trees.items())
                if (request.trait is None or request.trait in tree.traits)
                and (not request.nested or tree.root != provider)]

    def _scan_room(
        self, request: requests.ScanRoom
    ) -> list[requests.ProviderRoom]:
        return [requests.ProviderRoom(
            each.provider, each.inventory,
            each.used[:requests.SLOTS_SCANNED])
            for each in self._scan(requests.Scan(figures=True))]

    def _announce(self, request: requests.Announce) -> None:
        noted = self.noted[request.bucket]
        if request.is_over:
            noted.pop(request.consumer, None)
        else:
            noted[request.consumer] = None

    def _read_announced(self, request: requests.ReadAnnounced) -> list[str]:
        return [*self.noted[request.bucket]]

    def _describe(
        self, request: requests.Describe,
    ) -> requests.KeyspaceDescription:
        missing = () if self.created else ('keyspace',)
        return requests.KeyspaceDescription(
            '5.0.0', missing, str(id(self)), self.adds)

    def _create(self, request: requests.Create) -> None:
        self.created = True


def _parts(request: Any) -> Sequence[Any]:
    return request.requests if isinstance(
        request, requests.Together) else [request]
