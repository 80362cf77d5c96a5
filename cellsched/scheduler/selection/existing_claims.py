# SPDX-License-Identifier: Apache-2.0
"""Requests for instances that hold something already.

Such a request is either one that came before, whose answer was lost, or it is
to move the instance. One that is moved keeps what it holds where it is until
that host says that it has gone, so what it gets meanwhile is claimed in
another name.
"""

import collections
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

import numpy as np

from cellsched.claims import base as claims_base
from cellsched.filters import retry
from cellsched.hosts import view
from cellsched import migrations
from cellsched import objects
from cellsched.scheduler.decision import destinations

_TRIED = retry.RetryFilter(options=None)

#: What a caller says of hosts, and not what a filter thinks of them.
_WISHES = (destinations.RequestedCell(), destinations.RequestedHost(),
           destinations.ForcedHost(), destinations.IgnoredHost(), _TRIED)

Held = Mapping[str, Sequence[claims_base.Claim]]


@dataclasses.dataclass(frozen=True)
class InstanceLocations:
    """The places of instances.

    :param nodes: compute node uuids, of the request's own instances and of
        others
    :param kept: those of its own that have what is asked for, and keep it
    :param consumers: the names in which those of its own claim that hold
        something else
    :param stale: the claims of builds that failed, by the names that hold
        them, to be given back with the answer
    :param claims: what those that keep it hold
    """

    nodes: Mapping[str, str]
    kept: Mapping[str, str]
    consumers: Mapping[str, str]
    stale: Held = dataclasses.field(default_factory=dict)
    claims: Held = dataclasses.field(default_factory=dict)


NO_LOCATIONS = InstanceLocations({}, {}, {})


def has_tried(request: objects.RequestSpec) -> bool:
    """Return whether a build was tried already, and failed."""
    return _TRIED.applies(request)


def locate(
    hosts: view.Hosts, request: objects.RequestSpec,
    instances: Sequence[str], held: Held,
    reported: Mapping[str, str] | None = None,
) -> InstanceLocations:
    """Tell instances that have what is asked for from those to be moved.

    :param instances: the request's own
    :param held: what they hold in all their names, and what others hold
    :param reported: nodes of instances, as their hosts reported them
    """
    stale = _stale(hosts, request, instances, held, reported or {})
    held = {name: claims for name, claims in held.items()
            if name not in stale}
    nodes = {name: node_of(hosts, claims) for name, claims in held.items()}
    kept, consumers, kept_claims = {}, {}, {}
    for instance in instances:
        other = migrations.consumer(instance)
        for name in (instance, other):
            if name in held and _suits(hosts, request, held[name]):
                nodes[instance] = kept[instance] = nodes[name]
                kept_claims[instance] = held[name]
                break
        else:
            if instance in held:
                consumers[instance] = other
                # Where it is to leave binds neither it nor others.
                del nodes[instance]
    return InstanceLocations(nodes, kept, consumers, stale, kept_claims)


def _stale(
    hosts: view.Hosts, request: objects.RequestSpec,
    instances: Sequence[str], held: Held, reported: Mapping[str, str],
) -> Held:
    """Return what is held where the request's own builds failed.

    A server that is on such a host, and failed to get another size there,
    holds what it has.
    """
    if not has_tried(request):
        return {}
    wanted = totals(request)
    found = {}
    for instance in instances:
        for name in (instance, migrations.consumer(instance)):
            claims = held.get(name)
            if not claims or _sums(claims) != wanted:
                continue
            node, row = node_of(hosts, claims), row_of(hosts, claims)
            if (row is not None and reported.get(name) != node
                    and not _TRIED.keep(
                        hosts.at(np.array([row])), request)[0]):
                found[name] = claims
    return found


def _suits(
    hosts: view.Hosts, request: objects.RequestSpec,
    claims: Sequence[claims_base.Claim],
) -> bool:
    """Return whether what is held is what the request asks for."""
    row = row_of(hosts, claims)
    if row is None:
        # Of a host that is not known here nobody can say that it is not.
        return True
    if _sums(claims) != totals(request):
        return False
    return all(
        wish.keep(hosts.at(np.array([row])), request)[0]
        for wish in _WISHES if wish.applies(request))


def held_on(hosts: view.Hosts, host: str, held: Held) -> list[str]:
    """Return the names under which something is held on a host."""
    rows = {*hosts.named(host)}
    return [name for name, claims in held.items()
            if row_of(hosts, claims) in rows]


def row_of(
    hosts: view.Hosts, claims: Sequence[claims_base.Claim]
) -> int | None:
    """Return the row of the host whose providers claims are on.

    None stands for none that is known here.
    """
    for each in claims:
        row = hosts.row_of_provider(each.provider)
        if row is not None:
            return row
    return None


def node_of(
    hosts: view.Hosts, claims: Sequence[claims_base.Claim]
) -> str:
    """Return the node whose providers claims are on.

    Of one that is not known here it is one of the providers.
    """
    row = row_of(hosts, claims)
    uuid: str = (claims[0].provider if row is None
                 else hosts.whole['uuid'][row])
    return uuid


def totals(request: objects.RequestSpec) -> dict[str, int]:
    """Return what a server takes of all providers, by resource class."""
    return _added([request.resources(), *(
        dict(group.resources) for group in request.group_demand().groups)])


def _sums(claims: Sequence[claims_base.Claim]) -> dict[str, int]:
    return _added([each.resources for each in claims])


def _added(amounts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found = collections.Counter[str]()
    for each in amounts:
        found.update(each)
    return dict(found)
