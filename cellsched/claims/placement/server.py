# SPDX-License-Identifier: Apache-2.0
"""Placement as claims need it: one method for each of its requests."""

from collections.abc import Mapping
from typing import Any
from typing import Protocol

from cellsched.claims.placement import messages
from cellsched.claims import remote

#: A provider and its generation, by uuid.
Generations = dict[str, int]


class PlacementClient(Protocol):
    """Whoever asks Placement, or a model of it."""

    @property
    def url(self) -> str:
        """Its place, to tell an operator; without secrets."""

    def send(
        self, request: messages.PlacementRequest
    ) -> messages.PlacementAnswer:
        """Return the answer, whatever it is.

        :raises remote.NotSent: Placement did not get it
        :raises remote.OutcomeUnknown: there is no answer
        """


class PlacementServer:
    """Asks Placement through a client."""

    def __init__(self, client: PlacementClient) -> None:
        self._client = client

    def send(
        self, method: str, path: str, body: messages.Body | None,
        *expected: int,
    ) -> messages.PlacementAnswer:
        return messages.checked(
            self._client.send(messages.PlacementRequest(method, path, body)),
            *expected)

    def read(self, path: str) -> Mapping[str, Any] | None:
        """Return what a path says, or None where nothing is there.

        :raises remote.OutcomeUnknown: what it says is not JSON
        """
        answer = self.send('GET', path, None, 404)
        if answer.status == 404:
            return None
        if not isinstance(answer.body, dict):
            raise remote.OutcomeUnknown('it answered something else than JSON')
        return answer.body

    def holding(self, consumer: str) -> messages.Holding | None:
        """Return what a consumer holds."""
        if not messages.UUID.fullmatch(consumer):
            return None
        body = self.read(f'/allocations/{consumer}')
        return messages.holding(body) if body else None

    def holdings(self, consumers: list[str]) -> dict[str, messages.Holding]:
        """Return what those consumers hold that hold something."""
        found = ((each, self.holding(each)) for each in consumers)
        return {each: holds for each, holds in found if holds is not None}

    def generations(self) -> Generations:
        """Return all providers."""
        body = self.read('/resource_providers')
        return {each['uuid']: each['generation']
                for each in body['resource_providers']} if body else {}

    def set_allocations(
        self, bodies: Mapping[str, messages.Body]
    ) -> messages.PlacementAnswer:
        """Say what consumers hold, of all of them or of none."""
        return self.send('POST', '/allocations', dict(bodies), 400, 409)

    def create_class(self, name: str) -> None:
        """Make a resource class, if it is not there."""
        self.send('PUT', f'/resource_classes/{name}', None)

    def create_provider(self, uuid: str, name: str) -> None:
        """Make a resource provider, if it is not there."""
        # Another one that has the name is found by whoever needs this one.
        self.send(
            'POST', '/resource_providers', {'name': name, 'uuid': uuid}, 409)

    def set_inventories(
        self, provider: str, generation: int,
        inventories: Mapping[str, Mapping[str, Any]],
    ) -> messages.PlacementAnswer:
        """Say what a provider has, if it is of this generation."""
        return self.send(
            'PUT', f'/resource_providers/{provider}/inventories',
            {'resource_provider_generation': generation,
             'inventories': dict(inventories)}, 400, 409)
