# SPDX-License-Identifier: Apache-2.0
"""Requests that the store sends to etcd, and answers.

They are values without behaviour: a client sends them to a server, and a
simulation to a model of one. Keys and values are bytes.
"""

import dataclasses
from typing import Protocol

#: Operations that a branch of a transaction may have, and comparisons, unless
#: a server is told another number.
OPS_MAX = 128

#: Bytes that a request may have, of the 1.5 MiB that a server takes.
BYTES_MAX = 1024 * 1024


@dataclasses.dataclass(frozen=True, slots=True)
class Compare:
    """The condition that a key was changed last by a revision.

    :param revision: 0 where there is to be no such key
    :param value: what the key is to hold, whatever the revision is; None
        where the revision says it
    """

    key: bytes
    revision: int
    value: bytes | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Get:
    """Reads one key, or those before an end in the order of their bytes.

    :param limit: how many at most; 0 is all of them
    :param is_local: whether it may be as the member has it, which others may
        have left behind; a transaction of such alone waits for nobody
    """

    key: bytes
    end: bytes = b''
    limit: int = 0
    is_local: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Put:
    """Writes a key."""

    key: bytes
    value: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Delete:
    """Removes a key, if it is there."""

    key: bytes


Op = Get | Put | Delete


@dataclasses.dataclass(frozen=True, slots=True)
class Transaction:
    """Operations that depend on conditions, all of them in one step.

    :param compares: conditions that must all be true
    :param success: what is done if they are
    :param failure: what is done if they are not
    :param alternatives: conditions and operations to be tried in their order
        before the failure
    """

    compares: tuple[Compare, ...] = ()
    success: tuple[Op, ...] = ()
    failure: tuple[Op, ...] = ()
    alternatives: tuple[tuple[tuple[Compare, ...], tuple[Op, ...]], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """A key with what is in it.

    :param revision: of its last change
    :param created: revision at which it came to be
    """

    key: bytes
    value: bytes
    revision: int
    created: int


@dataclasses.dataclass(frozen=True, slots=True)
class TransactionOutcome:
    """The answer to a transaction.

    :param cluster: id of the cluster
    :param revision: of the whole store
    :param found: what was read, by the place of the :class:`Get` among others
    :param alternative: number of the one that was done, from 1; 0 where none
        was
    """

    succeeded: bool
    cluster: str
    revision: int
    found: tuple[tuple[Found, ...], ...] = ()
    alternative: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Changes:
    """Asks for all that was written to a range of keys after a revision.

    The answer may wait until all of it up to another revision is known, at
    which a key of the range was written.
    """

    key: bytes
    end: bytes
    after: int
    until: int


@dataclasses.dataclass(frozen=True, slots=True)
class Changed:
    """The answer to :class:`Changes`.

    :param revision: up to this one nothing is left out
    :param written: in the order of their revisions; a key may occur often
    """

    revision: int
    written: tuple[Found, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Compacted:
    """The answer to :class:`Changes` that the server has forgotten."""

    revision: int


@dataclasses.dataclass(frozen=True, slots=True)
class MemberStatus:
    """Asks a member what it is."""


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """The answer to :class:`MemberStatus`: the version that a member runs."""

    version: str


@dataclasses.dataclass(frozen=True, slots=True)
class Refused:
    """The answer to a request that the server does not do, nor will.

    :param code: gRPC's
    """

    code: int
    reason: str


Request = Transaction | Changes | MemberStatus
Answer = TransactionOutcome | Changed | Compacted | Member | Refused


class Sender(Protocol):
    """Whoever answers requests; see :mod:`cellsched.claims.remote`."""

    def send(self, request: Request) -> Answer:
        ...
