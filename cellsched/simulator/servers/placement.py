# SPDX-License-Identifier: Apache-2.0
"""A model of Placement, for the requests of the claim store."""

from collections.abc import Mapping
import dataclasses
import re
from typing import Any
from urllib import parse

import os_traits

from cellsched.claims.placement import messages
from cellsched.simulator.servers import base

Answer = messages.PlacementAnswer

#: Amounts by consumer, provider and resource class.
_Rows = dict[tuple[str, str, str], int]

#: Standard resource classes that it knows besides custom ones.
_STANDARD = ('DISK_GB', 'MEMORY_MB', 'NET_BW_EGR_KILOBIT_PER_SEC', 'PCPU',
             'VCPU', 'VGPU')

_DEFAULTS = {'reserved': 0, 'allocation_ratio': 1.0, 'min_unit': 1,
             'max_unit': 2 ** 31 - 1, 'step_size': 1}

#: Times that it makes an attempt to write allocations.
_ATTEMPTS = 10

_TYPE = re.compile('[A-Z0-9_]{1,255}')


@dataclasses.dataclass
class ModelProvider:
    name: str
    generation: int = 0
    inventories: dict[str, dict[str, Any]] = dataclasses.field(
        default_factory=dict)
    parent: str | None = None
    traits: frozenset[str] = frozenset()

    def gives(self, name: str, amount: int, used: int) -> bool:
        """Return whether an amount of a class fits."""
        value = self.inventories.get(name)
        return (value is not None and _is_possible(value, amount)
                and used + amount <= _room(value))

    def answer(self, **more: Any) -> Answer:
        """Return an answer about this provider."""
        return Answer(200, {
            'resource_provider_generation': self.generation, **more})


def _room(value: Mapping[str, Any]) -> float:
    """Return what an inventory offers."""
    room: float = value['allocation_ratio'] * (
        value['total'] - value['reserved'])
    return room


def _is_possible(value: Mapping[str, Any], amount: int) -> bool:
    """Return whether the units of an inventory allow an amount."""
    return (value['min_unit'] <= amount <= value['max_unit']
            and amount % value['step_size'] == 0)


def _sums(rows: _Rows) -> dict[tuple[str, str], int]:
    """Return the amounts by provider and resource class."""
    sums: dict[tuple[str, str], int] = {}
    for (_, provider, name), amount in rows.items():
        sums[provider, name] = sums.get((provider, name), 0) + amount
    return sums


@dataclasses.dataclass(eq=False)
class _Consumer:
    owner: tuple[str, str, str] = '', '', ''
    generation: int = 0


@dataclasses.dataclass
class Begun:
    """A request after Placement has read the records of it."""

    request: messages.PlacementRequest
    #: The answer, if it does not depend on the records.
    answer: Answer | None = None
    providers: dict[str, int] = dataclasses.field(default_factory=dict)
    #: The consumers with the generations that were read.
    consumers: dict[str, tuple[_Consumer, int]] = dataclasses.field(
        default_factory=dict)
    created: dict[str, _Consumer] = dataclasses.field(default_factory=dict)
    #: Consumer, provider, resource class and amount, in order.
    requested: list[tuple[str, str, str, int]] = dataclasses.field(
        default_factory=list)

    @property
    def is_claim(self) -> bool:
        """True if it writes allocations."""
        return (self.request.method, self.request.path) == (
            'POST', '/allocations')


class _Refused(Exception):
    """The answer to a request that changes nothing."""

    def __init__(
        self, status: int, detail: str, code: str = 'undefined_code',
        cleans: bool = True,
    ) -> None:
        super().__init__(detail)
        #: Whether consumers are removed that the request made.
        self.cleans = cleans
        self.answer = Answer(status, {'errors': [{
            'status': status, 'code': f'placement.{code}',
            'detail': detail}]})


def _conflict(detail: str) -> _Refused:
    """Return the refusal of a write that another one was faster than."""
    return _Refused(409, detail, 'concurrent_update')


