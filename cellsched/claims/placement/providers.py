# SPDX-License-Identifier: Apache-2.0
"""Inventories and usages of providers, to and from Placement."""

from collections.abc import Iterable
from collections.abc import Mapping
import math
from typing import Any

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
