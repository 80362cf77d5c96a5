# SPDX-License-Identifier: Apache-2.0
"""Requests to Placement and its answers, as values."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import re
from typing import Any
import uuid

from cellsched.claims import base
from cellsched.claims import remote
from cellsched.claims import validation
from cellsched import exception

#: The lowest microversion with all features in use.
VERSION = '1.38'

#: The form of uuids that Placement stores unchanged.
UUID = re.compile('[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}')

#: Maximum number of guards; see :mod:`.guards`.
GUARDS_MAX = 256

_GUARDS = uuid.UUID('5d4c38f8-0a6b-4f7b-8a43-6f0e5c3e2b1d')


def guard_uuid(kind: str, number: int) -> str:
    """Return the uuid of a guard's ``consumer`` or ``provider``."""
    return str(uuid.uuid5(_GUARDS, f'{kind} {number}'))


#: The providers of all guards.
GUARDS = frozenset(
    guard_uuid('provider', number) for number in range(GUARDS_MAX))

Body = dict[str, Any]


def check_claims(claims: Sequence[base.Claim]) -> None:
    """Check a batch.

    :raises cellsched.exception.InvalidField: names the field and its bounds
    """
    validation.check_claims(claims)
    for claim in claims:
        check_uuid(f'claim of {claim.consumer}', 'consumer', claim.consumer)


def check_uuid(where: str, field: str, value: str) -> None:
    """Check the uuid of a consumer or a provider.

    :raises cellsched.exception.InvalidField: names the field
    """
    if not UUID.fullmatch(value) or value in GUARDS:
        raise exception.InvalidField(
            where=where, field=field,
            problem=f'{value!r:.80} is not valid in Placement',
            expected='a uuid in lower case')


#: Statuses of errors of a client that may pass: a timeout, conflicts, and too
#: many requests.
_PASSING = (408, 409, 423, 425, 429)


@dataclasses.dataclass(frozen=True)
class PlacementRequest:
    """A request: method, path with a leading slash, and optional body."""

    method: str
    path: str
    body: Body | None = None


@dataclasses.dataclass(frozen=True)
class PlacementAnswer:
    """An answer: its status and its JSON, if it has any."""

    status: int
    body: Any = None

    @property
    def is_done(self) -> bool:
        return 200 <= self.status < 300

    @property
    def code(self) -> str:
        """The code of an error, without the prefix ``placement.``"""
        return str(self._error.get('code', '')).removeprefix('placement.')

    @property
    def detail(self) -> str:
        """The text of an error."""
        return str(self._error.get('detail', ''))

    @property
    def is_conflict(self) -> bool:
        """True after a conflict, when the request can be repeated."""
        return self.status == 409 and self.code in ('concurrent_update', '')

    @property
    def is_refusal(self) -> bool:
        """True if Placement refuses the request, and not a proxy."""
        return bool(self._error)

    @property
    def _error(self) -> Mapping[str, Any]:
        try:
            error = self.body['errors'][0]
        except (LookupError, TypeError):
            return {}
        return error if isinstance(error, dict) else {}


def checked(answer: PlacementAnswer, *expected: int) -> PlacementAnswer:
    """Return an answer that is successful or has an expected status.

    :raises remote.OutcomeUnknown: the request may have been executed
    :raises remote.NotSent: the request was not executed
    :raises remote.Rejection: a repetition would not be executed either
    """
    if answer.is_done or answer.status in expected and answer.is_refusal:
        return answer
    error = f'it answered {answer.status} {answer.detail}'.rstrip()
    if is_permanent(answer.status):
        raise remote.Rejection(error)
    if 400 <= answer.status < 500:
        raise remote.NotSent(error)
    raise remote.OutcomeUnknown(error)


def is_permanent(status: int) -> bool:
    """Return whether a repetition of a request has the same status."""
    return 400 <= status < 500 and status not in _PASSING


@dataclasses.dataclass(frozen=True)
class Owners:
    """The fields of a consumer other than its allocations.

    :param project_id: used for claims without a project
    :param user_id: used for claims without a user
    """

    consumer_type: str
    project_id: str
    user_id: str

    def body(
        self, allocations: Mapping[str, Mapping[str, int]],
        generation: int | None, project_id: str | None = None,
        user_id: str | None = None, consumer_type: str | None = None,
    ) -> Body:
        """Return the body that sets a consumer's allocations.

        :param allocations: resources by provider
        :param generation: the consumer's; None for a new consumer
        """
        return {
            # Placement names the first class that does not fit, as this
            # program does.
            'allocations': {
                provider: {'resources': dict(sorted(resources.items()))}
                for provider, resources in allocations.items()},
            'consumer_generation': generation,
            'consumer_type': consumer_type or self.consumer_type,
            'project_id': project_id or self.project_id,
            'user_id': user_id or self.user_id,
        }


@dataclasses.dataclass(frozen=True)
class Holding:
    """A consumer with allocations."""

    generation: int
    allocations: Mapping[str, Mapping[str, int]]
    project_id: str
    user_id: str
    consumer_type: str | None

    def body(self, owners: Owners, generation: int | None) -> Body:
        """Return the body that gives another consumer the same."""
        return owners.body(self.allocations, generation, self.project_id,
                           self.user_id, self.consumer_type)

    def released(self, owners: Owners) -> Body:
        """Return the body that removes the allocations."""
        return owners.body({}, self.generation, self.project_id, self.user_id,
                           self.consumer_type)

    def claims(self, consumer: str, owners: Owners) -> list[base.Claim]:
        """Return the allocations as claims, except on guards."""
        project_id = None if (
            self.project_id == owners.project_id) else self.project_id
        user_id = None if self.user_id == owners.user_id else self.user_id
        return [base.Claim(consumer, provider, dict(resources), None,
                           project_id, user_id)
                for provider, resources in self.allocations.items()
                if provider not in GUARDS]


def holding(body: Mapping[str, Any]) -> Holding | None:
    """Return the consumer in an answer; None without allocations."""
    if not body['allocations']:
        return None
    kind = body.get('consumer_type')
    return Holding(
        body['consumer_generation'],
        {provider: each['resources']
         for provider, each in body['allocations'].items()},
        body['project_id'], body['user_id'],
        # Older microversions store a type that requests must not have.
        kind if kind and kind.isupper() else None)
