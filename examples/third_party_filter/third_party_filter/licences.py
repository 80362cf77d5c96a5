# SPDX-License-Identifier: Apache-2.0
"""A filter and a weigher for licensed software, written for Nova.

Only the base classes differ from Nova, where they are
``nova.scheduler.filters.BaseHostFilter`` and
``nova.scheduler.weights.BaseHostWeigher``.
"""

from cellsched.filters import base as filters
from cellsched.weighers import base as weights

PRODUCT = 'licence:product'
PRODUCTS = 'licence_products'
SERVERS = 'licence_servers'


class LicenceFilter(filters.BaseHostFilter):
    """Reject a host without a licence for the flavor's product.

    The extra spec ``licence:product`` of the flavor names the product. An
    aggregate of the host must list the product in ``licence_products``,
    separated by commas. If that aggregate has ``licence_servers``, the host
    must also have fewer servers than this number.
    """

    reason = 'lacks a licence'

    def host_passes(self, host_state, spec_obj):
        product = spec_obj.flavor.extra_specs.get(PRODUCT)
        if product is None:
            return True
        for aggregate in host_state.aggregates:
            if product in _products(aggregate):
                # A value that is not a number is an error of the operator,
                # so int() raises.
                servers = int(aggregate.metadata.get(SERVERS, 2 ** 31))
                return host_state.num_instances < servers
        return False


class UnlicensedWeigher(weights.BaseHostWeigher):
    """Score a host higher if it has no licence.

    Servers without a licensed product then use other hosts first.
    """

    minval = 0

    def _weigh_object(self, host_state, weight_properties):
        if PRODUCT in weight_properties.flavor.extra_specs:
            return 0.0
        return float(not any(map(_products, host_state.aggregates)))


def _products(aggregate):
    names = aggregate.metadata.get(PRODUCTS, '').split(',')
    return {name.strip() for name in names if name.strip()}
