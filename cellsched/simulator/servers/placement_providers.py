# SPDX-License-Identifier: Apache-2.0
"""Providers of the model of OpenStack Placement, and their documents."""

from collections.abc import Mapping
import dataclasses
from typing import Any

from cellsched.claims.placement import messages

Answer = messages.PlacementAnswer

_Rows = Mapping[tuple[str, str, str], int]


@dataclasses.dataclass
class ModelProvider:
    name: str
    generation: int = 0
    inventories: dict[str, dict[str, Any]] = dataclasses.field(
        default_factory=dict)
    parent: str | None = None
    traits: frozenset[str] = frozenset()


def owner_of(said: Mapping[str, Any]) -> tuple[str, str, str]:
    return said['project_id'], said['user_id'], said['consumer_type']


def sums_of(rows: _Rows) -> dict[tuple[str, str], int]:
    sums: dict[tuple[str, str], int] = {}
    for (_, provider, name), amount in rows.items():
        sums[provider, name] = sums.get((provider, name), 0) + amount
    return sums


def gives(has: ModelProvider, name: str, amount: int, used: int) -> bool:
    said = has.inventories.get(name)
    return (said is not None
            and said['min_unit'] <= amount <= said['max_unit']
            and amount % said['step_size'] == 0
            and used + amount <= (
                said['total'] - said['reserved']) * said['allocation_ratio'])


def traits_of(has: ModelProvider) -> Answer:
    return Answer(200, {
        'resource_provider_generation': has.generation,
        'traits': sorted(has.traits)})


def inventories_of(has: ModelProvider) -> Answer:
    return Answer(200, {
        'resource_provider_generation': has.generation,
        'inventories': {name: dict(said)
                        for name, said in has.inventories.items()}})


def listed(
    providers: Mapping[str, ModelProvider], uuid: str
) -> dict[str, Any]:
    has = providers[uuid]
    root, parent = uuid, has.parent
    while parent is not None:
        root, parent = parent, providers[parent].parent
    return {'uuid': uuid, 'name': has.name, 'generation': has.generation,
            'parent_provider_uuid': has.parent, 'root_provider_uuid': root}
