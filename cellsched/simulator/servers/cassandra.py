# SPDX-License-Identifier: Apache-2.0
"""A model of Cassandra, for the requests of the claim store."""

import dataclasses
from typing import Any

from cellsched.claims.cassandra import requests
from cellsched import exception


class _Partition:
    """The rows and figures of a provider; a new one has no figures."""

    def __init__(self, provider: str) -> None:
        self.provider = provider
        self.figures: requests.Figures | None = None
        self.rows: dict[tuple[str, str], requests.ClaimRow] = {}


class CassandraModel:
    """A model of Cassandra that executes each request at once.

    No row expires.

    :param adds: whether a conditional update may add to a column
    """

    def __init__(self, adds: bool = True) -> None:
        self.adds = adds
        self.consumers: dict[str, requests.VersionedRow] = {}
        self.partitions: dict[str, _Partition] = {}
        self.trees: dict[str, requests.Tree] = {}
        self.noted: dict[int, dict[str, None]] = {}
        self.created = False

    def answer(self, request: Any) -> Any:
        """Return the answer of the server; raises errors only for misuse."""
        answer: Any = getattr(
            self, requests.method(type(request).__name__))
        return answer(request)

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

    def _figures(self, provider: str) -> requests.Figures | None:
        partition = self.partitions.get(provider)
        return partition.figures if partition else None

    def _read_figures(
        self, request: requests.ReadFigures
    ) -> requests.Figures | None:
        return self._figures(request.provider)

    def _read_claims(
        self, request: requests.ReadClaims
    ) -> list[requests.ClaimRow]:
        partition = self.partitions.get(request.provider)
        rows = partition.rows if partition else {}
        return [rows[key] for key in sorted(rows)
                if request.keys is None or key in request.keys]

    def _read_provider(self, request: requests.ReadProvider) -> Any:
        rows = self._read_claims(requests.ReadClaims(request.provider))
        return (self._figures(request.provider),
                [row for row in rows if row.resources])

    def _change_provider(
        self, request: requests.ChangeProvider
    ) -> requests.ProviderChanged:
        if request.seen is None and not self.adds:
            raise exception.ConfigurationInvalid(
                field='request', problem='it adds claims')
        partition = self.partitions.get(request.provider)
        figures = partition.figures if partition else None
        if partition is None or figures is None:
            return requests.ProviderChanged(False)
        rows = partition.rows
        holds = (
            figures.inventory == request.inventory
            and (request.seen is None
                 or request.seen.generation == figures.generation)
            and all(_at_most(figures.used[number], most)
                    for number, most in request.bounds)
            and not any(row.key in rows for row in request.inserted)
            and all(rows.get(row.key) == row for row in request.deleted))
        if not holds:
            # The server returns all columns only for an insert.
            return requests.ProviderChanged(
                False, figures if request.inserted else None)
        base = figures if request.seen is None else request.seen
        used = list(base.used)
        for number, amount in request.added:
            used[number] = _sum(used[number], amount)
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
        partition = self.partitions.setdefault(
            request.provider, _Partition(request.provider))
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
        provider = request.seen.provider
        figures = self._figures(provider)
        if figures is None or figures.generation != request.seen.generation:
            return requests.ProviderChanged(False)
        self.partitions[provider].figures = request.figures
        return requests.ProviderChanged(True)

    def _fence(self, request: requests.Fence) -> requests.ClaimRow | None:
        partition = self.partitions.setdefault(
            request.provider, _Partition(request.provider))
        fence = requests.ClaimRow(request.consumer, request.attempt)
        found = partition.rows.get(fence.key)
        if found is None:
            partition.rows[fence.key] = fence
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
        noted = self.noted.setdefault(request.bucket, {})
        if request.is_over:
            noted.pop(request.consumer, None)
        else:
            noted[request.consumer] = None

    def _read_announced(self, request: requests.ReadAnnounced) -> list[str]:
        return [*self.noted.get(request.bucket, ())]

    def _describe(
        self, request: requests.Describe,
    ) -> requests.KeyspaceDescription:
        missing = () if self.created else ('keyspace',)
        return requests.KeyspaceDescription(
            '5.0.0', missing, str(id(self)), self.adds)

    def _create(self, request: requests.Create) -> None:
        self.created = True


def _at_most(amount: int | None, most: int) -> bool:
    return amount is not None and amount <= most


def _sum(amount: int | None, more: int) -> int | None:
    """Return a sum, or None if a term is None."""
    return None if amount is None else amount + more
