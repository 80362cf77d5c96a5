# SPDX-License-Identifier: Apache-2.0
"""Incremental reads of resource providers from Placement."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
from concurrent import futures
import contextlib
import contextvars
import dataclasses
import functools
import itertools
import json
import math
import threading
import time
from typing import Any
from typing import NamedTuple
from typing import TypeVar
import urllib.parse

from keystoneauth1 import exceptions as ks_exceptions

from cellsched.claims.placement import messages
from cellsched import exception
from cellsched import plugins

#: Microversions: the first that shows root providers, and that of allocation
#: candidates and claims.
_TREES, CANDIDATES = '1.14', '1.36'

#: A generation that no provider has.
_NONE = -1

#: Fewer providers than this are read in sequence, and more in some threads.
_FEW, _THREADS = 8, 2

#: If at least ``_MANY`` providers changed, a summary of all is read first.
#: Later reads add the missing fields, ``_AT_ONCE`` providers at a time.
_MANY, _AT_ONCE = 200, 20

#: Seconds after which inventories and traits of a changed provider are read
#: again. Until then only its usage is, unless a request would be refused.
_WHOLE_S = 60.0

#: A provider with this trait shares resources in its aggregates.
_SHARES = 'MISC_SHARES_VIA_AGGREGATE'

#: Statuses of a busy server, which may accept the same request later.
_BUSY = frozenset({408, 409, 425, 429})

#: Placement's inventory records by resource class.
_Inventories = Mapping[str, Mapping[str, Any]]

_T = TypeVar('_T')


class PlacementUnavailable(exception.CellschedException):
    """Placement does not answer, or its answer is invalid."""

    msg_fmt = 'Placement cannot be read: %(reason)s'


class PlacementRefused(PlacementUnavailable):
    """Placement rejects a request as invalid; a retry is useless."""


@dataclasses.dataclass(frozen=True)
class ProviderFacts:
    """The facts of one resource provider.

    :param capacity: total that can be claimed, by resource class
    :param used: claimed amounts
    :param reserved: reserved amounts
    :param units: minimum, maximum and step size of a claim
    """

    capacity: Mapping[str, int]
    used: Mapping[str, int]
    reserved: Mapping[str, int]
    units: Mapping[str, tuple[int, int, int]]
    traits: frozenset[str]


@dataclasses.dataclass(frozen=True)
class _Known:
    """The last read of a provider.

    :param generation: its generation before the read
    :param is_host: whether it was the root provider of a known host
    :param whole_at: monotonic time of the last read of inventories and traits
    :param is_whole: whether they were read with this generation
    """

    generation: int
    facts: ProviderFacts
    is_host: bool
    whole_at: float
    is_whole: bool = True

    @property
    def is_recent(self) -> bool:
        return time.monotonic() - self.whole_at < _WHOLE_S


class _ListEntry(NamedTuple):
    """A provider in the list of all.

    :param root: uuid of its root provider
    """

    generation: int
    root: str


NOTHING = ProviderFacts({}, {}, {}, {}, frozenset())


class ProviderReader:
    """Reads the providers with a generation newer than the last read.

    Each change of inventories, traits or aggregates increases the generation,
    and so does each write of allocations. A deletion of allocations does not,
    and Nova releases a server by a deletion; see :meth:`with_capacity`.

    :param client: Nova's report client
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._known: dict[str, _Known] = {}
        # Providers to read again, with any generation.
        self._outdated: set[str] = set()
        # Providers of which the usage is to be read again.
        self._uncounted: set[str] = set()
        # Providers with unknown bounds.
        self._partial: set[str] = set()
        self._is_reading = False
        self._lock = threading.Lock()
        # The resource classes of each provider that is not a host's root.
        self._other_classes: dict[str, frozenset[str]] = {}

    @property
    def non_host_classes(self) -> frozenset[str]:
        """Resource classes of child and sharing providers."""
        return frozenset[str]().union(*self._other_classes.values())

    def forget(self, providers: Iterable[str]) -> None:
        """Read these providers again with the next read."""
        for uuid in providers:
            self._outdated.add(uuid)

    def recount(self, providers: Iterable[str]) -> None:
        """Read at least the usage of these providers with the next read."""
        for uuid in providers:
            self._uncounted.add(uuid)

    def claimed(self, uuid: str, resources: Mapping[str, int]) -> None:
        """Count a claim of this process, which then needs no read.

        Each write of allocations increases the generation by one. After writes
        of other processes the generation differs, and the provider is read.
        """
        with self._lock:
            if self._is_reading:
                # The current read may or may not include the claim.
                self._uncounted.add(uuid)
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

    def with_capacity(
        self, context: Any, resources: Mapping[str, int], limit: int
    ) -> dict[str, dict[str, int]]:
        """Return the current usage of the providers with enough capacity.

        Blocks for one request for allocation candidates.

        :param resources: required amounts by resource class
        :param limit: maximum number of candidates
        :returns: used amounts by resource class, for each provider
        :raises PlacementUnavailable: Placement does not answer
        """
        if not resources:
            return {}
        summaries = self._get(
            context, '/allocation_candidates?' + urllib.parse.urlencode({
                'resources': ','.join(f'{name}:{amount}' for name, amount
                                      in sorted(resources.items())),
                'limit': limit}), version=CANDIDATES)['provider_summaries']
        return {uuid: {name: each['used'] for name, each
                       in summary['resources'].items()}
                for uuid, summary in summaries.items()}

    def with_lower_usage(
        self, taken: Mapping[str, Mapping[str, int]]
    ) -> list[str]:
        """Return the providers that may have less usage than recorded.

        Providers that must be read again are included.

        :param taken: usage as returned by :meth:`with_capacity`
        """
        with self._lock:
            outdated = self._outdated | self._uncounted
        return [uuid for uuid, amounts in taken.items()
                if (known := self.facts(uuid)) is not None
                and (uuid in outdated or any(
                    amount < known.used.get(name, 0)
                    for name, amount in amounts.items()))]

    def facts(self, uuid: str) -> ProviderFacts | None:
        """Return the facts of a provider, or None if it is unknown."""
        known = self._known.get(uuid)
        return None if known is None else known.facts

    def changes(
        self, context: Any, nodes: Iterable[str], whole: bool = True
    ) -> Iterator[tuple[str, ProviderFacts]]:
        """Yield the changed providers of compute nodes.

        :param nodes: uuids of all compute nodes
        :param whole: False if inventories and traits may be older by some
            seconds. Most changes of a provider are claims
        :raises PlacementUnavailable: some changes may have been yielded before
        """
        with self._reading():
            yield from self._changes(context, frozenset(nodes), whole)

    def outdated(
        self, context: Any
    ) -> Iterator[tuple[str, ProviderFacts]]:
        """Yield the compute nodes that must be read again, and no others.

        :raises PlacementUnavailable: some may have been yielded before
        """
        with self._reading() as uuids:
            for uuid in uuids:
                known = self._known[uuid]
                if not known.is_host:
                    # The next read of all changes reads it.
                    continue
                is_recent = known.is_recent
                generation, facts = self._read(
                    context, {uuid: known} if is_recent else {}, uuid)
                yield uuid, facts
                self._known[uuid] = dataclasses.replace(
                    known, generation=generation, facts=facts,
                    whole_at=known.whole_at if is_recent else time.monotonic(),
                    is_whole=not is_recent)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[list[str]]:
        """Yield the providers that must be read again, with any generation."""
        with self._lock:
            self._is_reading = True
            whole = self._outdated & self._known.keys()
            uuids = whole | self._uncounted & self._known.keys()
            for uuid in uuids:
                known = self._known[uuid]
                self._known[uuid] = dataclasses.replace(
                    known, generation=_NONE, whole_at=(
                        -math.inf if uuid in whole else known.whole_at))
            self._outdated.clear()
            self._uncounted.clear()
        try:
            yield sorted(uuids)
        finally:
            with self._lock:
                self._is_reading = False

    def _changes(
        self, context: Any, nodes: frozenset[str], whole: bool
    ) -> Iterator[tuple[str, ProviderFacts]]:
        # 1. List all providers with their generations, and drop the deleted.
        listed = read(self._client, context, '/resource_providers',
                      version=_TREES, parse=_listed)
        for uuid in set(self._known) - listed.keys():
            del self._known[uuid]
            self._other_classes.pop(uuid, None)
            if uuid in nodes:
                yield uuid, NOTHING
        # 2. Find the changed providers. If there are many, a summary replaces
        #    most of the requests; the missing fields follow later.
        changed = [
            uuid for uuid, each in listed.items()
            if (known := self._known.get(uuid)) is None
            or known.generation != each.generation
            or known.is_host != (uuid in nodes)
            or not (known.is_whole or known.is_recent and not whole)]
        counted = {uuid: known for uuid in changed
                   if (known := self._known.get(uuid)) is not None
                   and known.is_recent and not whole
                   and known.is_host == (uuid in nodes)}
        summaries = (self._summaries(context) if len(changed) >= _MANY else {})
        self._partial.difference_update(changed)
        self._partial.update(uuid for uuid in changed if uuid in summaries)
        # 3. Yield the facts of hosts, and keep the classes of the providers
        #    that are not the root of a host.
        for uuid, (generation, facts) in itertools.chain(
                ((uuid, (_NONE, summaries[uuid])) for uuid in changed
                 if uuid in summaries),
                self._read_all(
                    functools.partial(self._read, context, counted), [
                        uuid for uuid in changed if uuid not in summaries]),
                self._completed(context, listed.keys() - set(changed))):
            provider = listed[uuid]
            self._other_classes.pop(uuid, None)
            is_host = uuid in nodes
            if is_host:
                yield uuid, facts
            elif provider.root != uuid or _SHARES in facts.traits:
                self._other_classes[uuid] = frozenset(facts.capacity)
            is_whole = uuid in summaries or uuid not in counted
            self._known[uuid] = _Known(
                max(provider.generation, generation), facts, is_host,
                time.monotonic() if is_whole else counted[uuid].whole_at,
                is_whole)

    def _summaries(self, context: Any) -> dict[str, ProviderFacts]:
        """Return the summaries of all providers with free VCPUs.

        Bounds and reserved amounts are missing.
        """
        found = self._get(context, '/allocation_candidates?resources=VCPU:1',
                          version=CANDIDATES)['provider_summaries']
        return {uuid: ProviderFacts(
            {name: each['capacity']
             for name, each in summary['resources'].items()},
            {name: each['used']
             for name, each in summary['resources'].items()},
            {}, {}, frozenset(summary['traits']))
            for uuid, summary in found.items()}

    def _completed(
        self, context: Any, among: Set[str]
    ) -> Iterator[tuple[str, tuple[int, ProviderFacts]]]:
        """Yield some providers with the fields that a summary lacks.

        Their generation is unchanged, and so are usage and traits.
        """
        uuids = list(itertools.islice(self._partial & among, _AT_ONCE))
        for uuid, inventories in self._read_all(
                functools.partial(self._inventories, context), uuids):
            self._partial.discard(uuid)
            known = self._known[uuid].facts
            yield uuid, (_NONE, _facts(
                inventories, known.used, known.traits))

    def _read_all(
        self, read: Callable[[str], _T], uuids: Sequence[str]
    ) -> Iterator[tuple[str, _T]]:
        """Read providers in parallel; yield each with its result."""
        if len(uuids) < _FEW:
            for uuid in uuids:
                yield uuid, read(uuid)
            return
        with futures.ThreadPoolExecutor(_THREADS) as executor:
            # The deadline of the request holds in these threads, too.
            yield from zip(uuids, executor.map(
                lambda context, uuid: context.run(read, uuid),
                [contextvars.copy_context() for _ in uuids], uuids))

    def _read(
        self, context: Any, counted: Mapping[str, _Known], uuid: str
    ) -> tuple[int, ProviderFacts]:
        """Return the generation before the read, and facts of a provider.

        :param counted: the providers of which only the usage is read
        """
        found = self._get(
            context, f'/resource_providers/{uuid}/usages', {
                'resource_provider_generation': _NONE, 'usages': {}})
        generation, used = (
            found['resource_provider_generation'], found['usages'])
        if uuid in counted:
            return generation, dataclasses.replace(
                counted[uuid].facts, used=used)
        inventories = self._inventories(context, uuid)
        return generation, _facts(
            inventories, used, self.read_traits(context, uuid))

    def read_traits(self, context: Any, uuid: str) -> frozenset[str]:
        """Return the traits that a provider has now.

        :raises PlacementUnavailable: Placement does not answer
        """
        return frozenset(self._get(
            context, f'/resource_providers/{uuid}/traits',
            {'traits': []})['traits'])

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
    parse: Callable[[Any], Any] = lambda answer: answer.json(),
) -> Any:
    """Return the JSON document of a GET request to Placement.

    :param client: Nova's report client
    :param missing: the result for status 404, if not None
    :param parse: returns the document of an answer
    :raises PlacementRefused: Placement rejects the request as invalid
    :raises PlacementUnavailable: there is no valid answer
    """
    where = path.partition('?')[0]
    try:
        answer = client.get(path, version=version,
                            global_request_id=context.global_id)
        if answer.status_code == 404 and missing is not None:
            return missing
        if answer.status_code == 200:
            return parse(answer)
    except ks_exceptions.ClientException as exc:
        kind = _kind(getattr(exc, 'http_status', 0))
        raise kind(reason=plugins.said_by(exc)) from exc
    except ValueError as exc:
        raise PlacementUnavailable(
            reason=f'the answer to {where} is not JSON') from exc
    kind = _kind(answer.status_code)
    raise kind(reason=f'{where} was answered with {answer.status_code}')


def _listed(answer: Any) -> dict[str, _ListEntry]:
    """Return all providers except guards, by uuid."""
    return {each['uuid']: _ListEntry(
        each['generation'], each['root_provider_uuid'])
        for each in _items(answer.text)
        if each['uuid'] not in messages.GUARDS}


def _items(text: str) -> Iterator[Any]:
    """Yield the items of the only list of a JSON document.

    No other thread runs during one call of the decoder, which takes a tenth of
    a second for a large list. So each item has a call of its own.
    """
    decode = json.JSONDecoder().raw_decode
    place = _gap_end(text, text.index('[') + 1)
    while not text.startswith(']', place):
        item, place = decode(text, place)
        yield item
        place = _gap_end(text, place)


def _gap_end(text: str, place: int) -> int:
    """Return the place of the next item, or of the end of the list."""
    while text[place:place + 1] in (' ', '\n', '\t', '\r', ','):
        place += 1
    return place


def _kind(status: int) -> type[PlacementUnavailable]:
    """Return the error for an HTTP status; 0 without an answer."""
    return (PlacementRefused if 400 <= status < 500 and status not in _BUSY
            else PlacementUnavailable)


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
