# SPDX-License-Identifier: Apache-2.0
"""Stages for Nova's request filters, which Placement applies in Nova.

They run before all filters, for forced requests, too. Options of
``[scheduler]`` enable most of them.
"""

from collections.abc import Iterable
from typing import Any

from cellsched.filters import availability_zone
from cellsched.filters import base
from cellsched.hosts import aggregate
from cellsched.hosts import view
from cellsched import objects
from cellsched.scheduler.decision import required_traits

#: Prefix of the metadata keys that name projects allowed on an aggregate.
TENANT_KEY = 'filter_tenant_id'


class _Stage(base.Filter):
    """A stage of the driver, with the options of ``[scheduler]``."""

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
    """Reject hosts outside of the aggregates of the request's project.

    A project without an aggregate may use all hosts, or none if
    ``placement_aggregate_required_for_tenants`` is set.
    """

    reason = "is outside of the project's aggregates"

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._enabled: bool = options.limit_tenants_to_placement_aggregate

    def applies(self, request: objects.RequestSpec) -> bool:
        return self._enabled

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask | None:
        project = request.get('project_id')

        def passes(aggregates: Iterable[aggregate.HostAggregate]) -> bool:
            return any(key.startswith(TENANT_KEY) and value == project
                       for each in aggregates
                       for key, value in each.metadata.items())
        everywhere = hosts.whole.each('aggregates', passes)
        if not (everywhere.any()
                or self.options.placement_aggregate_required_for_tenants):
            return None
        return everywhere if hosts.is_whole else everywhere[hosts.rows]


class IsolatedAggregate(_Stage):
    """Reject hosts of aggregates that require traits of a request.

    An aggregate with ``trait:NAME=required`` in its metadata accepts only
    requests that require all of these traits by name. The traits of a
    requested TPM count as named.
    """

    reason = 'is kept for servers that need its traits'

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._enabled: bool = options.enable_isolated_aggregate_filtering

    def applies(self, request: objects.RequestSpec) -> bool:
        return self._enabled

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        requested = (required_traits.named(request)
                     | required_traits.tpm(request))

        trait = required_traits.TRAIT

        def passes(aggregates: Iterable[aggregate.HostAggregate]) -> bool:
            return all(
                key.removeprefix(trait) in requested for each in aggregates
                for key, value in each.metadata.items()
                if key.startswith(trait) and value == 'required')
        return hosts.each('aggregates', passes)


def _some_disabled(hosts: view.Hosts) -> bool:
    return bool(hosts['service_disabled'].any())


def stages(options: Any) -> list[base.Filter]:
    """Return the stages in order.

    :param options: the options of ``[scheduler]``
    """
    kinds: tuple[type[base.Filter], ...] = (
        availability_zone.AvailabilityZoneFilter, TenantAggregate,
        IsolatedAggregate, DisabledCompute, required_traits.Traits,
        required_traits.ImageTypeSupport, required_traits.ImageMetadata,
        required_traits.PackedVirtqueue, required_traits.EphemeralEncryption,
        required_traits.VirtioSound, required_traits.VTPM)
    return [kind(options) for kind in kinds]
