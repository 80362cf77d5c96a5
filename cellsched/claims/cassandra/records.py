# SPDX-License-Identifier: Apache-2.0
"""Rows of consumers: what each holds, or is about to hold or to give back.

A consumer's row says what it is about before any provider's row does, so that
whoever meets the remains of a client that died knows where to look.
"""

from collections.abc import Mapping
import dataclasses
import json
from typing import Any
from typing import Self

from cellsched.claims import base
from cellsched.claims.cassandra import requests

#: It takes. Where the batch has one provider, it holds once the provider has
#: its row; else, once the row of its lead is held.
TAKING = 'taking'
HELD = 'held'
#: It held, and gives back.
GIVING = 'giving'
#: It may have taken, and is to hold nothing: attempts that are under way are
#: fenced off.
DROPPING = 'dropping'
#: It holds, and somebody transfers it; what it holds is the target's once it
#: is moved.
MOVING = 'moving'
MOVED = 'moved'
#: The target of a transfer: holds what it held before, until the source has
#: moved.
RECEIVING = 'receiving'


@dataclasses.dataclass(frozen=True)
class HeldClaims:
    """All that a consumer has, and the name under which providers know it.

    :param attempt: the call that took it, named in the providers' rows
    :param claims: resources by provider
    :param several: whether the providers' rows depend on each other
    """

    attempt: str
    claims: Mapping[str, Mapping[str, int]]
    project_id: str | None = None
    user_id: str | None = None
    several: bool = False

    def rows(self, consumer: str) -> dict[str, requests.ClaimRow]:
        """Return the rows of the providers, by their names."""
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

    :param version: of the row; empty in one that is not written yet
    :param lead: whose row decides for all consumers of a batch; empty if the
        batch has one provider
    :param members: of the row that decides: the others, who may still wait
    :param other: the other consumer of a transfer
    :param link: the attempt of that one's holding
    :param before: of a target: what it held before
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

    @property
    def attempt(self) -> str:
        return self.holding.attempt

    def body(self) -> str:
        fields: dict[str, Any] = {
            'state': self.state, 'holding': dataclasses.asdict(self.holding)}
        for name in 'lead', 'members', 'other', 'link':
            if getattr(self, name):
                fields[name] = getattr(self, name)
        if self.before is not None:
            fields['before'] = dataclasses.asdict(self.before)
        return text(fields)

    @classmethod
    def parse(cls, consumer: str, row: requests.Versioned) -> Self:
        fields = json.loads(row.body)
        before = fields.get('before')
        return cls(
            consumer, fields['state'], HeldClaims(**fields['holding']),
            row.version, fields.get('lead', ''),
            tuple(fields.get('members', ())), fields.get('other', ''),
            fields.get('link', ''), HeldClaims(**before) if before else None)

    def replaced(self, state: str, **fields: Any) -> Self:
        return dataclasses.replace(self, state=state, **fields)


def text(value: Any) -> str:
    """Return JSON that is the same for what is the same."""
    return json.dumps(value, sort_keys=True, separators=(',', ':'))
