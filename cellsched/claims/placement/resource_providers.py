# SPDX-License-Identifier: Apache-2.0
"""Inventories, usages, traits and queries of providers in Placement."""

from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import math
import re
from typing import Any
from urllib import parse

from cellsched.claims import base
from cellsched.claims.placement import messages
from cellsched.claims.placement.server import Generations
from cellsched.claims.placement.server import PlacementServer
from cellsched.claims import remote
from cellsched.claims import validation
from cellsched import exception

_CUSTOM = 'CUSTOM_'

#: Units that admit any amount.
_ANY = {'min_unit': 1, 'max_unit': validation.AMOUNT_MAX, 'step_size': 1}

#: An inventory without capacity, which Placement accepts.
_NOTHING = {'total': 1, 'reserved': 1, 'allocation_ratio': 1.0, **_ANY}

#: Errors of answers with other fields than expected.
ANSWER_ERRORS = (AttributeError, LookupError, TypeError, ValueError)

#: The refusal of a claim that exceeds the capacity, or does not suit the units
#: of the inventory.
_REFUSED = re.compile(
    r"Unable to create allocation for '(?P<resource>\w+)' on resource "
    r"provider '(?P<provider>[0-9a-f-]+)'")

#: Number of remembered inventories.
_KNOWN_MAX = 1000

Inventories = dict[str, dict[str, base.Inventory]]


def written(has: base.Inventory) -> dict[str, Any]:
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


def inventories_of(
    server: PlacementServer, provider: str
) -> dict[str, base.Inventory] | None:
    """Return the inventory of a provider; None if it does not exist."""
    if not _is_ours(provider):
        return None
    body = server.read(f'/resource_providers/{provider}/inventories')
    return None if body is None else {
        name: _inventory(has) for name, has in body['inventories'].items()}


def used_of(server: PlacementServer, provider: str) -> dict[str, int]:
    """Return the used amounts of a provider, by resource class.

    Placement checks the capacity by these, and they include consumers that it
    does not list.
    """
    body = server.read(f'/resource_providers/{provider}/usages')
    return dict(body['usages']) if body else {}


def consumers_of(server: PlacementServer, provider: str) -> list[str]:
    """Return the consumers of a provider."""
    if not _is_ours(provider):
        return []
    body = server.read(f'/resource_providers/{provider}/allocations')
    return list(body['allocations']) if body else []


def usage_of(server: PlacementServer, provider: str) -> base.Usage | None:
    """Return the usage of a provider; None if it does not exist."""
    inventory = inventories_of(server, provider)
    if inventory is None:
        return None
    return base.Usage(
        provider=provider,
        capacity={name: has.capacity for name, has in inventory.items()},
        used=used_of(server, provider),
        consumers=len(consumers_of(server, provider)),
        units={name: has.units for name, has in inventory.items()
               if has.units != base.Units()})


def generations(server: PlacementServer) -> Generations:
    """Return the generations of all providers without those of guards."""
    return {provider: generation
            for provider, generation in server.generations().items()
            if provider not in messages.GUARDS}


def named_refusal(
    answer: messages.PlacementAnswer, claims: Sequence[base.Claim]
) -> exception.ClaimRefused | None:
    """Return the refusal that Placement's answer to a write of claims names.

    Placement compares the consumers before the capacity, so they held nothing.
    It compares the amounts in the order of the request.

    :returns: None if it does not name the first claim, and no other one
    """
    match = _REFUSED.search(answer.detail)
    if match is None:
        return None
    provider, resource = match.group('provider', 'resource')
    named = [claim for claim in claims
             if claim.provider == provider and resource in claim.resources]
    if named != [claims[0]]:
        # The first claim that does not fit may be another one.
        return None
    return exception.ClaimRefused(
        provider=provider, resource=resource,
        amount=claims[0].resources[resource], consumer=claims[0].consumer)


