# SPDX-License-Identifier: Apache-2.0
"""A model of Placement, for the requests of the claim store."""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import re
from typing import Any
from urllib import parse

import os_traits

from cellsched.claims.placement import messages

Answer = messages.PlacementAnswer

#: Amounts by consumer, provider and resource class.
_Rows = dict[tuple[str, str, str], int]


@dataclasses.dataclass
class ModelProvider:
    name: str
    generation: int = 0
    inventories: dict[str, dict[str, Any]] = dataclasses.field(
        default_factory=dict)
    parent: str | None = None
    traits: frozenset[str] = frozenset()


def owner_of(value: Mapping[str, Any]) -> tuple[str, str, str]:
    return value['project_id'], value['user_id'], value['consumer_type']


def sums_of(rows: _Rows) -> dict[tuple[str, str], int]:
    sums: dict[tuple[str, str], int] = {}
    for (_, provider, name), amount in rows.items():
        sums[provider, name] = sums.get((provider, name), 0) + amount
    return sums


def gives(has: ModelProvider, name: str, amount: int, used: int) -> bool:
    value = has.inventories.get(name)
    return (value is not None
            and value['min_unit'] <= amount <= value['max_unit']
            and amount % value['step_size'] == 0
            and used + amount <= value['allocation_ratio'] * (
                value['total'] - value['reserved']))


def traits_of(has: ModelProvider) -> Answer:
    return Answer(200, {
        'resource_provider_generation': has.generation,
        'traits': sorted(has.traits)})


def inventories_of(has: ModelProvider) -> Answer:
    return Answer(200, {
        'resource_provider_generation': has.generation,
        'inventories': {name: dict(value)
                        for name, value in has.inventories.items()}})


def listed(
    providers: Mapping[str, ModelProvider], uuid: str
) -> dict[str, Any]:
    has = providers[uuid]
    root, parent = uuid, has.parent
    while parent is not None:
        root, parent = parent, providers[parent].parent
    return {'uuid': uuid, 'name': has.name, 'generation': has.generation,
            'parent_provider_uuid': has.parent, 'root_provider_uuid': root}


#: Standard resource classes that it knows besides custom ones.
_STANDARD = ('DISK_GB', 'MEMORY_MB', 'NET_BW_EGR_KILOBIT_PER_SEC', 'PCPU',
             'VCPU', 'VGPU')

_DEFAULTS = {'reserved': 0, 'allocation_ratio': 1.0, 'min_unit': 1,
             'max_unit': 2 ** 31 - 1, 'step_size': 1}

_TYPE = re.compile('[A-Z0-9_]{1,255}')


@dataclasses.dataclass
class _Consumer:
    #: Of two that have the same uuid one after the other.
    number: int
    owner: tuple[str, str, str]
    generation: int = 0


@dataclasses.dataclass
class Begun:
    """A request after Placement has read the records of it."""

    request: messages.PlacementRequest
    #: The answer, if it does not depend on the records.
    answer: Answer | None = None
    providers: dict[str, int] = dataclasses.field(default_factory=dict)
    consumers: dict[str, tuple[int, int]] = dataclasses.field(
        default_factory=dict)
    created: dict[str, int] = dataclasses.field(default_factory=dict)
    #: Consumer, provider, resource class and amount, in order.
    requested: list[tuple[str, str, str, int]] = dataclasses.field(
        default_factory=list)


class _Refused(Exception):
    """The answer to a request that changes nothing."""

    def __init__(
        self, status: int, code: str, detail: str, cleans: bool = True
    ) -> None:
        super().__init__(detail)
        #: Whether consumers are removed that the request made.
        self.cleans = cleans
        self.answer = Answer(status, {'errors': [{
            'status': status, 'code': f'placement.{code}',
            'detail': detail}]})


