# SPDX-License-Identifier: Apache-2.0
"""Keep hosts in cells that the project may use."""

import collections

import numpy as np

from cellsched.filters import aggregate_multitenancy_isolation as isolation
from cellsched.filters import base
from cellsched.hosts import aggregate
from cellsched.hosts import view
from cellsched import objects

_ALLOWED = 'cell_allowed_projects'
_DENIED = 'cell_denied_projects'


class CellFilter(base.Filter):
    """Reject the hosts of cells that the project may not use.

    The metadata of an aggregate applies to every cell in which the aggregate
    has a host, and to all hosts of that cell. ``cell_allowed_projects`` and
    ``cell_denied_projects`` contain comma-separated project ids. A cell
    accepts the projects that its aggregates allow; if no aggregate has the
    key, it accepts all projects. A denied project is rejected even if another
    aggregate allows it. An empty list of allowed projects rejects all
    projects.
    """

    reason = 'is in a cell that is kept for other projects'
    run_filter_once_per_request = True

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        verdicts = hosts.memo('projects of cells', _verdicts)
        return verdicts.keep(hosts['cell'], request)


def _verdicts(hosts: view.Hosts) -> isolation.Verdicts:
    allowed: dict[int, set[str]] = collections.defaultdict(set)
    denied: dict[int, set[str]] = collections.defaultdict(set)
    pairs = np.unique(np.stack([hosts['cell'], hosts['aggregates']]), axis=1)
    for cell, code in pairs.T.tolist():
        aggregates = hosts.value('aggregates', code)
        for key, projects in ((_ALLOWED, allowed), (_DENIED, denied)):
            if any(key in each.metadata for each in aggregates):
                projects[cell] |= aggregate.values(aggregates, key)
    return isolation.Verdicts(
        int(hosts['cell'].max(initial=0)) + 1, allowed, denied)