class PlacementModel(base.ServerModel):
    """Answers as Placement does, including its defects.

    A write of allocations reads the state in :meth:`begin` and writes in
    :meth:`finish`; other writes may come between. The write is then repeated,
    on top of its own earlier changes. If the write fails, a consumer that it
    created is removed, even if another write has claimed for it since.
    """

    def __init__(self) -> None:
        self.providers: dict[str, ModelProvider] = {}
        self.consumers: dict[str, _Consumer] = {}
        self.rows: _Rows = {}
        self.classes = set(_STANDARD)
        self.traits = {*os_traits.get_traits()}

    def answer(self, request: messages.PlacementRequest) -> Answer:
        """Return the answer to a request without concurrent requests."""
        return self.finish(self.begin(request))

    def begin(self, request: messages.PlacementRequest) -> Begun:
        """Return a request for which there was room a moment ago."""
        begun = Begun(request)
        if begun.is_claim:
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
        try:
            return (self._write(begun) if begun.is_claim
                    else self._route(begun.request))
        except _Refused as refused:
            self._remove_created(begun)
            return refused.answer

    def cost(self, request: messages.PlacementRequest) -> tuple[bool, int]:
        # The guard of the store is a consumer, too.
        further = len(request.body or ()) - 2
        return (request.method != 'GET',
                max(further, 0) if Begun(request).is_claim else 0)

    def is_conflict(self, request: Any, answer: Answer) -> bool:
        return answer.status == 409

    def _remove_created(self, begun: Begun) -> None:
        for consumer, made in begun.created.items():
            if self.consumers.get(consumer) is made:
                del self.consumers[consumer]

    # Allocations.

    def _begin(self, begun: Begun) -> None:
        body = begun.request.body or {}
        # 1. Make the consumers that are to be new.
        for consumer, value in body.items():
            if not _TYPE.fullmatch(value['consumer_type']):
                raise _Refused(400, 'JSON does not validate')
            present = self.consumers.get(consumer)
            expected = None if present is None else present.generation
            if value['consumer_generation'] != expected:
                raise _conflict(
                    'consumer generation conflict - expected '
                    f'{"null" if expected is None else expected} but got '
                    f'{value["consumer_generation"]}')
            if present is None:
                present = self.consumers[consumer] = _Consumer()
                begun.created[consumer] = present
            begun.consumers[consumer] = present, present.generation
        # 2. Read the generations of the providers.
        for consumer, value in body.items():
            for provider, taken in value['allocations'].items():
                if provider not in self.providers:
                    # The consumers that it made stay.
                    raise _Refused(400, (
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

    def _write(self, begun: Begun) -> Answer:
        # All attempts are one transaction.
        rows = self._with_requested(begun, self.rows)
        counted = {provider: self.providers[provider].generation
                   for provider in begun.providers}
        for _ in range(_ATTEMPTS):
            # Providers are counted up in turn, up to one that changed.
            for provider, generation in begun.providers.items():
                if counted[provider] != generation:
                    break
                counted[provider] += 1
            else:
                self._commit(begun, rows, counted)
                return Answer(204)
            begun.providers = {
                provider: self.providers[provider].generation
                for provider in begun.providers}
            rows = self._attempt(begun, rows)
        raise _conflict('Inventory and/or allocations changed while '
                        'attempting to allocate')

    def _attempt(self, begun: Begun, rows: _Rows) -> _Rows:
        """Return the allocations with the new ones, if they fit."""
        unknown = {name for _, _, name, _ in begun.requested} - self.classes
        if unknown:
            raise _Refused(400, (
                f'Unable to allocate inventory No such resource class '
                f'{min(unknown)}.'))
        before = _sums(rows)
        rest = _sums(self._other_rows(begun, rows))
        more: dict[tuple[str, str], int] = {}
        for _, provider, name, amount in begun.requested:
            if not amount:
                continue
            where = provider, name
            more[where] = more.get(where, 0) + amount
            has = self.providers[provider].inventories.get(name)
            if has is None:
                raise _Refused(409, (
                    f"Unable to allocate inventory: Inventory for '{name}' "
                    f"on resource provider '{provider}' invalid."))
            total = rest.get(where, 0) + more[where]
            if not _is_possible(has, amount) or (
                    total > _room(has) and total > before.get(where, -1)):
                raise _Refused(409, (
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

    def _commit(
        self, begun: Begun, rows: _Rows, counted: Mapping[str, int]
    ) -> None:
        consumers = {consumer for consumer, *_ in begun.requested}
        for consumer in consumers:
            seen, generation = begun.consumers[consumer]
            if (self.consumers.get(consumer) is not seen
                    or seen.generation != generation):
                raise _conflict('Inventory and/or allocations changed while '
                                'attempting to allocate: consumer')
        self.rows = rows
        for provider, generation in counted.items():
            self.providers[provider].generation = generation
        body = begun.request.body or {}
        for consumer in consumers:
            present, value = self.consumers[consumer], body[consumer]
            present.generation += 1
            present.owner = (
                value['project_id'], value['user_id'], value['consumer_type'])
            if not value['allocations']:
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
        body = request.body or {}
        path, _, query = request.path.partition('?')
        match request.method, *path.strip('/').split('/'):
            case 'GET', '':
                return Answer(200, {'versions': [{
                    'id': 'v1.0', 'min_version': '1.0',
                    'max_version': '1.39'}]})
            case 'GET', 'allocations', consumer:
                return self._allocations(consumer)
            case 'GET', 'resource_classes':
                return Answer(200, {'resource_classes': [
                    {'name': name} for name in sorted(self.classes)]})
            case 'PUT', 'resource_classes', name:
                if not name.startswith('CUSTOM_'):
                    raise _Refused(400, 'JSON does not validate')
                return self._add(self.classes, name)
            case 'PUT', 'traits', name:
                return self._add(self.traits, name)
            case 'POST', 'resource_providers':
                if body['uuid'] in self.providers or any(
                        each.name == body['name']
                        for each in self.providers.values()):
                    raise _Refused(
                        409, 'Conflicting provider', 'duplicate_name')
                self.providers[body['uuid']] = ModelProvider(body['name'])
                return self._report(body['uuid'])
            case 'GET', 'resource_providers':
                return self._found(dict(parse.parse_qsl(query)))
            case method, 'resource_providers', uuid, *what:
                if uuid not in self.providers:
                    raise _Refused(404, 'No resource provider')
                return (self._report(uuid, *what) if method == 'GET'
                        else self._set(uuid, body, *what))
        raise NotImplementedError(request.path)

    def _report(self, uuid: str, what: str = '') -> Answer:
        """Return what is known of a provider."""
        has = self.providers[uuid]
        match what:
            case '':
                return Answer(200, self._listed(uuid))
            case 'traits':
                return has.answer(traits=sorted(has.traits))
            case 'inventories':
                return has.answer(inventories={
                    name: dict(value)
                    for name, value in has.inventories.items()})
            case 'usages':
                sums = _sums(self.rows)
                return has.answer(usages={
                    name: sums.get((uuid, name), 0)
                    for name in has.inventories})
        # The allocations, by consumer.
        found: dict[str, Any] = {}
        for (consumer, provider, name), amount in self.rows.items():
            if provider == uuid and consumer in self.consumers:
                found.setdefault(consumer, {
                    'consumer_generation': self.consumers[consumer].generation,
                    'resources': {}})['resources'][name] = amount
        return has.answer(allocations=found)

    def _set(
        self, uuid: str, body: Mapping[str, Any], what: str = ''
    ) -> Answer:
        """Change a provider, and return what is known of it then."""
        has = self.providers[uuid]
        if not what:
            parent = body['parent_provider_uuid']
            if parent is not None and parent not in self.providers:
                raise _Refused(400, 'No such parent')
            has.parent = parent
            return self._report(uuid)
        if body['resource_provider_generation'] != has.generation:
            raise _conflict('resource provider generation conflict')
        if what == 'traits':
            if not self.traits.issuperset(body['traits']):
                raise _Refused(400, 'No such trait')
            has.traits = frozenset(body['traits'])
        else:
            given = body['inventories']
            if not self.classes.issuperset(given):
                raise _Refused(400, 'Unknown resource class')
            held = {name for _, provider, name in self.rows
                    if provider == uuid}
            if any(name in held and name not in given
                   for name in has.inventories):
                raise _Refused(409, 'inventory in use', 'inventory.inuse')
            has.inventories = {
                name: {**_DEFAULTS, **value} for name, value in given.items()}
        has.generation += 1
        return self._report(uuid, what)

    def _found(self, query: Mapping[str, str]) -> Answer:
        """Return the providers that have a resource or a trait."""
        name, _, amount = query.get('resources', '').partition(':')
        trait = query.get('required')
        if name and name not in self.classes or (
                trait and trait not in self.traits):
            raise _Refused(400, 'No such class or trait')
        sums = _sums(self.rows)
        return Answer(200, {'resource_providers': [
            self._listed(uuid) for uuid, has in self.providers.items()
            if (not trait or trait in has.traits) and (
                not name or has.gives(
                    name, int(amount), sums.get((uuid, name), 0)))]})

    def _listed(self, uuid: str) -> dict[str, Any]:
        has = self.providers[uuid]
        root, parent = uuid, has.parent
        while parent is not None:
            root, parent = parent, self.providers[parent].parent
        return {'uuid': uuid, 'name': has.name, 'generation': has.generation,
                'parent_provider_uuid': has.parent,
                'root_provider_uuid': root}

    def _add(self, names: set[str], name: str) -> Answer:
        """Add a resource class or a trait."""
        status = 204 if name in names else 201
        names.add(name)
        return Answer(status)
