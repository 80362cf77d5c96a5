# SPDX-License-Identifier: Apache-2.0
"""Keep hosts whose aggregates accept the flavor, or match its extra specs."""

from cellsched.filters import base
from cellsched.filters import extra_specs_ops
from cellsched.hosts import metadata
from cellsched.hosts import view
from cellsched import objects

_SCOPE = 'aggregate_instance_extra_specs'


class AggregateInstanceExtraSpecsFilter(base.Filter):
    """Reject a host whose aggregates do not match the flavor's extra specs.

    Extra specs without a scope, and extra specs in the scope
    ``aggregate_instance_extra_specs:``, name a key of the aggregates'
    metadata. At least one value of the key in the host's aggregates must
    match; a host without the key is rejected. Metadata may have several
    comma-separated values. An extra spec may begin with an operator: ``=``,
    ``==``, ``!=``, ``>=`` and ``<=`` compare numbers; ``s==``, ``s!=``,
    ``s<``, ``s<=``, ``s>``, ``s>=``, ``<in>``, ``<all-in>`` and ``<or>``
    compare text.
    """

    reason = 'lacks an aggregate that matches the extra specs'
    reads = frozenset({
        'flavor.extra_specs.aggregate_instance_extra_specs:*',
        'flavor.extra_specs.unscoped'})
    run_filter_once_per_request = True

    def applies(self, request: objects.RequestSpec) -> bool:
        specs = request.flavor.get('extra_specs')
        return bool(specs) and any(_key(name) is not None for name in specs)

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask | None:
        return metadata.agree(hosts, [
            (key, _verdict(text, f'extra_specs.{name:.80}'))
            for name, text in request.flavor.extra_specs.items()
            if (key := _key(name)) is not None])


class AggregateTypeAffinityFilter(base.Filter):
    """Reject a host whose aggregates are for other flavors.

    The metadata key ``instance_type`` contains comma-separated flavor names.
    A host accepts the flavors that its aggregates name. If none of its
    aggregates has the key, it accepts all flavors.
    """

    reason = 'is kept for other flavors'
    run_filter_once_per_request = True

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask | None:
        flavor = request.flavor.get('name')
        return metadata.agree(hosts, [
            ('instance_type', lambda names: not names or flavor in names)])


def _verdict(text: str, field: str) -> metadata.Verdict:
    matches = extra_specs_ops.matcher(text, field)
    return lambda values: any(map(matches, values))


def _key(name: str) -> str | None:
    """Return the metadata key that an extra spec names, if any."""
    scope, colon, key = name.partition(':')
    if not colon:
        return name
    return key if scope == _SCOPE else None
