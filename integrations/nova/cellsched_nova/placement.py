# SPDX-License-Identifier: Apache-2.0
"""Readings of Placement, by what changed there."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
from concurrent import futures
import dataclasses
import functools
import itertools
import threading
from typing import Any
from typing import TypeVar
import urllib.parse

from keystoneauth1 import exceptions as ks_exceptions

from cellsched.claims.placement import messages
from cellsched import exception
from cellsched import plugins

#: Microversions: providers with their roots, and what allocation candidates
#: and claims are written in.
_TREES, CANDIDATES = '1.14', '1.36'

#: A generation that no provider has.
_NONE = -1

#: So many providers are read one after the other.
_FEW = 8

#: Where so many are to be read, a summary of all is read first, and the rest
#: of each with later readings, of so many at a time.
_MANY, _AT_ONCE = 200, 20

#: A provider with this trait gives to others of its aggregates.
_SHARES = 'MISC_SHARES_VIA_AGGREGATE'

#: By resource class, as Placement says it.
_Inventories = Mapping[str, Mapping[str, Any]]

_T = TypeVar('_T')


class PlacementUnavailable(exception.CellschedException):
    """Placement does not answer, or not as it should."""

    msg_fmt = 'Placement cannot be read: %(reason)s'


class PlacementRefused(PlacementUnavailable):
    """Placement takes a question for wrong; it would again."""


@dataclasses.dataclass(frozen=True)
class ProviderFacts:
    """The facts of one resource provider.

    :param capacity: what can be claimed of it in all, by resource class
    :param used: what is claimed
    :param reserved: what it keeps for itself
    :param units: the least, the most and the step of a claim
    """

    capacity: Mapping[str, int]
    used: Mapping[str, int]
    reserved: Mapping[str, int]
    units: Mapping[str, tuple[int, int, int]]
    traits: frozenset[str]


@dataclasses.dataclass(frozen=True)
class _Known:
    """A provider as it was read last.

    :param generation: the one that it had before it was read
    :param is_host: whether it was the root of a host that is known
    """

    generation: int
    facts: ProviderFacts
    is_host: bool


NOTHING = ProviderFacts({}, {}, {}, {}, frozenset())


class ProviderReader:
    """Reads providers whose generation changed since they were read last.

    Every change of inventories, traits or aggregates changes it, and so does
    every write of allocations. To delete them does not, and that is how Nova
    gives back what a server had; see :meth:`with_room`.

    :param client: Nova's report client
    :param threads: how many providers are read at a time, where many are
    """

    def __init__(self, client: Any, threads: int = 4) -> None:
        self._client = client
        self._threads = threads
        self._known: dict[str, _Known] = {}
        # What is to be read anew, whatever its generation.
        self._doubtful: set[str] = set()
        # Of which bounds are not known yet.
        self._partial: set[str] = set()
        self._is_reading = False
        self._lock = threading.Lock()
        # By provider that is no root of a host, the classes that it gives.
        self._others: dict[str, frozenset[str]] = {}

    @property
    def given_by_others(self) -> frozenset[str]:
        """Resource classes that child or sharing providers give."""
        return frozenset[str]().union(*self._others.values())

    def forget(self, providers: Iterable[str]) -> None:
        """Have these providers read anew with the next reading."""
        for uuid in providers:
            self._doubtful.add(uuid)

    def claimed(self, uuid: str, resources: Mapping[str, int]) -> None:
        """Learn of a claim that was taken here, and need not be read.

        Each write of allocations makes the generation one more. Where others
        wrote too, it is another one than is expected then, and is read.
        """
        with self._lock:
            if self._is_reading:
                # Nobody knows whether it is in what is read just now.
                self._doubtful.add(uuid)
                return
            known = self._known.get(uuid)
            if known is None:
                return
            used = dict(known.facts.used)
            for name, amount in resources.items():
                used[name] = used.get(name, 0) + amount
            self._known[uuid] = dataclasses.replace(
                known, generation=known.generation + 1,
                facts=dataclasses.replace(known.facts, used=used))

    def with_room(
        self, context: Any, resources: Mapping[str, int], limit: int
    ) -> dict[str, dict[str, int]]:
        """Return what is taken of providers that have room, as it is now.

        Blocks: Placement looks for candidates.

        :param resources: amounts by resource class, of which they have room
        :param limit: how many candidates are looked at
        :returns: amounts by resource class, for each provider
        :raises PlacementUnavailable: it cannot be told
        """
        if not resources:
            return {}
        said = self._get(
            context, '/allocation_candidates?' + urllib.parse.urlencode({
                'resources': ','.join(f'{name}:{amount}' for name, amount
                                      in sorted(resources.items())),
                'limit': limit}), version=CANDIDATES)['provider_summaries']
        return {uuid: {name: each['used'] for name, each
                       in summary['resources'].items()}
                for uuid, summary in said.items()}

    def overrated(self, taken: Mapping[str, Mapping[str, int]]) -> list[str]:
        """Return providers of which less may be taken than is known.

        Those are among them that are to be read anew in any case.

        :param taken: as :meth:`with_room` returns it
        """
        with self._lock:
            doubtful = frozenset(self._doubtful)
        return [uuid for uuid, amounts in taken.items()
                if (known := self.facts(uuid)) is not None
                and (uuid in doubtful or any(
                    amount < known.used.get(name, 0)
                    for name, amount in amounts.items()))]

    def facts(self, uuid: str) -> ProviderFacts | None:
        """Return what is known of a provider, if anything."""
        known = self._known.get(uuid)
        return None if known is None else known.facts

    def changes(
        self, context: Any, nodes: Iterable[str]
    ) -> Iterator[tuple[str, ProviderFacts]]:
        """Yield the providers of compute nodes that changed.

        :param nodes: uuids of the compute nodes that there are
        :raises PlacementUnavailable: a part may have been yielded
        """
        with self._lock:
            self._is_reading = True
            for uuid in self._doubtful & self._known.keys():
                self._known[uuid] = dataclasses.replace(
                    self._known[uuid], generation=_NONE)
            self._doubtful.clear()
        try:
            yield from self._changes(context, frozenset(nodes))
        finally:
            with self._lock:
                self._is_reading = False

    def _changes(
        self, context: Any, nodes: frozenset[str]
    ) -> Iterator[tuple[str, ProviderFacts]]:
        listed = {each['uuid']: each for each in self._get(
            context, '/resource_providers')['resource_providers']
            if each['uuid'] not in messages.GUARDS}
        for uuid in set(self._known) - listed.keys():
            del self._known[uuid]
            self._others.pop(uuid, None)
            if uuid in nodes:
                yield uuid, NOTHING
        changed = [
            uuid for uuid, said in listed.items() if uuid not in self._known
            or self._known[uuid].generation != said['generation']
            or self._known[uuid].is_host != (uuid in nodes)]
        summaries = (self._summaries(context)
                     if len(changed) >= _MANY else {})
        self._partial.difference_update(changed)
        self._partial.update(uuid for uuid in changed if uuid in summaries)
        for uuid, facts in itertools.chain(
                ((uuid, summaries[uuid]) for uuid in changed
                 if uuid in summaries),
                self._read_all(functools.partial(self._read, context), [
                    uuid for uuid in changed if uuid not in summaries]),
                self._completed(context, listed.keys() - set(changed))):
            said = listed[uuid]
            self._others.pop(uuid, None)
            is_host = uuid in nodes
            if is_host:
                yield uuid, facts
            elif said['root_provider_uuid'] != uuid or _SHARES in facts.traits:
                self._others[uuid] = frozenset(facts.capacity)
            self._known[uuid] = _Known(said['generation'], facts, is_host)

    def _summaries(self, context: Any) -> dict[str, ProviderFacts]:
        """Return what is known at once of all providers with room for any.

        Bounds and what is reserved are not among that.
        """
        said = self._get(context, '/allocation_candidates?resources=VCPU:1',
                         version=CANDIDATES)['provider_summaries']
        return {uuid: ProviderFacts(
            {name: each['capacity']
             for name, each in summary['resources'].items()},
            {name: each['used']
             for name, each in summary['resources'].items()},
            {}, {}, frozenset(summary['traits']))
            for uuid, summary in said.items()}

    def _completed(
        self, context: Any, among: Set[str]
    ) -> Iterator[tuple[str, ProviderFacts]]:
        """Yield some providers with what a summary did not say of them.

        Their generation is as it was, and so are usage and traits.
        """
        uuids = list(itertools.islice(self._partial & among, _AT_ONCE))
        for uuid, inventories in self._read_all(
                functools.partial(self._inventories, context), uuids):
            self._partial.discard(uuid)
            known = self._known[uuid].facts
            yield uuid, _facts(inventories, known.used, known.traits)

    def _read_all(
        self, read: Callable[[str], _T], uuids: Sequence[str]
    ) -> Iterator[tuple[str, _T]]:
        """Yield providers with what is read of each, several at a time."""
        if len(uuids) < _FEW:
            for uuid in uuids:
                yield uuid, read(uuid)
            return
        with futures.ThreadPoolExecutor(self._threads) as executor:
            yield from zip(uuids, executor.map(read, uuids))

    def _read(self, context: Any, uuid: str) -> ProviderFacts:
        path = f'/resource_providers/{uuid}'
        inventories = self._inventories(context, uuid)
        used = self._get(context, f'{path}/usages', {'usages': {}})['usages']
        traits = self._get(context, f'{path}/traits', {'traits': []})['traits']
        return _facts(inventories, used, frozenset(traits))

    def _inventories(self, context: Any, uuid: str) -> _Inventories:
        found: _Inventories = self._get(
            context, f'/resource_providers/{uuid}/inventories',
            {'inventories': {}})['inventories']
        return found

    def _get(
        self, context: Any, path: str, missing: Any = None,
        version: str = _TREES,
    ) -> Any:
        return read(self._client, context, path, missing, version)


def read(
    client: Any, context: Any, path: str, missing: Any = None,
    version: str = CANDIDATES,
) -> Any:
    """Return what Placement says.

    :param client: Nova's report client
    :param missing: in place of that, where there is no such provider
    :raises PlacementRefused: it takes the question for wrong
    :raises PlacementUnavailable: there is no answer, or none that is whole
    """
    where = path.partition('?')[0]
    try:
        answer = client.get(path, version=version,
                            global_request_id=context.global_id)
        if answer.status_code == 404 and missing is not None:
            return missing
        if answer.status_code == 200:
            return answer.json()
    except ks_exceptions.ClientException as exc:
        raise PlacementUnavailable(reason=plugins.said_by(exc)) from exc
    except ValueError as exc:
        raise PlacementUnavailable(
            reason=f'the answer to {where} is not JSON') from exc
    kind = (PlacementRefused if 400 <= answer.status_code < 500
            else PlacementUnavailable)
    raise kind(reason=f'{where} was answered with {answer.status_code}')


def _facts(
    inventories: _Inventories, used: Mapping[str, int],
    traits: frozenset[str],
) -> ProviderFacts:
    return ProviderFacts(
        {name: int((each['total'] - each['reserved'])
                   * each['allocation_ratio'])
         for name, each in inventories.items()},
        used,
        {name: each['reserved'] for name, each in inventories.items()},
        {name: (each['min_unit'], each['max_unit'], each['step_size'])
         for name, each in inventories.items()},
        traits)
