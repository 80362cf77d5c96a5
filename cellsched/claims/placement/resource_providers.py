# SPDX-License-Identifier: Apache-2.0
"""Inventories and usages of providers, to and from Placement."""

from collections.abc import Iterable
from collections.abc import Mapping
import math
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

#: Bounds on single claims that admit any.
_ANY = {'min_unit': 1, 'max_unit': validation.AMOUNT_MAX, 'step_size': 1}

#: Placement has no class of which there is nothing.
_NOTHING = {'total': 1, 'reserved': 1, 'allocation_ratio': 1.0, **_ANY}

Inventories = dict[str, dict[str, base.Inventory]]


def written(has: base.Inventory) -> dict[str, Any]:
    """Return an inventory as Placement is told of it.

    It has none whose total is zero, or of which more is reserved.
    """
    total, ratio = max(has.total, 1), float(has.allocation_ratio)
    reserved = min(has.reserved, total) if has.total else total
    # It does not round what we do.
    while (total - reserved) * ratio < has.capacity:
        ratio = math.nextafter(ratio, math.inf)
    return {'total': total, 'reserved': reserved, 'allocation_ratio': ratio,
            'min_unit': has.min_unit, 'max_unit': has.max_unit,
            'step_size': has.step_size}


def inventories_of(
    server: PlacementServer, provider: str
) -> dict[str, base.Inventory] | None:
    """Return what a provider has; None of one that is not there."""
    if not _is_ours(provider):
        return None
    body = server.read(f'/resource_providers/{provider}/inventories')
    return None if body is None else {
        name: _inventory(said) for name, said in body['inventories'].items()}


def used_of(server: PlacementServer, provider: str) -> dict[str, int]:
    """Return what is taken of a provider, by resource class.

    It is what Placement refuses by: all rows, also of a consumer that it
    does not list.
    """
    body = server.read(f'/resource_providers/{provider}/usages')
    return dict(body['usages']) if body else {}


def consumers_of(server: PlacementServer, provider: str) -> list[str]:
    """Return who holds something of a provider."""
    if not _is_ours(provider):
        return []
    body = server.read(f'/resource_providers/{provider}/allocations')
    return list(body['allocations']) if body else []


def usage_of(
    server: PlacementServer, provider: str
) -> base.Usage | None:
    """Return a provider; None of one that is not there."""
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
    """Return all providers that are not for guards."""
    return {provider: generation
            for provider, generation in server.generations().items()
            if provider not in messages.GUARDS}


def refusal(
    server: PlacementServer, claims: Iterable[base.Claim]
) -> exception.ClaimRefused | None:
    """Return why a batch cannot be taken, or None if it can."""
    claims = list(claims)
    inventories, used = {}, {}
    for provider in dict.fromkeys(claim.provider for claim in claims):
        inventory = inventories_of(server, provider)
        if inventory is not None:
            inventories[provider] = inventory
            used[provider] = used_of(server, provider)
    return validation.find_refusal(claims, inventories, used)


def set_inventory(
    server: PlacementServer, provider: str,
    inventory: Mapping[str, base.Inventory],
) -> bool:
    """Say what a provider has; return False if it has to be said again.

    A class that is left out is removed, or is there with nothing in it as
    long as somebody holds something of it.
    """
    path = f'/resource_providers/{provider}/inventories'
    has = server.read(path)
    if has is None:
        server.create_provider(provider, provider)
        has = server.read(path)
        if has is None:
            raise remote.NotSent(
                f'a resource provider of another uuid has the name {provider}')
    before = has['inventories']
    wanted = {name: written(each) for name, each in inventory.items()}
    if wanted == before:
        return True
    generation = has['resource_provider_generation']
    answer = server.set_inventories(provider, generation, wanted)
    if answer.code == 'inventory.inuse':
        held = {name for name, amount in used_of(server, provider).items()
                if amount}
        wanted |= {name: _NOTHING for name in before
                   if name in held and name not in wanted}
        if wanted == before:
            return True
        answer = server.set_inventories(provider, generation, wanted)
    if answer.status == 400:
        for name in wanted:
            if name.startswith(_CUSTOM) and name not in before:
                server.create_class(name)
        answer = server.set_inventories(provider, generation, wanted)
        if answer.status == 400:
            raise exception.InvalidField(
                where=f'inventory of {provider}', field='resource class',
                expected=f'standard ones of Placement and {_CUSTOM}…; it '
                         f'answered {answer.detail!r:.300}')
    return answer.is_done


def widen(
    server: PlacementServer, provider: str,
    resources: Mapping[str, int],
) -> dict[str, Any]:
    """Have amounts admitted that break the bounds on single claims.

    What is widened has no room meanwhile, so that nobody else can use it.

    :returns: what :func:`narrow` has to set right
    """
    path = f'/resource_providers/{provider}/inventories'
    body = server.read(path) or {'inventories': {}}
    before = body['inventories']
    broken = {
        name: said for name, said in before.items()
        if name in resources and not _inventory(said).admits(resources[name])}
    wide = {name: {**said, **_ANY, 'reserved': said['total']}
            for name, said in broken.items()}
    if wide and not server.set_inventories(
            provider, body['resource_provider_generation'],
            {**before, **wide}).is_done:
        return {}
    return broken


