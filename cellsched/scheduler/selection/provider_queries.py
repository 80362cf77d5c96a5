# SPDX-License-Identifier: Apache-2.0
"""Queries of a claim store by which it finds the hosts of a request.

The answer has every host that the pipeline could choose, and may have others:
the pipeline decides exactly.
"""

from collections.abc import Iterable

from cellsched.claims import base as claims_base
from cellsched.claims import validation
from cellsched import objects
from cellsched.objects import request_groups
from cellsched.scheduler.decision import capacity
from cellsched.scheduler.decision.pipeline import Pipeline
from cellsched.scheduler.decision import required_traits


def query_of(
    pipeline: Pipeline, request: objects.RequestSpec,
    sharing: Iterable[claims_base.Usage] = (),
    shared_traits: Iterable[str] = (),
) -> claims_base.ProviderQuery | None:
    """Return what the providers of a host have to have for a request.

    A resource class, or a trait, that a sharing provider gives is not asked
    for: which hosts share it is not for the store to know.

    :param sharing: what is taken of sharing providers
    :param shared_traits: what these can do
    :returns: None where a host may have nothing of its own
    :raises cellsched.exception.InvalidField: the request makes no sense
    """
    demand = request.group_demand()
    wanted = _amounts(request, demand.groups)
    for usage in sharing:
        for resource in list(wanted):
            left = (usage.capacity.get(resource, 0)
                    - usage.used.get(resource, 0))
            if left >= min(wanted[resource]):
                del wanted[resource]
    if not wanted:
        return None
    required = set(pipeline.required_traits(request)).union(
        *(group.required for group in demand.groups))
    return claims_base.ProviderQuery(
        wanted, _known(required.difference(shared_traits)),
        _known(required_traits.forbidden(request)))


def _amounts(
    request: objects.RequestSpec,
    groups: Iterable[request_groups.RequestGroup],
) -> dict[str, set[int]]:
    """Return the amounts that one provider has to give, by their class."""
    whole = request.resources()
    capacity.check(whole)
    wanted = {resource: {amount} for resource, amount in whole.items()}
    for group in groups:
        for resource, amount in group.resources:
            wanted.setdefault(resource, set()).add(amount)
    return wanted


def _known(traits: Iterable[str]) -> frozenset[str]:
    # Of what can be no trait no host is rid here, and some later.
    return frozenset(filter(validation.is_trait, traits))
