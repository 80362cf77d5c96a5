# SPDX-License-Identifier: Apache-2.0
"""Keep hosts by the servers that a scheduler hint names."""

from collections.abc import Iterable

import numpy as np

from cellsched.filters import base
from cellsched.hosts import view
from cellsched import objects
from cellsched.objects import keys


class DifferentHostFilter(base.Filter):
    """Reject a host that runs a server that the hint excludes.

    The scheduler hint ``different_host`` lists at most 100 server uuids.
    Servers that are on no known host are ignored.
    """

    reason = 'runs a server to keep away from'
    run_filter_once_per_request = True
    hints = frozenset({'different_host'})

    def applies(self, request: objects.RequestSpec) -> bool:
        return bool(request.hint('different_host'))

    def located(self, request: objects.RequestSpec) -> Iterable[str]:
        return _servers(request, 'different_host')

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        mask = np.ones(len(hosts), dtype=bool)
        mask[hosts.rows_of(_servers(request, 'different_host'))] = False
        return mask


class SameHostFilter(base.Filter):
    """Reject a host that runs none of the servers that the hint names.

    The scheduler hint ``same_host`` lists at most 100 server uuids. A host
    that runs one of these servers passes.
    """

    reason = 'runs no server to be next to'
    run_filter_once_per_request = True
    hints = frozenset({'same_host'})

    def applies(self, request: objects.RequestSpec) -> bool:
        return bool(request.hint('same_host'))

    def located(self, request: objects.RequestSpec) -> Iterable[str]:
        return _servers(request, 'same_host')

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        mask = np.zeros(len(hosts), dtype=bool)
        mask[hosts.rows_of(_servers(request, 'same_host'))] = True
        return mask


def _servers(request: objects.RequestSpec, hint: str) -> list[str]:
    """Return the servers that a hint names, without duplicates.

    :raises cellsched.exception.InvalidField: too many, or not uuids
    """
    values = request.hint(hint)
    keys.HINTS.check({hint: values}, 'request', 'scheduler_hints')
    return keys.servers(values)
