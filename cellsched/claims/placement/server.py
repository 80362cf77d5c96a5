# SPDX-License-Identifier: Apache-2.0
"""Placement, through its API: allocations, and providers with their facts."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import math
from typing import Any
from typing import Protocol
from urllib import parse

from cellsched.claims import base
from cellsched.claims.placement import messages
from cellsched.claims import remote
from cellsched.claims import validation
from cellsched import exception

_PATH = '/resource_providers'
_CUSTOM = 'CUSTOM_'

#: Marks providers whose traits a store has set.
MARKED = 'CUSTOM_CELLSCHED_TOLD'

#: Units that admit any amount.
_ANY = {'min_unit': 1, 'max_unit': validation.AMOUNT_MAX, 'step_size': 1}

#: An inventory without capacity, which Placement accepts.
_NOTHING = {'total': 1, 'reserved': 1, 'allocation_ratio': 1.0, **_ANY}

#: Errors of answers with other fields than expected.
ANSWER_ERRORS = (AttributeError, LookupError, TypeError, ValueError)


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
    """Sends requests through a client.

    A method that changes a provider returns False if another client changed
    it at the same time; the caller repeats it.
    """

    def __init__(self, client: PlacementClient) -> None:
        self._client = client

    def send(
        self, method: str, path: str, body: messages.Body | None,
        *expected: int,
    ) -> messages.PlacementAnswer:
        return messages.checked(
            self._client.send(messages.PlacementRequest(method, path, body)),
            *expected)

    def read(self, path: str, missing: int = 404) -> Mapping[str, Any] | None:
        """Return the JSON of a path; None if it does not exist.

        :param missing: the status of a path that does not exist; 0 if it
            must exist
        :raises remote.OutcomeUnknown: the answer is not JSON
        """
        answer = self.send('GET', path, None, missing)
        if answer.status == missing:
            return None
        if not isinstance(answer.body, dict):
            raise remote.OutcomeUnknown('the answer is not JSON')
        return answer.body

    # Allocations.

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

    def set_allocations(
        self, bodies: Mapping[str, messages.Body]
    ) -> messages.PlacementAnswer:
        """Set the allocations of several consumers, of all or of none."""
        return self.send('POST', '/allocations', dict(bodies), 400, 409)

    # Reads of providers.

    def generations(self) -> dict[str, int]:
        """Return the generations of all providers, without guards."""
        return {each['uuid']: each['generation'] for each in self._listed()}

    def inventories_of(
        self, provider: str
    ) -> dict[str, base.Inventory] | None:
        """Return the inventory of a provider; None if it does not exist."""
        body = self._inventories(provider) if _is_own(provider) else None
        return None if body is None else {
            name: _inventory(has) for name, has in body['inventories'].items()}

    def used_of(self, provider: str) -> dict[str, int]:
        """Return the used amounts of a provider, by resource class.

        Placement checks the capacity by these, and they include consumers that
        it does not list.
        """
        body = self.read(f'{_PATH}/{provider}/usages')
        return dict(body['usages']) if body else {}

    def consumers_of(self, provider: str) -> list[str]:
        """Return the consumers of a provider."""
        if not _is_own(provider):
            return []
        body = self.read(f'{_PATH}/{provider}/allocations')
        return list(body['allocations']) if body else []

    def usage_of(self, provider: str) -> base.Usage | None:
        """Return the usage of a provider; None if it does not exist."""
        inventory = self.inventories_of(provider)
        if inventory is None:
            return None
        # Only a provider with an inventory can be used, and only a used one
        # has consumers. Others need no further request.
        used = self.used_of(provider) if inventory else {}
        return base.Usage(
            provider=provider,
            capacity={name: has.capacity for name, has in inventory.items()},
            used=used,
            consumers=len(self.consumers_of(provider)) if any(
                used.values()) else 0,
            units={name: has.units for name, has in inventory.items()
                   if has.units != base.Units()})

    def root_of(self, provider: str) -> str | None:
        """Return the root of a provider whose traits a store has set."""
        if not _is_own(provider):
            return None
        has = self.read(f'{_PATH}/{provider}')
        traits = has and self.read(f'{_PATH}/{provider}/traits')
        if not has or not traits or MARKED not in traits['traits']:
            return None
        return str(has['root_provider_uuid'])

    def find(self, query: base.ProviderQuery) -> set[str]:
        """Return the roots of the trees that match a query.

        The query takes several requests. A tree that matches during the whole
        call is in every answer.
        """
        if query.resources:
            found = set.intersection(*(
                set[str]().union(*(
                    self._roots(resources=f'{name}:{amount}').values()
                    for amount in sorted(set(amounts))))
                for name, amounts in sorted(query.resources.items())))
        else:
            found = set(self._roots().values())
        if found and (query.required or query.forbidden):
            marked = found.intersection(self._roots(required=MARKED))
            fit = set(marked)
            for trait in sorted(query.required):
                fit.intersection_update(self._roots(required=trait).values())
            for trait in sorted(query.forbidden):
                fit.difference_update(self._roots(required=trait))
            found = found - marked | fit
        return found

    def _roots(self, **query: str) -> dict[str, str]:
        """Return the roots of matching providers by their uuids."""
        return {each['uuid']: each['root_provider_uuid']
                for each in self._listed(**query)}

    def _listed(self, **query: str) -> list[Mapping[str, Any]]:
        """Return matching providers, without guards."""
        path = f'{_PATH}?{parse.urlencode(query)}' if query else _PATH
        # Placement rejects a class or a trait that was never used.
        body = self.read(path, 400 if query else 0)
        return [each for each in body['resource_providers']
                if each['uuid'] not in messages.GUARDS] if body else []

    def _inventories(self, provider: str) -> Mapping[str, Any] | None:
        return self.read(f'{_PATH}/{provider}/inventories')

    # Changes of providers.

    def create_class(self, name: str) -> None:
        """Create a resource class if it does not exist."""
        self.send('PUT', f'/resource_classes/{name}', None)

    def read_or_create(
        self, provider: str, name: str, part: str = ''
    ) -> Mapping[str, Any]:
        """Return the JSON of a provider, which is created if it is missing.

        :param part: the last part of the path
        :raises remote.NotSent: another provider has this name
        """
        path = f'{_PATH}/{provider}{part}'
        found = self.read(path)
        if found is None:
            # A conflict of names shows up when the provider is read.
            self.send('POST', _PATH, {'name': name, 'uuid': provider}, 409)
            found = self.read(path)
        if found is None:
            raise remote.NotSent(
                f'another resource provider has the name {name}')
        return found

    def set_inventories(
        self, provider: str, generation: int,
        inventories: Mapping[str, Mapping[str, Any]],
    ) -> messages.PlacementAnswer:
        """Set an inventory if the provider has this generation."""
        return self.send(
            'PUT', f'{_PATH}/{provider}/inventories',
            {'resource_provider_generation': generation,
             'inventories': dict(inventories)}, 400, 409)

    def set_inventory(
        self, provider: str, inventory: Mapping[str, base.Inventory]
    ) -> bool:
        """Set the inventory of a provider, which is created if it is missing.

        A class that is left out is removed, or has no capacity while it is
        used.

        :raises cellsched.exception.InvalidField: Placement rejects a class
        """
        has = self.read_or_create(provider, provider, '/inventories')
        before = has['inventories']
        requested = {name: _written(each) for name, each in inventory.items()}
        if requested == before:
            return True
        generation = has['resource_provider_generation']
        answer = self._put_names(
            lambda: self.set_inventories(provider, generation, requested),
            f'inventory of {provider}', 'resource class', 'resource_classes',
            requested)
        if answer.code == 'inventory.inuse':
            held = {name for name, amount in self.used_of(provider).items()
                    if amount}
            requested |= {name: _NOTHING for name in before
                          if name in held and name not in requested}
            if requested == before:
                return True
            answer = self.set_inventories(provider, generation, requested)
        return answer.is_done

    def set_traits(
        self, provider: str, traits: frozenset[str], root: str
    ) -> bool:
        """Set the traits of a provider and its root.

        :raises cellsched.exception.InvalidField: Placement rejects a trait
        """
        if not self._set_parent(provider, None if root == provider else root):
            return False
        path = f'{_PATH}/{provider}/traits'
        has = self.read(path)
        if has is None:
            return False
        requested = sorted(traits | {MARKED})
        if requested == sorted(has['traits']):
            return True
        body = {'resource_provider_generation': has[
            'resource_provider_generation'], 'traits': requested}
        return self._put_names(
            lambda: self.send('PUT', path, body, 400, 409),
            f'traits of {provider}', 'traits', 'traits', requested).is_done

    def _put_names(
        self, put: Callable[[], messages.PlacementAnswer], where: str,
        field: str, kind: str, names: Iterable[str],
    ) -> messages.PlacementAnswer:
        """Write resource classes or traits; create custom ones if needed.

        :param put: writes them
        :param kind: the part of the API's path
        """
        answer = put()
        if answer.status == 400:
            for name in names:
                if name.startswith(_CUSTOM):
                    self.send('PUT', f'/{kind}/{name}', None)
            answer = put()
            if answer.status == 400:
                raise exception.InvalidField(
                    where=where, field=field,
                    problem=f'Placement answered {answer.detail!r:.300}',
                    expected=f'standard {kind.replace("_", " ")} of '
                             f'Placement, or {_CUSTOM}…')
        return answer

    def _set_parent(self, provider: str, parent: str | None) -> bool:
        """Set the parent of a provider, or remove it."""
        has = self.read_or_create(provider, provider)
        if has['parent_provider_uuid'] == parent:
            return True
        # The root has no parent, which also excludes loops.
        if parent is not None and not self._set_parent(parent, None):
            return False
        return self.send('PUT', f'{_PATH}/{provider}', {
            'name': has['name'], 'parent_provider_uuid': parent}, 409).is_done

    def widen(
        self, provider: str, resources: Mapping[str, int]
    ) -> dict[str, Any]:
        """Widen the units of inventories that do not admit the amounts.

        Their whole total is reserved meanwhile, so that no claim can use them.

        :returns: the inventories before, for :meth:`rewrite`
        """
        body = self._inventories(provider) or {'inventories': {}}
        before = body['inventories']
        narrow = {
            name: has for name, has in before.items() if name in resources
            and not _inventory(has).admits(resources[name])}
        if narrow and not self.set_inventories(
                provider, body['resource_provider_generation'],
                {**before, **_widened(narrow)}).is_done:
            return {}
        return narrow

    def rewrite(self, provider: str, narrow: Mapping[str, Any]) -> bool:
        """Write the inventories of a provider again.

        This increments its generation. Placement does not increment it when
        the last allocation of a consumer is removed from the provider.

        :param narrow: inventories to restore, unless another client has
            changed them since :meth:`widen`
        """
        body = self._inventories(provider)
        if not body:
            return True
        current = body['inventories']
        restored = {name: narrow[name] for name, wide
                    in _widened(narrow).items() if current.get(name) == wide}
        return self.set_inventories(
            provider, body['resource_provider_generation'],
            {**current, **restored}).is_done


def _widened(inventories: Mapping[str, Any]) -> dict[str, Any]:
    return {name: {**has, **_ANY, 'reserved': has['total']}
            for name, has in inventories.items()}


def _written(has: base.Inventory) -> dict[str, Any]:
    """Return an inventory as a request for Placement.

    Placement rejects a total of zero, and reserves at most the total.
    """
    total, ratio = max(has.total, 1), float(has.allocation_ratio)
    reserved = min(has.reserved, total) if has.total else total
    # Placement rounds down where this program rounds.
    while (total - reserved) * ratio < has.capacity:
        ratio = math.nextafter(ratio, math.inf)
    return {'total': total, 'reserved': reserved, 'allocation_ratio': ratio,
            'min_unit': has.min_unit, 'max_unit': has.max_unit,
            'step_size': has.step_size}


def _inventory(has: Mapping[str, Any]) -> base.Inventory:
    found = base.Inventory(**{field: has[field] for field in _NOTHING})
    if not all(type(value) in (float, int) for value in (
            *found.units, found.total, found.reserved,
            found.allocation_ratio)) or found.step_size < 1:
        raise ValueError(f'the inventory {has!r:.200}')
    return found


def _is_own(provider: str) -> bool:
    """Return whether a provider may belong to the project, not to a guard."""
    return (messages.UUID.fullmatch(provider) is not None
            and provider not in messages.GUARDS)
