# SPDX-License-Identifier: Apache-2.0
"""A model of Cassandra, for the requests of the claim store."""

import collections
from collections.abc import Sequence
import dataclasses
import functools
import re
from typing import Any

from cellsched.claims.cassandra import requests
from cellsched import exception
from cellsched.simulator.servers import base

_CONDITIONAL = (
    requests.ChangeProvider, requests.Fence, requests.WriteConsumer)


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
            self, _method(type(request).__name__))
        return answer(request)

    def cost(self, request: Any) -> tuple[bool, int]:
        parts = _parts(request)
        return (any(isinstance(each, _CONDITIONAL) for each in parts),
                len(parts) - 1)

    def is_conflict(self, request: Any, answer: Any) -> bool:
        answers = answer if isinstance(
            request, requests.Together) else [answer]
        return any(
            isinstance(each, _CONDITIONAL) and (
                outcome is False or not getattr(outcome, 'applied', True))
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

    def _write_consumer(self, request: requests.WriteConsumer) -> bool:
        present = self.consumers.get(request.consumer)
        if (present and present.version) != request.seen:
            return False
        if request.row is None:
            del self.consumers[request.consumer]
        else:
            self.consumers[request.consumer] = request.row
        return True

    def _read_figures(
        self, request: requests.ReadFigures
    ) -> requests.Figures | None:
        return self.partitions[request.provider].figures

    def _read_claims(
        self, request: requests.ReadClaims
    ) -> list[requests.ClaimRow]:
        rows = self.partitions[request.provider].rows
        return [rows[key] for key in sorted(rows) if key in request.keys]

    def _read_provider(self, request: requests.ReadProvider) -> Any:
        partition = self.partitions[request.provider]
        return (partition.figures, [
            row for _, row in sorted(partition.rows.items())
            if row.resources])

    def _change_provider(
        self, request: requests.ChangeProvider
    ) -> requests.ProviderChanged:
        if request.added and not self.adds:
            raise exception.ConfigurationInvalid(
                field='request', problem='it adds claims')
        partition = self.partitions[request.provider]
        figures, rows = partition.figures, partition.rows
        columns: dict[str, Any] = figures.columns() if figures else (
            dict.fromkeys(requests.COLUMNS))
        holds = (
            all(columns[name] == value
                for name, value in request.equal.items())
            and all(columns[name] is not None and columns[name] <= most
                    for name, most in request.bounds.items())
            and not any(row.key in rows for row in request.inserted)
            and all(rows.get(row.key) == row for row in request.deleted))
        if not holds:
            # The server returns all columns only for an insert.
            if not request.inserted or figures is None:
                return requests.ProviderChanged(False)
            keys = {row.key for row in request.inserted + request.deleted}
            return requests.ProviderChanged(False, figures, tuple(
                rows[key] for key in sorted(keys & rows.keys())))
        columns |= request.put
        for name, amount in request.added.items():
            if columns[name] is not None:
                columns[name] += amount
        partition.figures = requests.Figures.of(
            {'provider': request.provider, **columns})
        for row in request.deleted:
            del rows[row.key]
        for row in request.inserted:
            rows[row.key] = row
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


@functools.cache
def _method(name: str) -> str:
    """Return the method for a class of requests: ``_read_claims``."""
    return re.sub('(?=[A-Z])', '_', name).lower()
