# SPDX-License-Identifier: Apache-2.0
"""Rows of consumers: claims, or the operation in progress.

The row of a consumer is written before the rows of providers, so that every
client that finds an interrupted operation can end it.

A claim is TAKING, then HELD; rolled back it is DROPPING, then deleted. A
release is GIVING, then deleted. The source of a transfer is MOVING, then
MOVED, then deleted; its target is RECEIVING, then HELD.
"""

from collections.abc import Mapping
import dataclasses
import json
from typing import Any
from typing import Self

from cellsched.claims import base
from cellsched.claims.cassandra import requests
from cellsched import exception

#: Intent of a claim. The claim is decided by the provider's row if the batch
#: has one provider, and by the lead's row in the state HELD otherwise.
TAKING = 'taking'
HELD = 'held'
#: Held claims that are released.
GIVING = 'giving'
#: Intent of a claim that is rolled back. Requests of the attempt that have
#: not arrived yet are fenced off.
DROPPING = 'dropping'
#: The source of a transfer, which is decided by the state MOVED.
MOVING = 'moving'
MOVED = 'moved'
#: The target of a transfer. Until it is decided, the target holds the claims
#: that it had before.
RECEIVING = 'receiving'
#: A row that this release cannot read.
UNREADABLE = 'unreadable'

_STATES = frozenset(
    (TAKING, HELD, GIVING, DROPPING, MOVING, MOVED, RECEIVING))


@dataclasses.dataclass(frozen=True)
class HeldClaims:
    """The claims of a consumer.

    :param attempt: unique name of the call that made them, repeated in the
        providers' rows
    :param claims: resources by provider
    :param several: whether the batch has several providers
    """

    attempt: str
    claims: Mapping[str, Mapping[str, int]]
    project_id: str | None = None
    user_id: str | None = None
    several: bool = False

    def rows(self, consumer: str) -> dict[str, requests.ClaimRow]:
        """Return the rows of the claims, by provider."""
        return {provider: requests.ClaimRow(
            consumer, self.attempt, text(resources), self.several)
            for provider, resources in self.claims.items()}

    def of(self, consumer: str) -> list[base.Claim]:
        return [base.Claim(consumer, provider, dict(resources), None,
                           self.project_id, self.user_id)
                for provider, resources in self.claims.items()]


@dataclasses.dataclass(frozen=True)
class Record:
    """The row of a consumer.

    :param version: changes with each write; empty before the first write
    :param lead: consumer whose row decides the batch; empty if the batch has
        one provider
    :param members: of the lead: the consumers that may still be TAKING
    :param other: the other consumer of a transfer
    :param link: attempt of the other consumer's claims
    :param before: of a target: its claims before the transfer
    :param unreadable: why the row cannot be read by this release, or ''. Such
        a row is never written
    """

    consumer: str
    state: str
    holding: HeldClaims
    version: str = ''
    lead: str = ''
    members: tuple[str, ...] = ()
    other: str = ''
    link: str = ''
    before: HeldClaims | None = None
    unreadable: str = ''

    @property
    def attempt(self) -> str:
        return self.holding.attempt

    def body(self) -> str:
        fields: dict[str, Any] = {
            'state': self.state, 'holding': vars(self.holding)}
        for name in 'lead', 'members', 'other', 'link':
            if getattr(self, name):
                fields[name] = getattr(self, name)
        if self.before is not None:
            fields['before'] = vars(self.before)
        return text(fields)

    @classmethod
    def parse(cls, consumer: str, row: requests.VersionedRow) -> Self:
        """Return the row of a consumer; see ``unreadable``."""
        try:
            fields = json.loads(row.body)
            if fields['state'] not in _STATES or fields.get('v', 1) != 1:
                raise ValueError
            before = fields.get('before')
            return cls(
                consumer, fields['state'], _held(**fields['holding']),
                row.version, fields.get('lead', ''),
                tuple(fields.get('members', ())), fields.get('other', ''),
                fields.get('link', ''), _held(**before) if before else None)
        except (AttributeError, LookupError, RecursionError, TypeError,
                ValueError):
            return cls(
                consumer, UNREADABLE, HeldClaims('', {}), row.version,
                unreadable=f'consumer {consumer!r:.80} in the table consumers '
                           f'has the body {row.body!r:.80}, which cannot be '
                           'read by this release')

    def check(self) -> None:
        """Check that the row can be read.

        :raises cellsched.exception.ClaimStoreFailed: names the consumer
        """
        if self.unreadable:
            raise exception.ClaimStoreFailed(reason=self.unreadable)

    def replaced(self, state: str, **fields: Any) -> Self:
        return dataclasses.replace(self, state=state, **fields)


def _held(**fields: Any) -> HeldClaims:
    held = HeldClaims(**fields)
    if not all(type(amount) is int for resources in held.claims.values()
               for amount in resources.values()):
        raise ValueError
    return held


def text(value: Any) -> str:
    """Return JSON, the same text for equal values."""
    return json.dumps(value, sort_keys=True, separators=(',', ':'))