class Figures:
    """The inventories and the used amounts of providers, read when needed.

    :param known: earlier inventories, which refuse nothing before they are
        read again, and get those that are read
    """

    def __init__(self, server: PlacementServer, known: Inventories) -> None:
        self._server = server
        self._known = known
        self._inventories: Inventories = {}
        self._earlier: set[str] = set()
        self._used: dict[str, dict[str, int]] = {}
        #: The used amounts with those of :meth:`take`.
        self._taken: dict[str, dict[str, int]] = {}

    def refusal(
        self, claims: Sequence[base.Claim]
    ) -> exception.ClaimRefused | None:
        """Return why claims do not fit, or None if they do."""
        providers = {claim.provider for claim in claims}
        for provider in providers - self._inventories.keys():
            has = self._known.get(provider)
            if has is None:
                self._read(provider)
            else:
                self._inventories[provider] = has
                self._earlier.add(provider)
            self._used[provider] = used_of(self._server, provider)
            self._taken[provider] = dict(self._used[provider])
        refusal = self._find(claims, self._used)
        if refusal is not None and not self._earlier.isdisjoint(providers):
            for provider in self._earlier & providers:
                self._read(provider)
            refusal = self._find(claims, self._used)
        return refusal

    def take(self, claims: Sequence[base.Claim]) -> bool:
        """Count claims as used, if they fit beside those before.

        :param claims: claims that :meth:`refusal` does not refuse
        """
        if self._find(claims, self._taken) is not None:
            return False
        for claim in claims:
            amounts = self._taken[claim.provider]
            for name, amount in claim.resources.items():
                amounts[name] = amounts.get(name, 0) + amount
        return True

    def _find(
        self, claims: Sequence[base.Claim],
        used: Mapping[str, Mapping[str, int]],
    ) -> exception.ClaimRefused | None:
        return validation.find_refusal(claims, self._inventories, used)

    def _read(self, provider: str) -> None:
        """Read an inventory. One that cannot be read refuses each claim."""
        self._earlier.discard(provider)
        self._inventories[provider] = {}
        with contextlib.suppress(*ANSWER_ERRORS):
            self._inventories[provider] = inventories_of(
                self._server, provider) or {}
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known[provider] = self._inventories[provider]


def set_inventory(
    server: PlacementServer, provider: str,
    inventory: Mapping[str, base.Inventory],
) -> bool:
    """Set the inventory of a provider; return False to repeat it.

    A class that is left out is removed, or has no capacity while it is used.
    """
    path = f'/resource_providers/{provider}/inventories'
    has = server.read(path)
    if has is None:
        server.create_provider(provider, provider)
        has = server.read(path)
        if has is None:
            raise remote.NotSent(
                f'another resource provider has the name {provider}')
    before = has['inventories']
    requested = {name: written(each) for name, each in inventory.items()}
    if requested == before:
        return True
    generation = has['resource_provider_generation']
    answer = server.set_inventories(provider, generation, requested)
    if answer.code == 'inventory.inuse':
        held = {name for name, amount in used_of(server, provider).items()
                if amount}
        requested |= {name: _NOTHING for name in before
                      if name in held and name not in requested}
        if requested == before:
            return True
        answer = server.set_inventories(provider, generation, requested)
    if answer.status == 400:
        for name in requested:
            if name.startswith(_CUSTOM) and name not in before:
                server.create_class(name)
        answer = server.set_inventories(provider, generation, requested)
        if answer.status == 400:
            raise exception.InvalidField(
                where=f'inventory of {provider}', field='resource class',
                problem=f'Placement answered {answer.detail!r:.300}',
                expected='standard resource classes of Placement, or '
                         f'{_CUSTOM}…')
    return answer.is_done


def widen(
    server: PlacementServer, provider: str,
    resources: Mapping[str, int],
) -> dict[str, Any]:
    """Widen the units of inventories that do not admit the amounts.

    Their whole total is reserved meanwhile, so that no claim can use them.

    :returns: the inventories before, for :func:`narrow`
    """
    path = f'/resource_providers/{provider}/inventories'
    body = server.read(path) or {'inventories': {}}
    before = body['inventories']
    broken = {
        name: has for name, has in before.items()
        if name in resources and not _inventory(has).admits(resources[name])}
    wide = {name: {**has, **_ANY, 'reserved': has['total']}
            for name, has in broken.items()}
    if wide and not server.set_inventories(
            provider, body['resource_provider_generation'],
            {**before, **wide}).is_done:
        return {}
    return broken


def narrow(
    server: PlacementServer, provider: str, before: Mapping[str, Any]
) -> bool:
    """Restore widened inventories; return whether they are restored."""
    path = f'/resource_providers/{provider}/inventories'
    body = server.read(path)
    if not body:
        return True
    current = body['inventories']
    changed = {
        name: has for name, has in before.items()
        if current.get(name) == {**has, **_ANY, 'reserved': has['total']}}
    return not changed or server.set_inventories(
        provider, body['resource_provider_generation'],
        {**current, **changed}).is_done


