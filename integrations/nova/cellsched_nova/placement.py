# SPDX-License-Identifier: Apache-2.0
"""Readings of Placement, by what changed there."""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
from typing import Any

from cellsched import exception

#: Microversions: providers with their roots, and what allocation candidates
#: and claims are written in.
_TREES, CANDIDATES = '1.14', '1.36'

#: A provider with this trait gives to others of its aggregates.
_SHARES = 'MISC_SHARES_VIA_AGGREGATE'


class PlacementUnavailable(exception.CellschedException):
    """Placement does not answer, or not as it should."""

    msg_fmt = 'Placement cannot be read: %(reason)s'


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


NOTHING = ProviderFacts({}, {}, {}, {}, frozenset())


class ProviderReader:
    """Reads providers whose generation changed since they were read last.

    Every change of inventories, traits, aggregates or allocations changes it.

    :param client: Nova's report client
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._generations: dict[str, int] = {}
        # By provider that is no root of a host, the classes that it gives.
        self._others: dict[str, frozenset[str]] = {}

    @property
    def given_by_others(self) -> frozenset[str]:
        """Resource classes that child or sharing providers give."""
        return frozenset[str]().union(*self._others.values())

    def forget(self, providers: Iterable[str]) -> None:
        """Have these providers read anew with the next reading."""
        for uuid in providers:
            self._generations.pop(uuid, None)

    def changes(
        self, context: Any, nodes: Iterable[str]
    ) -> Iterator[tuple[str, ProviderFacts]]:
        """Yield the providers of compute nodes that changed.

        :param nodes: uuids of the compute nodes that there are
        :raises PlacementUnavailable: a part may have been yielded
        """
        nodes = frozenset(nodes)
        listed = {each['uuid']: each for each in self._get(
            context, '/resource_providers')['resource_providers']}
        for uuid in self._generations.keys() - listed.keys():
            del self._generations[uuid]
            self._others.pop(uuid, None)
            if uuid in nodes:
                yield uuid, NOTHING
        for uuid, said in listed.items():
            generation = said['generation']
            if self._generations.get(uuid) == generation:
                continue
            if uuid in nodes:
                self._others.pop(uuid, None)
                yield uuid, self._read(context, uuid)
            elif not self._read_other(context, uuid, said):
                # It may be of a host that is not known yet.
                continue
            self._generations[uuid] = generation

    def _read(self, context: Any, uuid: str) -> ProviderFacts:
        path = f'/resource_providers/{uuid}'
        inventories = self._get(
            context, f'{path}/inventories', {'inventories': {}})['inventories']
        used = self._get(context, f'{path}/usages', {'usages': {}})['usages']
        traits = self._get(context, f'{path}/traits', {'traits': []})['traits']
        return ProviderFacts(
            {name: int((each['total'] - each['reserved'])
                       * each['allocation_ratio'])
             for name, each in inventories.items()},
            used,
            {name: each['reserved'] for name, each in inventories.items()},
            {name: (each['min_unit'], each['max_unit'], each['step_size'])
             for name, each in inventories.items()},
            frozenset(traits))

    def _read_other(
        self, context: Any, uuid: str, said: Mapping[str, Any]
    ) -> bool:
        """Take over what a provider gives that is not the root of a host.

        :returns: whether it can be one of a host as it is
        """
        facts = self._read(context, uuid)
        is_child = said['root_provider_uuid'] != uuid
        if is_child or _SHARES in facts.traits:
            self._others[uuid] = frozenset(facts.capacity)
            return True
        self._others.pop(uuid, None)
        return False

    def _get(self, context: Any, path: str, missing: Any = None) -> Any:
        """Return what Placement says.

        :param missing: in place of that, where there is no such provider
        """
        answer = self._client.get(path, version=_TREES,
                                  global_request_id=context.global_id)
        if answer.status_code == 404 and missing is not None:
            return missing
        if answer.status_code != 200:
            raise PlacementUnavailable(
                reason=f'{path} was answered with {answer.status_code}')
        return answer.json()