def narrow(
    server: PlacementServer, provider: str, before: Mapping[str, Any]
) -> bool:
    """Set right what was widened, if nobody else did; return whether it is."""
    path = f'/resource_providers/{provider}/inventories'
    body = server.read(path)
    if not body:
        return True
    there = body['inventories']
    left = {name: said for name, said in before.items()
            if there.get(name) == {
                **said, **_ANY, 'reserved': said['total']}}
    return not left or server.set_inventories(
        provider, body['resource_provider_generation'],
        {**there, **left}).is_done


def mark(server: PlacementServer, provider: str) -> bool:
    """Have a provider told as changed; return False if it was not marked.

    Placement does so only for those that a write names, and not for those of
    which a consumer holds no longer anything.
    """
    body = server.read(f'/resource_providers/{provider}/inventories')
    return not body or server.set_inventories(
        provider, body['resource_provider_generation'],
        body['inventories']).is_done


def _inventory(said: Mapping[str, Any]) -> base.Inventory:
    return base.Inventory(**{field: said[field] for field in _NOTHING})


def _is_ours(provider: str) -> bool:
    return (messages.UUID.fullmatch(provider) is not None
            and provider not in messages.GUARDS)


#: Trait of providers of which a store said what they can do.
TOLD = 'CUSTOM_CELLSCHED_TOLD'

_PATH = '/resource_providers'


def set_traits(
    server: PlacementServer, provider: str, traits: frozenset[str],
    root: str,
) -> bool:
    """Say what a provider can do; return False if it has to be said again.

    :raises cellsched.exception.InvalidField: Placement knows no such trait
    """
    if not _set_parent(server, provider, None if root == provider else root):
        return False
    path = f'{_PATH}/{provider}/traits'
    has = server.read(path)
    if has is None:
        return False
    wanted = sorted(traits | {TOLD})
    if wanted == sorted(has['traits']):
        return True
    body = {'resource_provider_generation': has[
        'resource_provider_generation'], 'traits': wanted}
    answer = server.send('PUT', path, body, 400, 409)
    if answer.status == 400:
        for name in wanted:
            if name.startswith(_CUSTOM):
                server.send('PUT', f'/traits/{name}', None)
        answer = server.send('PUT', path, body, 400, 409)
        if answer.status == 400:
            raise exception.InvalidField(
                where=f'traits of {provider}', field='traits',
                expected=f'standard ones of Placement and {_CUSTOM}…; it '
                         f'answered {answer.detail!r:.300}')
    return answer.is_done


def _set_parent(
    server: PlacementServer, provider: str, parent: str | None
) -> bool:
    """Make a provider the child of another one, or of none."""
    path = f'{_PATH}/{provider}'
    has = server.read(path)
    if has is not None and has['parent_provider_uuid'] == parent:
        return True
    # That of a root is none, so there is no loop either.
    if parent is not None and not _set_parent(server, parent, None):
        return False
    if has is None:
        server.create_provider(provider, provider)
        has = server.read(path)
        if has is None:
            raise remote.NotSent(
                f'a resource provider of another uuid has the name {provider}')
        if parent is None:
            return True
    return server.send('PUT', path, {
        'name': has['name'], 'parent_provider_uuid': parent}, 409).is_done


def root_of(server: PlacementServer, provider: str) -> str | None:
    """Return the root of a provider of which a store said something."""
    if (not messages.UUID.fullmatch(provider)
            or provider in messages.GUARDS):
        return None
    has = server.read(f'{_PATH}/{provider}')
    said = has and server.read(f'{_PATH}/{provider}/traits')
    if not has or not said or TOLD not in said['traits']:
        return None
    return str(has['root_provider_uuid'])


def find(
    server: PlacementServer, query: base.ProviderQuery
) -> set[str]:
    """Return the roots of the trees that have what a query asks for.

    What a tree had before and has still, each of the requests finds.
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
        told = {provider for provider in _listed(server, required=TOLD)
                if provider in found}
        fit = set(told)
        for trait in sorted(query.required):
            fit.intersection_update(_listed(server, required=trait).values())
        for trait in sorted(query.forbidden):
            fit.difference_update(_listed(server, required=trait))
        found = found - told | fit
    return found


def _listed(
    server: PlacementServer, **query: str
) -> dict[str, str]:
    """Return the roots of providers by these, but for those of guards."""
    path = f'{_PATH}?{parse.urlencode(query)}' if query else _PATH
    # It does not know a class or a trait that nobody has.
    answer = server.send('GET', path, None, 400)
    if answer.status == 400:
        return {}
    return {each['uuid']: each['root_provider_uuid']
            for each in answer.body['resource_providers']
            if each['uuid'] not in messages.GUARDS}
