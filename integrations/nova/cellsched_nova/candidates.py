# SPDX-License-Identifier: Apache-2.0
"""Offers of hosts: all of it there, or what Placement found possible."""

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
    """Everything is claimed of the host itself.

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
        """Return what to claim on a compute node."""
        return {'allocations': {uuid: {'resources': dict(self._resources)}},
                'mappings': {'': [uuid]}}

    def chosen(
        self, uuid: str, instance: str, request: Mapping[str, Any]
    ) -> None:
        """Learn that a compute node was claimed for an instance."""
        _consume(self._states.get(uuid), self._spec)


class AllocationCandidates:
    """The claims that Placement found possible.

    :param by_provider: allocation requests by each provider in them, in
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
        """Return what to claim on a compute node.

        Filters may have left some of its candidates out, or all.
        """
        state = self._states.get(uuid)
        left = (self._by_provider.get(uuid, ()) if state is None
                else state.allocation_candidates)
        return left[0] if left else None

    def chosen(
        self, uuid: str, instance: str, request: Mapping[str, Any]
    ) -> None:
        """Learn that a compute node was claimed for an instance.

        The conductor fills the request in by itself, from the selection.
        """
        for group in self._spec.requested_resources:
            group.provider_uuids = request['mappings'][group.requester_id]
        _consume(self._states.get(uuid), self._spec)


def find(
    context: Any, client: Any, host_manager: Any, spec: Any, fallback: bool,
    left_s: Callable[[], float] = lambda: 0.0,
) -> tuple[dict[str, list[Mapping[str, Any]]], frozenset[str]]:
    """Return the allocation candidates of a request, as Nova asks for them.

    Nova's own filters of requests are run before; they write the request.

    :param fallback: ask for virtual CPUs in place of pinned ones too, which
        hosts of an older configuration report
    :param left_s: returns for how many seconds a Placement is asked again that
        does not answer
    :returns: allocation requests by each provider in them, and the providers
    :raises nova.exception.NoValidHost: a filter found that there is none
    :raises cellsched_nova.placement.PlacementUnavailable: Placement does not
        answer, or takes the request for wrong
    """
    try:
        request_filter.process_reqspec(context, spec)
    except nova_exception.RequestFilterFailed as exc:
        raise nova_exception.NoValidHost(reason=exc.message) from exc
    found: list[Mapping[str, Any]] = []
    providers: set[str] = set()
    for translated in (True, False):
        wanted = utils.resources_from_request_spec(
            context, spec, host_manager, enable_pinning_translate=translated)
        said = _ask(context, client, wanted, left_s())
        found.extend(said['allocation_requests'])
        providers.update(said['provider_summaries'])
        if not (wanted.cpu_pinning_requested and fallback):
            break
    by_provider: dict[str, list[Mapping[str, Any]]] = {}
    for each in found:
        for uuid in each['allocations']:
            by_provider.setdefault(uuid, []).append(each)
    return by_provider, frozenset(providers)


def _ask(
    context: Any, client: Any, wanted: Any, patience_s: float
) -> Mapping[str, Any]:
    """Return what Placement says of candidates.

    Nova's client does not tell of an answer that never came.
    """
    reason = ''
    for _ in remote.attempts(clock.Clock(), random.Random(), patience_s):
        try:
            said: Mapping[str, Any] = placement.read(
                client, context,
                f'/allocation_candidates?{wanted.to_querystring()}')
        except placement.PlacementRefused:
            raise
        except placement.PlacementUnavailable as exc:
            reason = exc.kwargs['reason']
        else:
            return said
    raise placement.PlacementUnavailable(reason=reason)


def _consume(state: Any | None, spec: Any) -> None:
    """Have Nova's host state count what was taken, where there is one."""
    if state is not None:
        state.consume_from_request(spec)


VERSION = placement.CANDIDATES
