# SPDX-License-Identifier: Apache-2.0
"""The possible claims on hosts, with or without Placement's candidates."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import random
from typing import Any

from nova import exception as nova_exception
from nova.scheduler import request_filter
from nova.scheduler import utils

from cellsched.claims import remote
from cellsched import clock
from cellsched_nova import placement
from cellsched_nova import rows


class WholeHosts:
    """Claims all resources from the host itself.

    :param resources: amounts by resource class
    """

    def __init__(
        self, resources: Mapping[str, int], spec: Any,
        states: rows.HostStates,
    ) -> None:
        self._resources = resources
        self._spec = spec
        self._states = states

    def first(self, uuid: str) -> Mapping[str, Any]:
        """Return the claim on a compute node."""
        return {'allocations': {uuid: {'resources': dict(self._resources)}},
                'mappings': {'': [uuid]}}

    def chosen(
        self, uuid: str, instance: str, request: Mapping[str, Any]
    ) -> None:
        """Count a claim of a compute node for an instance."""
        _consume(self._states.get(uuid), self._spec)


class AllocationCandidates:
    """Claims the allocation candidates of Placement.

    :param by_provider: allocation requests by each of their providers, in
        Placement's order
    """

    def __init__(
        self, by_provider: Mapping[str, Sequence[Mapping[str, Any]]],
        spec: Any, states: rows.HostStates,
    ) -> None:
        self._by_provider = by_provider
        self._spec = spec
        self._states = states

    def first(self, uuid: str) -> Mapping[str, Any] | None:
        """Return the first candidate that the filters left, or None."""
        state = self._states.get(uuid)
        remaining = (self._by_provider.get(uuid, ()) if state is None
                     else state.allocation_candidates)
        return remaining[0] if remaining else None

    def chosen(
        self, uuid: str, instance: str, request: Mapping[str, Any]
    ) -> None:
        """Count a claim of a compute node for an instance.

        The conductor does not use these providers: it reads the selection.
        """
        for group in self._spec.requested_resources:
            group.provider_uuids = request['mappings'][group.requester_id]
        _consume(self._states.get(uuid), self._spec)


def find(
    context: Any, client: Any, host_manager: Any, spec: Any, fallback: bool,
    remaining_s: Callable[[], float] = lambda: 0.0,
) -> tuple[dict[str, list[Mapping[str, Any]]], frozenset[str]]:
    """Return the allocation candidates of a request, requested as in Nova.

    Nova's request filters run before and modify the request.

    :param fallback: request virtual CPUs in place of pinned CPUs too, which
        hosts with an older configuration report
    :param remaining_s: returns the seconds that remain for retries
    :returns: allocation requests by each of their providers, and all providers
    :raises nova.exception.NoValidHost: a request filter found no host
    :raises cellsched_nova.placement.PlacementUnavailable: Placement does not
        answer, or rejects the request as invalid
    """
    try:
        request_filter.process_reqspec(context, spec)
    except nova_exception.RequestFilterFailed as exc:
        raise nova_exception.NoValidHost(reason=exc.message) from exc
    found: list[Mapping[str, Any]] = []
    providers: set[str] = set()
    for translated in (True, False):
        query = utils.resources_from_request_spec(
            context, spec, host_manager, enable_pinning_translate=translated)
        answer = _request(context, client, query, remaining_s())
        found.extend(answer['allocation_requests'])
        providers.update(answer['provider_summaries'])
        if not (query.cpu_pinning_requested and fallback):
            break
    by_provider: dict[str, list[Mapping[str, Any]]] = {}
    for each in found:
        for uuid in each['allocations']:
            by_provider.setdefault(uuid, []).append(each)
    return by_provider, frozenset(providers)


def _request(
    context: Any, client: Any, query: Any, timeout_s: float
) -> Mapping[str, Any]:
    """Return Placement's answer, with retries.

    Nova's own client does not report a missing answer.
    """
    reason = ''
    for _ in remote.attempts(clock.Clock(), random.Random(), timeout_s):
        try:
            answer: Mapping[str, Any] = placement.read(
                client, context,
                f'/allocation_candidates?{query.to_querystring()}')
        except placement.PlacementRefused:
            raise
        except placement.PlacementUnavailable as exc:
            reason = exc.kwargs['reason']
        else:
            return answer
    raise placement.PlacementUnavailable(reason=reason)


def _consume(state: Any | None, spec: Any) -> None:
    """Count a claim in Nova's host state, if it was read."""
    if state is not None:
        state.consume_from_request(spec)


VERSION = placement.CANDIDATES
