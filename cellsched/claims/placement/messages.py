# SPDX-License-Identifier: Apache-2.0
"""Requests to Placement and its answers, as values; and their bodies."""

from collections.abc import Mapping
import dataclasses
import re
from typing import Any
import uuid

from cellsched.claims import base
from cellsched.claims import remote

#: The lowest version of Placement's interface that has all that is used here.
VERSION = '1.38'

#: The only form of a uuid that Placement keeps as it is.
UUID = re.compile('[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}')

#: The most guards that there can be, see :mod:`.guards`.
GUARDS_MAX = 256

_GUARDS = uuid.UUID('5d4c38f8-0a6b-4f7b-8a43-6f0e5c3e2b1d')


def guard_uuid(kind: str, number: int) -> str:
    """Return the uuid of a guard's ``consumer`` or ``provider``."""
    return str(uuid.uuid5(_GUARDS, f'{kind} {number}'))


#: All providers that are for guards.
GUARDS = frozenset(
    guard_uuid('provider', number) for number in range(GUARDS_MAX))

Body = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class PlacementRequest:
    """A request: method, path with its leading slash, and body, if any."""

    method: str
    path: str
    body: Body | None = None


@dataclasses.dataclass(frozen=True)
class PlacementAnswer:
    """An answer: its status, and what its JSON says, if it has any."""

    status: int
    body: Any = None

    @property
    def is_done(self) -> bool:
        return 200 <= self.status < 300

    @property
    def code(self) -> str:
        """Placement's own code of an error, without its prefix."""
        return str(self._error.get('code', '')).removeprefix('placement.')

    @property
    def detail(self) -> str:
        """The text of an error."""
        return str(self._error.get('detail', ''))

    @property
    def is_conflict(self) -> bool:
        """True where it lost to somebody else, and may be tried again."""
        return self.status == 409 and self.code in ('concurrent_update', '')

    @property
    def _error(self) -> Mapping[str, Any]:
        try:
            error = self.body['errors'][0]
        except (LookupError, TypeError):
            return {}
        return error if isinstance(error, dict) else {}


def checked(answer: PlacementAnswer, *expected: int) -> PlacementAnswer:
    """Return an answer that is done or has an expected status.

    :raises remote.OutcomeUnknown: it says nothing of what happened
    :raises remote.NotSent: Placement, or what stands before it, does not take
        such a request from us
    """
    if answer.is_done or answer.status in expected:
        return answer
    said = f'it answered {answer.status} {answer.detail}'.rstrip()
    if 400 <= answer.status < 500:
        raise remote.NotSent(said)
    raise remote.OutcomeUnknown(said)


@dataclasses.dataclass(frozen=True)
class Owners:
    """All that Placement is told of consumers besides what they hold.

    :param project_id: stands for a project that is not known
    :param user_id: stands for a user that is not known
    """

    consumer_type: str
    project_id: str
    user_id: str

    def body(
        self, allocations: Mapping[str, Mapping[str, int]],
        generation: int | None, project_id: str | None = None,
        user_id: str | None = None, consumer_type: str | None = None,
    ) -> Body:
        """Return what a consumer is to hold from now on.

        :param allocations: resources by provider
        :param generation: the consumer's; None of one that is new
        """
        return {
            'allocations': {provider: {'resources': dict(resources)}
                            for provider, resources in allocations.items()},
            'consumer_generation': generation,
            'consumer_type': consumer_type or self.consumer_type,
            'project_id': project_id or self.project_id,
            'user_id': user_id or self.user_id,
        }


@dataclasses.dataclass(frozen=True)
class Holding:
    """A consumer that holds something, as Placement tells it."""

    generation: int
    allocations: Mapping[str, Mapping[str, int]]
    project_id: str
    user_id: str
    consumer_type: str | None

    def body(self, owners: Owners, generation: int | None) -> Body:
        """Return a body with which another consumer holds the same."""
        return owners.body(self.allocations, generation, self.project_id,
                           self.user_id, self.consumer_type)

    def released(self, owners: Owners) -> Body:
        """Return a body with which the consumer holds nothing."""
        return owners.body({}, self.generation, self.project_id, self.user_id,
                           self.consumer_type)

    def claims(self, consumer: str, owners: Owners) -> list[base.Claim]:
        """Return what is held as claims, but for what is a guard's."""
        project_id = None if (
            self.project_id == owners.project_id) else self.project_id
        user_id = None if self.user_id == owners.user_id else self.user_id
        return [base.Claim(consumer, provider, dict(resources), None,
                           project_id, user_id)
                for provider, resources in self.allocations.items()
                if provider not in GUARDS]


def holding(body: Mapping[str, Any]) -> Holding | None:
    """Return what the answer to a look at a consumer says, if anything."""
    if not body['allocations']:
        return None
    kind = body.get('consumer_type')
    return Holding(
        body['consumer_generation'],
        {provider: said['resources']
         for provider, said in body['allocations'].items()},
        body['project_id'], body['user_id'],
        # One that was claimed by an older version has a type that no
        # request may have.
        kind if kind and kind.isupper() else None)
