# SPDX-License-Identifier: Apache-2.0
"""What Nova has Placement sort out before its filters run.

These stages come before all filters, and hold for forced requests too. Most
are switched on by options of ``[scheduler]``.
"""

from collections.abc import Iterable
from typing import Any

from cellsched import exception
from cellsched.filters import availability_zone
from cellsched.filters import base
from cellsched.hosts import aggregate
from cellsched.hosts import view
from cellsched import objects

#: Aggregates' keys that begin so name projects that may use their hosts.
TENANT_KEY = 'filter_tenant_id'

#: Of flavors, images and aggregates: what a host must be able to do.
TRAIT = 'trait:'

_IMAGE_TYPE = 'COMPUTE_IMAGE_TYPE_'


class _Stage(base.Filter):
    """Made by the driver, with the options of ``[scheduler]``."""

    run_filter_once_per_request = True


class DisabledCompute(_Stage):
    """Reject a host whose compute service an operator disabled."""

    reason = 'is disabled'

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask | None:
        some = hosts.memo('some are disabled', _some_disabled)
        return ~hosts['service_disabled'] if some else None


class TenantAggregate(_Stage):
    """Reject hosts outside of the aggregates that are kept for the project.

    A project that has no such aggregate may use all hosts, or none where
    ``placement_aggregate_required_for_tenants`` is set.
    """

    reason = "is outside of the project's aggregates"

    def applies(self, request: objects.RequestSpec) -> bool:
        return self.options.limit_tenants_to_placement_aggregate

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask | None:
        project = request.get('project_id')

        def passes(aggregates: Iterable[aggregate.Aggregate]) -> bool:
            return any(key.startswith(TENANT_KEY) and value == project
                       for each in aggregates
                       for key, value in each.metadata.items())
        everywhere = hosts.whole.each('aggregates', passes)
        if not (everywhere.any()
                or self.options.placement_aggregate_required_for_tenants):
            return None
        return everywhere if hosts.is_whole else everywhere[hosts.rows]


class IsolatedAggregate(_Stage):
    """Reject hosts of aggregates that are kept for what needs their traits.

    An aggregate is, whose metadata has ``trait:NAME`` as ``required``, for
    requests that require all of those.
    """

    reason = 'is kept for servers that need its traits'

    def applies(self, request: objects.RequestSpec) -> bool:
        return self.options.enable_isolated_aggregate_filtering

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        wanted = _traits(request, 'required')

        def passes(aggregates: Iterable[aggregate.Aggregate]) -> bool:
            return all(
                key.removeprefix(TRAIT) in wanted for each in aggregates
                for key, value in each.metadata.items()
                if key.startswith(TRAIT) and value == 'required')
        return hosts.each('aggregates', passes)


class Traits(_Stage):
    """Reject hosts that lack a trait, or that have a forbidden one.

    The flavor's extra specs and the image's properties name them:
    ``trait:NAME`` is ``required`` or ``forbidden``. With
    ``query_placement_for_image_type_support``, the image's disk format is a
    trait too.
    """

    reason = 'lacks a required trait'

    def applies(self, request: objects.RequestSpec) -> bool:
        return bool(self._required(request) or _traits(request, 'forbidden'))

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        required = self._required(request)
        forbidden = _traits(request, 'forbidden')
        return hosts.each('traits', lambda has: (
            required <= has and forbidden.isdisjoint(has)))

    def _required(self, request: objects.RequestSpec) -> set[str]:
        traits = _traits(request, 'required')
        image = request.get('image')
        if self.options.query_placement_for_image_type_support and image:
            disk_format = image.get('disk_format')
            if disk_format:
                traits.add(_IMAGE_TYPE + disk_format.upper())
        return traits


def _some_disabled(hosts: view.Hosts) -> bool:
    return bool(hosts['service_disabled'].any())


def stages(options: Any) -> list[base.Filter]:
    """Return the stages, in their order.

    :param options: those of ``[scheduler]``
    """
    kinds: tuple[type[base.Filter], ...] = (
        availability_zone.AvailabilityZoneFilter, TenantAggregate,
        IsolatedAggregate, DisabledCompute, Traits)
    return [kind(options) for kind in kinds]


def _traits(request: objects.RequestSpec, value: str) -> set[str]:
    """Return the traits for which the request says this value."""
    specs = request.flavor.get('extra_specs') or {}
    traits = {key.removeprefix(TRAIT) for key, said in specs.items()
              if key.startswith(TRAIT) and said == value}
    if value == 'required':
        traits.update(_of_image(request))
    return traits


def _of_image(request: objects.RequestSpec) -> list[str]:
    """Return the traits that the image requires.

    :raises cellsched.exception.InvalidField: they are no list of texts
    """
    said = request.image_property('traits_required') or []
    if not isinstance(said, (list, tuple)) or not all(
            isinstance(trait, str) for trait in said):
        raise exception.InvalidField(
            where='request', field='image.properties.traits_required',
            expected='a list of names of traits')
    return list(said)
