# SPDX-License-Identifier: Apache-2.0
"""Requests to Cassandra and its answers.

Each request concerns one partition and changes it as a whole or not at all.
Scans and :class:`Together` concern several partitions.
"""

from collections.abc import Sequence
import dataclasses
import functools
import re
from typing import Any
from typing import NamedTuple

#: Resource classes of which a provider may have an amount; each is counted in
#: a column.
SLOTS = 32

#: The number of these columns that :class:`ScanRoom` reads.
SLOTS_SCANNED = 8

#: Seconds of a bucket of operations.
BUCKET_S = 2.0


@dataclasses.dataclass(frozen=True)
class VersionedRow:
    """A consumer's row.

    :param version: unique to each write
    :param body: a :class:`.records.Record` as JSON
    """

    version: str
    body: str


@dataclasses.dataclass(frozen=True)
class Figures:
    """The counters of a provider.

    :param inventory: a :class:`.slots.Slots` as JSON
    :param generation: incremented by each change
    :param consumers: number of claims' rows
    :param open: number of rows that belong to batches of several providers
    :param used: used amounts by slot; None if the slot was never used
    """

    provider: str
    inventory: str
    generation: int
    consumers: int
    open: int
    used: tuple[int | None, ...]


@dataclasses.dataclass(frozen=True)
class ClaimRow:
    """The row of a claim in the partition of its provider.

    :param attempt: unique name of the call that made the claim
    :param resources: amounts by resource class, as JSON; empty if the attempt
        is fenced off
    :param several: whether the batch has several providers
    """

    consumer: str
    attempt: str
    resources: str = ''
    several: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return self.consumer, self.attempt


@dataclasses.dataclass(frozen=True)
class ReadConsumer:
    """Answered by :class:`VersionedRow`; None without a row."""

    consumer: str


@dataclasses.dataclass(frozen=True)
class WriteConsumer:
    """Answered by :class:`Written`.

    :param seen: the version that the row must have; None if it must not exist
    :param row: the new row; None to delete it
    """

    consumer: str
    seen: str | None
    row: VersionedRow | None


@dataclasses.dataclass(frozen=True)
class Written:
    """The outcome of a write; after a conflict the row, if it is known."""

    applied: bool
    row: VersionedRow | None = None


@dataclasses.dataclass(frozen=True)
class ReadFigures:
    """Answered by :class:`Figures`; None for an unknown provider.

    :param serial: whether to wait for conditional writes in progress, which
        costs as much as a write. All that were acknowledged are seen anyway
    """

    provider: str
    serial: bool = True


@dataclasses.dataclass(frozen=True)
class ReadClaims:
    """Answered by a list of :class:`ClaimRow`.

    :param keys: consumers and attempts; None for all rows
    """

    provider: str
    keys: tuple[tuple[str, str], ...] | None = None


@dataclasses.dataclass(frozen=True)
class ReadProvider:
    """Answered by counters and rows that were read together.

    The answer is :class:`Figures` or None, and a list of :class:`ClaimRow`.
    """

    provider: str


@dataclasses.dataclass(frozen=True)
class ChangeProvider:
    """Answered by :class:`ProviderChanged`; applied under conditions.

    The inventory is unchanged. No used amount exceeds its bound. The inserted
    rows do not exist, and the deleted rows exist as given. If ``seen`` is
    given, the generation equals that of ``seen``, and the new counters are
    computed by the client.

    :param added: amounts to add, by slot
    :param bounds: maximum used amounts before the change, by slot
    :param seen: the current counters; None if the server adds
    """

    provider: str
    inventory: str
    added: tuple[tuple[int, int], ...] = ()
    bounds: tuple[tuple[int, int], ...] = ()
    consumers: int = 0
    open: int = 0
    inserted: tuple[ClaimRow, ...] = ()
    deleted: tuple[ClaimRow, ...] = ()
    seen: Figures | None = None


