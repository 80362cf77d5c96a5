# SPDX-License-Identifier: Apache-2.0
"""Trees of providers in Placement, their traits, and who has room."""

from urllib import parse

from cellsched.claims import base
from cellsched.claims.placement import messages
from cellsched.claims.placement.server import PlacementServer
from cellsched.claims import remote
from cellsched import exception

_CUSTOM = 'CUSTOM_'

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
