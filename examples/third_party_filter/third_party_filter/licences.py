# SPDX-License-Identifier: Apache-2.0
"""Servers with licensed software, written as for Nova's scheduler.

There, the bases are ``nova.scheduler.filters.BaseHostFilter`` and
``nova.scheduler.weights.BaseHostWeigher``; nothing else would differ.
"""

from cellsched.filters import rows as filters
from cellsched.weighers import rows as weights

PRODUCT = 'licence:product'
PRODUCTS = 'licence_products'
SERVERS = 'licence_servers'


class LicenceFilter(filters.BaseHostFilter):
    """Reject a host without a licence for what the flavor names.

    ``licence:product`` in the extra specs of the flavor names a product. A
    host may run it if one of its aggregates names it in ``licence_products``,
    texts between commas, and if the host has fewer servers than
    ``licence_servers`` of that aggregate, if it says that.
    """

    reason = 'lacks a licence'

    def host_passes(self, host_state, spec_obj):
        product = spec_obj.flavor.extra_specs.get(PRODUCT)
        if product is None:
            return True
        for aggregate in host_state.aggregates:
            if product in _products(aggregate):
                # What is no number is a mistake that must not be overlooked.
                servers = int(aggregate.metadata.get(SERVERS, 2 ** 31))
                return host_state.num_instances < servers
        return False


class UnlicensedWeigher(weights.BaseHostWeigher):
    """Score a host higher if it has no licence that others may need."""

    minval = 0

    def _weigh_object(self, host_state, weight_properties):
        if PRODUCT in weight_properties.flavor.extra_specs:
            return 0.0
        return float(not any(map(_products, host_state.aggregates)))


def _products(aggregate):
    said = aggregate.metadata.get(PRODUCTS, '')
    return {product.strip() for product in said.split(',') if product.strip()}
