# SPDX-License-Identifier: Apache-2.0
"""The requests of the store to Placement, with one method for each."""

from collections.abc import Mapping
from typing import Any
from typing import Protocol

from cellsched.claims.placement import messages
from cellsched.claims import remote

#: Generations by the uuids of providers.
Generations = dict[str, int]


class PlacementClient(Protocol):
    """A client of Placement, or of a model of it."""

    @property
    def url(self) -> str:
        """The endpoint, without secrets, for error messages."""

    def send(
        self, request: messages.PlacementRequest
    ) -> messages.PlacementAnswer:
        """Return the answer, with any status.

        :raises remote.NotSent: Placement did not receive the request
        :raises remote.OutcomeUnknown: there is no answer
        """


class PlacementServer:
    """Sends requests through a client."""

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
        """Return the JSON of a path; None if it does not exist.

        :raises remote.OutcomeUnknown: the answer is not JSON
        """
        answer = self.send('GET', path, None, 404)
        if answer.status == 404:
            return None
        if not isinstance(answer.body, dict):
            raise remote.OutcomeUnknown('the answer is not JSON')
        return answer.body

    def holding(self, consumer: str) -> messages.Holding | None:
        """Return a consumer's allocations; None if there are none."""
        if not messages.UUID.fullmatch(consumer):
            return None
        body = self.read(f'/allocations/{consumer}')
        return messages.holding(body) if body else None

    def holdings(self, consumers: list[str]) -> dict[str, messages.Holding]:
        """Return the allocations of the consumers that have some."""
        found = ((each, self.holding(each)) for each in consumers)
        return {each: holds for each, holds in found if holds is not None}

    def generations(self) -> Generations:
        """Return the generations of all providers."""
        body = self.read('/resource_providers')
        return {each['uuid']: each['generation']
                for each in body['resource_providers']} if body else {}

    def set_allocations(
        self, bodies: Mapping[str, messages.Body]
    ) -> messages.PlacementAnswer:
        """Set the allocations of several consumers, of all or of none."""
        return self.send('POST', '/allocations', dict(bodies), 400, 409)

    def create_class(self, name: str) -> None:
        """Create a resource class if it does not exist."""
        self.send('PUT', f'/resource_classes/{name}', None)

    def create_provider(self, uuid: str, name: str) -> None:
        """Create a resource provider if it does not exist."""
        # A conflict of names shows up when the provider is read.
        self.send(
            'POST', '/resource_providers', {'name': name, 'uuid': uuid}, 409)

    def set_inventories(
        self, provider: str, generation: int,
        inventories: Mapping[str, Mapping[str, Any]],
    ) -> messages.PlacementAnswer:
        """Set an inventory if the provider has this generation."""
        return self.send(
            'PUT', f'/resource_providers/{provider}/inventories',
            {'resource_provider_generation': generation,
             'inventories': dict(inventories)}, 400, 409)
