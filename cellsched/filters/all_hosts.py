# SPDX-License-Identifier: Apache-2.0
"""Keep every host."""

import numpy as np

from cellsched.filters import base
from cellsched.hosts import view
from cellsched import objects


class AllHostsFilter(base.Filter):
    """Pass every host.

    Use it where a list of filters must not be empty.
    """

    run_filter_once_per_request = True

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        return np.ones(len(hosts), dtype=bool)
