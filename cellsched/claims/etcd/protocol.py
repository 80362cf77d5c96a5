# SPDX-License-Identifier: Apache-2.0
"""Requests to etcd and its answers.

They are values without behaviour: a client sends them to a server, and a
simulation sends them to a model of one. Keys and values are bytes.
"""

import dataclasses
from typing import Protocol

#: Maximum number of operations in a branch of a transaction, and of
#: comparisons; the default of the server.
OPS_MAX = 128

#: A part of the answer of a server that accepts deletions only.
NO_SPACE = 'database space exceeded'


@dataclasses.dataclass(frozen=True, slots=True)
class Compare:
    """The condition that a key has a revision, or a value.

    :param revision: the revision of its last change; 0 if it does not exist
    :param value: compared instead of the revision, unless it is None
    """

    key: bytes
    revision: int
    value: bytes | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Get:
    """Read one key, or a range of keys in the order of their bytes.

    :param limit: maximum number of keys; 0 for all
    """

    key: bytes
    end: bytes = b''
    limit: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Put:
    """Write a key."""

    key: bytes
    value: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Delete:
    """Delete a key if it exists."""

    key: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Transaction:
    """Conditional operations, which are one atomic step.

    :param compares: conditions, all of which must be true
    :param success: operations if they are true; may have transactions, whose
        operations the server counts alone
    :param failure: operations otherwise
    """

    compares: tuple[Compare, ...] = ()
    success: 'tuple[Op, ...]' = ()
    failure: 'tuple[Op, ...]' = ()


Op = Get | Put | Delete | Transaction


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """A key and its value.

    :param revision: revision of its last change
    """

    key: bytes
    value: bytes
    revision: int


@dataclasses.dataclass(frozen=True, slots=True)
class TransactionOutcome:
    """The answer to a transaction.

    :param cluster: id of the cluster
    :param revision: revision of the whole store
    :param found: result of each :class:`Get`, in their order, except in nested
        transactions
    """

    succeeded: bool
    cluster: str
    revision: int
    found: tuple[tuple[Found, ...], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Changes:
    """Read all writes to a range of keys after a revision.

    The answer may wait until the writes are known up to the revision
    ``until``, at which a key of the range was written.
    """

    key: bytes
    end: bytes
    after: int
    until: int


@dataclasses.dataclass(frozen=True, slots=True)
class ChangesAnswer:
    """The answer to :class:`Changes`.

    :param revision: revision up to which the writes are complete
    :param written: in the order of their revisions; keys may repeat
    """

    revision: int
    written: tuple[Found, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class CompactedAnswer:
    """The answer to :class:`Changes` from before the last compaction."""

    revision: int


@dataclasses.dataclass(frozen=True, slots=True)
class MemberStatus:
    """Read the status of a member."""


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """The answer to :class:`MemberStatus`: the release of the member."""

    version: str


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """The answer to a request that the server rejects for good.

    :param code: code of gRPC
    """

    code: int
    reason: str


Request = Transaction | Changes | MemberStatus
Answer = (TransactionOutcome | ChangesAnswer | CompactedAnswer | Member
          | Refusal)


class Sender(Protocol):
    """A sender of requests; see :mod:`cellsched.claims.remote`."""

    def send(self, request: Request) -> Answer:
        ...