class PlacementModel:
    """Answers as Placement does, including its defects.

    A write of allocations reads the state in :meth:`begin` and writes in
    :meth:`finish`; other writes may come between. The write is then repeated,
    on top of its own earlier changes. If the write fails, a consumer that it
    created is removed, even if another write has claimed for it since.

    :param retries: times that Placement makes an attempt
    """

    def __init__(self, retries: int = 10) -> None:
        self.providers: dict[str, ModelProvider] = {}
        self.consumers: dict[str, _Consumer] = {}
        self.rows: _Rows = {}
        self.classes = set(_STANDARD)
        self.traits = {*os_traits.get_traits()}
        self._retries = retries
        self._numbers = 0

    def answer(self, request: messages.PlacementRequest) -> Answer:
        """Return the answer to a request without concurrent requests."""
        return self.finish(self.begin(request))

    def begin(self, request: messages.PlacementRequest) -> Begun:
        """Return a request for which there was room a moment ago."""
        begun = Begun(request)
        if (request.method, request.path) == ('POST', '/allocations'):
            try:
                self._begin(begun)
                self._attempt(begun, self.rows)
            except _Refused as refused:
                begun.answer = refused.answer
                if refused.cleans:
                    self._remove_created(begun)
        return begun

    def finish(self, begun: Begun) -> Answer:
        """Execute the request, and return the answer."""
        if begun.answer is not None:
            return begun.answer
        request = begun.request
        try:
            if (request.method, request.path) == ('POST', '/allocations'):
                return self._write(begun)
            return self._route(request)
        except _Refused as refused:
            self._remove_created(begun)
            return refused.answer

    def _remove_created(self, begun: Begun) -> None:
        for consumer, number in begun.created.items():
            present = self.consumers.get(consumer)
            if present is not None and present.number == number:
                del self.consumers[consumer]

    # Allocations.

    def _begin(self, begun: Begun) -> None:
        body = begun.request.body or {}
        for consumer, value in body.items():
            self._ensure(begun, consumer, value)
        for consumer, value in body.items():
            for provider, taken in value['allocations'].items():
                if provider not in self.providers:
                    # The consumers that it made stay.
                    raise _Refused(400, 'undefined_code', (
                        f"Allocation for resource provider '{provider}' "
                        'that does not exist.'), cleans=False)
                begun.requested += [
                    (consumer, provider, name, amount)
                    for name, amount in taken['resources'].items()]
            if not value['allocations']:
                begun.requested += [
                    (consumer, provider, name, 0)
                    for holder, provider, name in self.rows
                    if holder == consumer]
        begun.providers = {
            provider: self.providers[provider].generation
            for _, provider, _, _ in begun.requested}

    def _ensure(
        self, begun: Begun, consumer: str, value: Mapping[str, Any]
    ) -> None:
        """Make a consumer, if it is to be new."""
        if not _TYPE.fullmatch(value['consumer_type']):
            raise _Refused(400, 'undefined_code', 'JSON does not validate')
        present = self.consumers.get(consumer)
        generation = value['consumer_generation']
        if present is None and generation is not None:
            raise _Refused(409, 'concurrent_update', (
                'consumer generation conflict - expected null but got '
                f'{generation}'))
        if present is not None and present.generation != generation:
            raise _Refused(409, 'concurrent_update', (
                'consumer generation conflict - expected '
                f'{present.generation} but got {generation}'))
        if present is None:
            self._numbers += 1
            present = self.consumers[consumer] = _Consumer(
                self._numbers, owner_of(value))
            begun.created[consumer] = present.number
        begun.consumers[consumer] = present.number, present.generation

    def _write(self, begun: Begun) -> Answer:
        # All attempts are one transaction.
        rows = self._with_requested(begun, self.rows)
        counted = {provider: self.providers[provider].generation
                   for provider in begun.providers}
        for _ in range(self._retries):
            if self._count(begun, counted):
                self._commit(begun, rows, counted)
                return Answer(204)
            begun.providers = {
                provider: self.providers[provider].generation
                for provider in begun.providers}
            rows = self._attempt(begun, rows)
        raise _Refused(409, 'concurrent_update', (
            'Inventory and/or allocations changed while attempting to '
            'allocate'))

    def _attempt(self, begun: Begun, rows: _Rows) -> _Rows:
        """Return the allocations with the new ones, if they fit."""
        unknown = {name for _, _, name, _ in begun.requested} - self.classes
        if unknown:
            raise _Refused(400, 'undefined_code', (
                f'Unable to allocate inventory No such resource class '
                f'{min(unknown)}.'))
        before = sums_of(rows)
        rest = sums_of(self._other_rows(begun, rows))
        more: dict[tuple[str, str], int] = {}
        for _, provider, name, amount in begun.requested:
            if not amount:
                continue
            where = provider, name
            more[where] = more.get(where, 0) + amount
            has = self.providers[provider].inventories.get(name)
            if has is None:
                raise _Refused(409, 'undefined_code', (
                    f"Unable to allocate inventory: Inventory for '{name}' "
                    f"on resource provider '{provider}' invalid."))
            room = (has['total'] - has['reserved']) * has['allocation_ratio']
            total = rest.get(where, 0) + more[where]
            if (not has['min_unit'] <= amount <= has['max_unit']
                    or amount % has['step_size']
                    or total > room and total > before.get(where, -1)):
                raise _Refused(409, 'undefined_code', (
                    'Unable to allocate inventory: Unable to create '
                    f"allocation for '{name}' on resource provider "
                    f"'{provider}'. …"))
        return self._with_requested(begun, rows)

    def _other_rows(self, begun: Begun, rows: _Rows) -> _Rows:
        consumers = {consumer for consumer, *_ in begun.requested}
        return {row: amount for row, amount in rows.items()
                if row[0] not in consumers}

    def _with_requested(self, begun: Begun, rows: _Rows) -> _Rows:
        return self._other_rows(begun, rows) | {
            (consumer, provider, name): amount
            for consumer, provider, name, amount in begun.requested if amount}

    def _count(self, begun: Begun, counted: dict[str, int]) -> bool:
        """Count providers up in turn; return False at one that changed."""
        for provider, generation in begun.providers.items():
            if counted[provider] != generation:
                return False
            counted[provider] += 1
        return True

    def _commit(
        self, begun: Begun, rows: _Rows, counted: Mapping[str, int]
    ) -> None:
        consumers = {consumer for consumer, *_ in begun.requested}
        for consumer in consumers:
            present = self.consumers.get(consumer)
            if present is None or begun.consumers[consumer] != (
                    present.number, present.generation):
                raise _Refused(409, 'concurrent_update', (
                    'Inventory and/or allocations changed while attempting '
                    'to allocate: consumer'))
        self.rows = rows
        for provider, generation in counted.items():
            self.providers[provider].generation = generation
        body = begun.request.body or {}
        for consumer in consumers:
            present = self.consumers[consumer]
            present.generation += 1
            present.owner = owner_of(body[consumer])
            if not body[consumer]['allocations']:
                del self.consumers[consumer]

    def _allocations(self, consumer: str) -> Answer:
        present = self.consumers.get(consumer)
        found: dict[str, Any] = {}
        for (holder, provider, name), amount in self.rows.items():
            if holder == consumer and present is not None:
                found.setdefault(provider, {
                    'generation': self.providers[provider].generation,
                    'resources': {}})['resources'][name] = amount
        if present is None or not found:
            return Answer(200, {'allocations': {}})
        project_id, user_id, kind = present.owner
        return Answer(200, {
            'allocations': found, 'consumer_generation': present.generation,
            'project_id': project_id, 'user_id': user_id,
            'consumer_type': kind})

    # Providers.

    def _route(self, request: messages.PlacementRequest) -> Answer:
        method, body = request.method, request.body or {}
        path, _, query = request.path.partition('?')
        parts = path.strip('/').split('/')
        if method == 'GET' and parts == ['']:
            return Answer(200, {'versions': [
                {'id': 'v1.0', 'min_version': '1.0', 'max_version': '1.39'}]})
        if method == 'GET' and parts[0] == 'allocations':
            return self._allocations(parts[1])
        if parts[0] == 'resource_classes':
            return self._class(method, parts)
        if parts[0] == 'traits':
            status = 204 if parts[1] in self.traits else 201
            self.traits.add(parts[1])
            return Answer(status)
        if method == 'POST':
            return self._create(body['uuid'], body['name'])
        if len(parts) == 1:
            return self._found(dict(parse.parse_qsl(query)))
        has = self.providers.get(parts[1])
        if has is None:
            raise _Refused(404, 'undefined_code', 'No resource provider')
        if method == 'PUT' and len(parts) == 2:
            return self._set_parent(parts[1], has, body)
        if method == 'PUT' and parts[2] == 'traits':
            return self._set_traits(has, body)
        if method == 'PUT':
            return self._set_inventories(parts[1], has, body)
        reported: dict[str, Callable[[], Answer]] = {
            '': lambda: Answer(
                200, listed(self.providers, parts[1])),
            'traits': lambda: traits_of(has),
            'inventories': lambda: inventories_of(has),
            'usages': lambda: self._usages(parts[1], has),
            'allocations': lambda: self._holders(parts[1], has)}
        return reported[parts[2] if len(parts) > 2 else '']()

    def _found(self, query: Mapping[str, str]) -> Answer:
        """Return the providers that have a resource or a trait."""
        name, _, amount = query.get('resources', '').partition(':')
        trait = query.get('required')
        if name and name not in self.classes or (
                trait and trait not in self.traits):
            raise _Refused(400, 'undefined_code', 'No such class or trait')
        sums = sums_of(self.rows)
        return Answer(200, {'resource_providers': [
            listed(self.providers, uuid)
            for uuid, has in self.providers.items()
            if (not trait or trait in has.traits) and (
                not name or gives(
                    has, name, int(amount), sums.get((uuid, name), 0)))]})

    def _set_parent(
        self, uuid: str, has: ModelProvider,
        body: Mapping[str, Any],
    ) -> Answer:
        parent = body['parent_provider_uuid']
        if parent is not None and parent not in self.providers:
            raise _Refused(400, 'undefined_code', 'No such parent')
        has.parent = parent
        return Answer(200, listed(self.providers, uuid))

    def _set_traits(
        self, has: ModelProvider, body: Mapping[str, Any]
    ) -> Answer:
        if body['resource_provider_generation'] != has.generation:
            raise _Refused(409, 'concurrent_update',
                           'resource provider generation conflict')
        if not self.traits.issuperset(body['traits']):
            raise _Refused(400, 'undefined_code', 'No such trait')
        has.traits = frozenset(body['traits'])
        has.generation += 1
        return traits_of(has)

    def _class(self, method: str, parts: list[str]) -> Answer:
        if method == 'GET':
            return Answer(200, {'resource_classes': [
                {'name': name} for name in sorted(self.classes)]})
        if not parts[1].startswith('CUSTOM_'):
            raise _Refused(400, 'undefined_code', 'JSON does not validate')
        status = 204 if parts[1] in self.classes else 201
        self.classes.add(parts[1])
        return Answer(status)

    def _create(self, uuid: str, name: str) -> Answer:
        if uuid in self.providers or any(
                each.name == name for each in self.providers.values()):
            raise _Refused(409, 'duplicate_name', 'Conflicting provider')
        self.providers[uuid] = ModelProvider(name)
        return Answer(200, listed(self.providers, uuid))

    def _set_inventories(
        self, uuid: str, has: ModelProvider,
        body: Mapping[str, Any],
    ) -> Answer:
        requested = {name: {**_DEFAULTS, **value}
                     for name, value in body['inventories'].items()}
        if body['resource_provider_generation'] != has.generation:
            raise _Refused(409, 'concurrent_update',
                           'resource provider generation conflict')
        if not self.classes.issuperset(requested):
            raise _Refused(400, 'undefined_code', 'Unknown resource class')
        held = {name for _, provider, name in self.rows if provider == uuid}
        if any(name in held and name not in requested
               for name in has.inventories):
            raise _Refused(409, 'inventory.inuse', 'inventory in use')
        has.inventories = requested
        has.generation += 1
        return inventories_of(has)

    def _usages(self, uuid: str, has: ModelProvider) -> Answer:
        sums = sums_of(self.rows)
        return Answer(200, {
            'resource_provider_generation': has.generation,
            'usages': {name: sums.get((uuid, name), 0)
                       for name in has.inventories}})

    def _holders(self, uuid: str, has: ModelProvider) -> Answer:
        found: dict[str, Any] = {}
        for (consumer, provider, name), amount in self.rows.items():
            if provider == uuid and consumer in self.consumers:
                found.setdefault(consumer, {
                    'consumer_generation': self.consumers[consumer].generation,
                    'resources': {}})['resources'][name] = amount
        return Answer(200, {
            'allocations': found,
            'resource_provider_generation': has.generation})