@dataclasses.dataclass(frozen=True)
class ProviderChanged:
    """The outcome of a change; after a conflict the counters, if known."""

    applied: bool
    figures: Figures | None = None


@dataclasses.dataclass(frozen=True)
class SetInventory:
    """Answered by :class:`ProviderChanged`.

    :param seen: the current inventory; None for a new provider
    :param unused: slots whose used amount must be 0
    :param cleared: slots to set to 0
    :param generation: the current generation; None if the server adds
    """

    provider: str
    seen: str | None
    inventory: str
    unused: tuple[int, ...] = ()
    cleared: tuple[int, ...] = ()
    generation: int | None = None


@dataclasses.dataclass(frozen=True)
class SetFigures:
    """Answered by :class:`ProviderChanged`.

    Applied if the generation equals that of ``seen``.
    """

    seen: Figures
    figures: Figures


@dataclasses.dataclass(frozen=True)
class Fence:
    """Prevent an attempt from claiming at a provider later.

    Answered by the :class:`ClaimRow` of the attempt if it exists, or None.
    """

    provider: str
    consumer: str
    attempt: str


@dataclasses.dataclass(frozen=True)
class Scan:
    """Answered by a list of all providers.

    The list has pairs of provider and generation, or :class:`Figures`. Each
    provider is read at some moment after the request.
    """

    figures: bool = False


@dataclasses.dataclass(frozen=True)
class Tree:
    """The root and the traits of a provider.

    :param version: unique to each write
    :param traits: sorted
    """

    version: str
    root: str
    traits: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class ReadTree:
    """Answered by :class:`Tree`; None if none was written."""

    provider: str


@dataclasses.dataclass(frozen=True)
class WriteTree:
    """Answered by whether the tree was written.

    :param seen: the version that the row must have; None if it must not exist
    """

    provider: str
    seen: str | None
    tree: Tree


@dataclasses.dataclass(frozen=True)
class ScanTrees:
    """Answered by a list of providers and their roots.

    Each provider is read at some moment after the request.

    :param trait: only providers with this trait; None for all
    :param nested: only providers that are not roots
    """

    trait: str | None = None
    nested: bool = False


@dataclasses.dataclass(frozen=True)
class ScanRoom:
    """Answered by a list of :class:`ProviderRoom` of all providers.

    Each provider is read at some moment after the request.
    """


class ProviderRoom(NamedTuple):
    """A provider's inventory, and the used amounts of its first slots."""

    provider: str
    inventory: str
    used: tuple[int | None, ...]


@dataclasses.dataclass(frozen=True)
class Announce:
    """Note an operation that begins, or forget one that ended.

    Unconditional, as it is only a hint for the search for operations of
    clients that stopped. Answered by None.

    :param bucket: the time when it began, in units of :data:`BUCKET_S`
    """

    bucket: int
    consumer: str
    is_over: bool = False


@dataclasses.dataclass(frozen=True)
class ReadAnnounced:
    """Answered by a list of the consumers noted in a bucket."""

    bucket: int


@dataclasses.dataclass(frozen=True)
class Describe:
    """Answered by :class:`KeyspaceDescription`."""


@dataclasses.dataclass(frozen=True)
class KeyspaceDescription:
    """The version of the server, and missing tables and indexes.

    :param identity: unique to the data of the keyspace
    :param adds: whether the server supports addition to a column under a
        condition; None if it was not tried
    """

    version: str
    missing: tuple[str, ...]
    identity: str = ''
    adds: bool | None = None


@dataclasses.dataclass(frozen=True)
class Create:
    """Create the keyspace, tables and indexes; answered by None.

    :param copies: replication factor of a new keyspace
    """

    copies: int


@dataclasses.dataclass(frozen=True)
class Together:
    """Requests that are sent concurrently, in any order.

    Answered by a list with the answer to each, or the error that it raised.
    """

    requests: Sequence[Any]


@functools.cache
def method(name: str) -> str:
    """Return the method for a class of requests: ``_read_claims``."""
    return re.sub('(?=[A-Z])', '_', name).lower()