def mark(server: PlacementServer, provider: str) -> bool:
    """Increment a provider's generation; return False to repeat it.

    Placement does not increment it when the last allocation of a consumer is
    removed from the provider.
    """
    body = server.read(f'/resource_providers/{provider}/inventories')
    return not body or server.set_inventories(
        provider, body['resource_provider_generation'],
        body['inventories']).is_done


def _inventory(has: Mapping[str, Any]) -> base.Inventory:
    found = base.Inventory(**{field: has[field] for field in _NOTHING})
    if not all(type(value) in (float, int) for value in (
            *found.units, found.total, found.reserved,
            found.allocation_ratio)) or found.step_size < 1:
        raise ValueError(f'the inventory {has!r:.200}')
    return found


def _is_ours(provider: str) -> bool:
    return (messages.UUID.fullmatch(provider) is not None
            and provider not in messages.GUARDS)


#: Marks providers whose traits a store has set.
MARKED = 'CUSTOM_CELLSCHED_TOLD'

_PATH = '/resource_providers'


def set_traits(
    server: PlacementServer, provider: str, traits: frozenset[str],
    root: str,
) -> bool:
    """Set the traits of a provider and its root; return False to repeat it.

    :raises cellsched.exception.InvalidField: Placement rejects a trait
    """
    if not _set_parent(server, provider, None if root == provider else root):
        return False
    path = f'{_PATH}/{provider}/traits'
    has = server.read(path)
    if has is None:
        return False
    requested = sorted(traits | {MARKED})
    if requested == sorted(has['traits']):
        return True
    body = {'resource_provider_generation': has[
        'resource_provider_generation'], 'traits': requested}
    answer = server.send('PUT', path, body, 400, 409)
    if answer.status == 400:
        for name in requested:
            if name.startswith(_CUSTOM):
                server.send('PUT', f'/traits/{name}', None)
        answer = server.send('PUT', path, body, 400, 409)
        if answer.status == 400:
            raise exception.InvalidField(
                where=f'traits of {provider}', field='traits',
                problem=f'Placement answered {answer.detail!r:.300}',
                expected=f'standard traits of Placement, or {_CUSTOM}…')
    return answer.is_done


def _set_parent(
    server: PlacementServer, provider: str, parent: str | None
) -> bool:
    """Set the parent of a provider, or remove it; return False to repeat."""
    path = f'{_PATH}/{provider}'
    has = server.read(path)
    if has is not None and has['parent_provider_uuid'] == parent:
        return True
    # The root has no parent, which also excludes loops.
    if parent is not None and not _set_parent(server, parent, None):
        return False
    if has is None:
        server.create_provider(provider, provider)
        has = server.read(path)
        if has is None:
            raise remote.NotSent(
                f'another resource provider has the name {provider}')
        if parent is None:
            return True
    return server.send('PUT', path, {
        'name': has['name'], 'parent_provider_uuid': parent}, 409).is_done


def root_of(server: PlacementServer, provider: str) -> str | None:
    """Return the root of a provider whose traits a store has set."""
    if (not messages.UUID.fullmatch(provider) or provider in messages.GUARDS):
        return None
    has = server.read(f'{_PATH}/{provider}')
    traits = has and server.read(f'{_PATH}/{provider}/traits')
    if not has or not traits or MARKED not in traits['traits']:
        return None
    return str(has['root_provider_uuid'])


def find(server: PlacementServer, query: base.ProviderQuery) -> set[str]:
    """Return the roots of the trees that match a query.

    Several requests are combined; a tree that matches all the time is in each
    of the answers.
    """
    if query.resources:
        found = set.intersection(*(
            set[str]().union(*(
                _listed(server, resources=f'{name}:{amount}').values()
                for amount in sorted(set(amounts))))
            for name, amounts in sorted(query.resources.items())))
    else:
        found = set(_listed(server).values())
    if found and (query.required or query.forbidden):
        marked = found.intersection(_listed(server, required=MARKED))
        fit = set(marked)
        for trait in sorted(query.required):
            fit.intersection_update(_listed(server, required=trait).values())
        for trait in sorted(query.forbidden):
            fit.difference_update(_listed(server, required=trait))
        found = found - marked | fit
    return found


def _listed(server: PlacementServer, **query: str) -> dict[str, str]:
    """Return the roots of matching providers, without those of guards."""
    path = f'{_PATH}?{parse.urlencode(query)}' if query else _PATH
    # Placement rejects a class or a trait that was never used.
    answer = server.send('GET', path, None, 400)
    if answer.status == 400:
        return {}
    return {each['uuid']: each['root_provider_uuid']
            for each in answer.body['resource_providers']
            if each['uuid'] not in messages.GUARDS}
