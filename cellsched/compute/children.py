# SPDX-License-Identifier: Apache-2.0
"""Validation of the child providers that a driver reports."""

from collections.abc import Mapping
import re
from typing import Any
from uuid import UUID

from cellsched.claims import validation
from cellsched import exception
from cellsched.objects import resources
from cellsched.virt import base

#: Children of a node, on all levels.
CHILDREN_MAX = 1000

#: Characters in the name of a child.
NAME_MAX = 200

#: Characters in the traits of all children of a node: their names and these
#: are a row of the cell's database, which schedulers read.
TRAITS_TEXT_MAX = 2 ** 20

_TRAIT = re.compile(r'[A-Z0-9_]{1,255}')


def check(node: str, providers: Mapping[str, base.ChildProvider]) -> None:
    """Validate the child providers of a node.

    :param node: the name of the node
    :raises cellsched.exception.InvalidField: names the node, the child, the
        field and the bound
    """
    where = f'node {node!a:.80}'
    _expect(isinstance(providers, Mapping), where, 'providers',
            'a mapping of names to ChildProvider')
    _expect(len(providers) <= CHILDREN_MAX, where, 'providers',
            f'at most {CHILDREN_MAX}', f'{len(providers)} are too many')
    for name, child in providers.items():
        field = f'providers[{name!a:.80}]'
        _expect(_is_name(name) and name != node, where, field,
                f'a name of 1 to {NAME_MAX} printable characters, other than '
                "the node's")
        _expect(isinstance(child, base.ChildProvider), where, field,
                'a ChildProvider')
        _check_fields(child, where, field)
        _expect(child.parent is None or _is_key(child.parent, providers),
                where, f'{field}.parent',
                'the name of a child of the node',
                f'{child.parent!a:.80} is unknown')
    uuids = [child.uuid for child in providers.values() if child.uuid]
    _expect(len(set(uuids)) == len(uuids), where, 'providers',
            'a different uuid for each child')
    _check_levels(where, providers)
    length = sum(len(trait) for child in providers.values()
                 for trait in child.traits)
    _expect(length <= TRAITS_TEXT_MAX, where, 'providers',
            f'at most {TRAITS_TEXT_MAX} characters',
            f'the names of all traits have {length} characters')


def check_uuids(nodes: Mapping[str, base.NodeResources]) -> None:
    """Validate the uuids that a driver gives to its nodes.

    :raises cellsched.exception.InvalidField: names the node and the field
    """
    known: dict[str, str] = {}
    for name, node in nodes.items():
        if node.uuid is not None:
            where = f'node {name!a:.80}'
            _expect(_is_uuid(node.uuid), where, 'uuid',
                    'a uuid', f'{node.uuid!a:.80} is not valid')
            _expect(node.uuid not in known, where, 'uuid',
                    'a different uuid for each node',
                    f'node {known.get(node.uuid)!a:.80} has the same')
            known[node.uuid] = name


def _is_uuid(value: Any) -> bool:
    try:
        return str(UUID(value)) == value
    except (AttributeError, TypeError, ValueError):
        return False


def _is_name(name: Any) -> bool:
    return (isinstance(name, str) and 0 < len(name) <= NAME_MAX
            and name.isprintable())


def _check_fields(child: base.ChildProvider, where: str, field: str) -> None:
    _expect(child.uuid is None or _is_uuid(child.uuid), where,
            f'{field}.uuid', 'a uuid', f'{child.uuid!a:.80} is not valid')
    _expect(isinstance(child.traits, (frozenset, set)) and all(
        isinstance(trait, str) and _TRAIT.fullmatch(trait)
        for trait in child.traits), where, f'{field}.traits',
        'a set of names of A-Z, 0-9 and _, at most 255 characters each')
    _expect(isinstance(child.inventories, Mapping) and all(
        isinstance(name, str) and resources.is_known(name)
        and isinstance(value, resources.Inventory)
        for name, value in child.inventories.items()), where,
        f'{field}.inventories',
        'inventories by names of resource classes')
    try:
        validation.check_inventory('child', child.inventories)
    except exception.InvalidField as exc:
        raise exception.InvalidField(
            where=where, field=f'{field}.inventories: {exc.field}',
            **exc.reasons) from None


def _check_levels(
    where: str, providers: Mapping[str, base.ChildProvider]
) -> None:
    """Check that no child is its own ancestor."""
    known: set[str] = set()
    for name in providers:
        above: list[str] = []
        seen: set[str] = set()
        child: str | None = name
        while child is not None and child not in known:
            _expect(child not in seen, where,
                    f'providers[{name!a:.80}].parent',
                    'a tree of providers', 'the provider is below itself')
            above.append(child)
            seen.add(child)
            child = providers[child].parent
        known.update(above)


def _is_key(name: Any, providers: Mapping[str, Any]) -> bool:
    return isinstance(name, str) and name in providers


def _expect(
    holds: bool, where: str, field: str, expected: str,
    problem: str | None = None,
) -> None:
    if not holds:
        raise exception.InvalidField(
            where=where, field=field, problem=problem, expected=expected)
