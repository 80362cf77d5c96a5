# SPDX-License-Identifier: Apache-2.0
"""Requests that the store makes of Cassandra, and the answers to them.

Each request but those that scan, and :class:`Together`, is about one
partition, and what it changes there it changes whole or not at all.
"""

from collections.abc import Sequence
import dataclasses
from typing import Any
from typing import NamedTuple

#: Resource classes that a provider may have an amount of at a time: each is
#: counted in a column of its own.
SLOTS = 32

#: The first of these, of which :class:`ScanRoom` tells.
SLOTS_SCANNED = 8


@dataclasses.dataclass(frozen=True)
class Versioned:
    """A consumer's row.

    :param version: other than that of any row before it
    :param body: what :class:`.records.Record` makes of it
    """

    version: str
    body: str


@dataclasses.dataclass(frozen=True)
class Figures:
    """Counts of a provider.

    :param inventory: what :class:`.slots.Slots` makes of it
    :param generation: one more after each change
    :param consumers: how many rows its claims have
    :param open: how many of these depend on other providers' rows
    :param used: amounts that are taken, by slot; None where none ever was
    """

    provider: str
    inventory: str
    generation: int
    consumers: int
    open: int
    used: tuple[int | None, ...]


@dataclasses.dataclass(frozen=True)
class ClaimRow:
    """A claim among those of its provider.

    :param attempt: the call that took it
    :param resources: amounts by resource class, as JSON; empty in the row of
        an attempt that is to take nothing any more
    :param several: whether it depends on other providers' rows
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
    """Answered by :class:`Versioned`, or None if there is no row."""

    consumer: str


@dataclasses.dataclass(frozen=True)
class WriteConsumer:
    """Answered by :class:`Written`.

    :param seen: the version that the row must have; None, it must not be
        there
    :param row: what it is then; None, it is gone
    """

    consumer: str
    seen: str | None
    row: Versioned | None


@dataclasses.dataclass(frozen=True)
class Written:
    """Says whether a row was written; else which one is there, if known."""

    applied: bool
    row: Versioned | None = None


@dataclasses.dataclass(frozen=True)
class ReadFigures:
    """Answered by :class:`Figures`, or None if nobody knows the provider."""

    provider: str


@dataclasses.dataclass(frozen=True)
class ReadClaims:
    """Answered by the rows, a list of :class:`ClaimRow`.

    :param keys: consumers and attempts of those wanted; None, all
    """

    provider: str
    keys: tuple[tuple[str, str], ...] | None = None


@dataclasses.dataclass(frozen=True)
class ReadProvider:
    """Answered by figures and rows of one moment.

    That is :class:`Figures`, or None, and a list of :class:`ClaimRow`.
    """

    provider: str


@dataclasses.dataclass(frozen=True)
class ChangeProvider:
    """Answered by :class:`ProviderChanged`; done if all of this holds.

    The inventory is the one that is named; nothing that has a bound is above
    it; rows to be inserted are not there, rows to be deleted are, as they are
    named. Where figures were seen, the generation is theirs, too, and the
    server need not be able to add.

    :param added: what is added, by slot
    :param bounds: the most that may be used before, by slot
    :param seen: the figures that all is added to
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
    """Says whether it was done; if not, maybe the figures that are there."""

    applied: bool
    figures: Figures | None = None


@dataclasses.dataclass(frozen=True)
class SetInventory:
    """Answered by :class:`ProviderChanged`.

    :param seen: the inventory that must be there; None, none
    :param unused: slots of which nothing may be used
    :param cleared: slots that have 0 from now on
    :param generation: the one that must be there, where the server need not
        be able to add
    """

    provider: str
    seen: str | None
    inventory: str
    unused: tuple[int, ...] = ()
    cleared: tuple[int, ...] = ()
    generation: int | None = None


@dataclasses.dataclass(frozen=True)
class SetFigures:
    """Done if the generation is as seen.

    Answered by :class:`ProviderChanged`.
    """

    seen: Figures
    figures: Figures


@dataclasses.dataclass(frozen=True)
class Fence:
    """Have an attempt take nothing of a provider, unless it has already.

    Answered by the :class:`ClaimRow` that was there, or None.
    """

    provider: str
    consumer: str
    attempt: str


@dataclasses.dataclass(frozen=True)
class Scan:
    """Answered by the providers, a list.

    Of pairs with their generations, or of :class:`Figures` where these are
    wanted. Each is one of a moment after the request.
    """

    figures: bool = False


@dataclasses.dataclass(frozen=True)
class Tree:
    """The root of a provider, and its traits, as somebody said.

    :param version: other than that of any row before it
    """

    version: str
    root: str
    traits: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class ReadTree:
    """Answered by :class:`Tree`, or None if nobody said anything."""

    provider: str


@dataclasses.dataclass(frozen=True)
class WriteTree:
    """Answered by whether it was written.

    :param seen: the version that the row must have; None, it must not be
        there
    """

    provider: str
    seen: str | None
    tree: Tree


@dataclasses.dataclass(frozen=True)
class ScanTrees:
    """Answered by the providers of which anything was said, a list of pairs.

    Each is a provider and its root, of a moment after the request.

    :param trait: only those that have it; None, all
    :param nested: only those that are no roots
    """

    trait: str | None = None
    nested: bool = False


@dataclasses.dataclass(frozen=True)
class ScanRoom:
    """Answered by the providers, a list of :class:`ProviderRoom`.

    Each is one of a moment after the request.
    """


class ProviderRoom(NamedTuple):
    """A provider's inventory, and what is taken of its first slots."""

    provider: str
    inventory: str
    used: tuple[int | None, ...]


@dataclasses.dataclass(frozen=True)
class Describe:
    """Answered by :class:`Described`."""


@dataclasses.dataclass(frozen=True)
class Described:
    """The version of the server, and what is missing of tables and indexes.

    :param identity: of the data, wherever it is asked
    :param adds: whether the server can add to a column under a condition;
        None where that could not be tried
    """

    version: str
    missing: tuple[str, ...]
    identity: str = ''
    adds: bool | None = None


@dataclasses.dataclass(frozen=True)
class Create:
    """Make what is missing of keyspace, tables and indexes; answered by None.

    :param copies: of the data, where the keyspace is made
    """

    copies: int


@dataclasses.dataclass(frozen=True)
class Together:
    """Requests that may be made at the same time, in any order.

    Answered by a list: of each its answer, or what was raised instead.
    """

    requests: Sequence[Any]
