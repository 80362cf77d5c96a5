# SPDX-License-Identifier: Apache-2.0
"""Keep hosts whose aggregates accept the project."""

from collections.abc import Iterable
from collections.abc import Mapping

import numpy as np

from cellsched.filters import base
from cellsched.hosts import aggregate
from cellsched.hosts import view
from cellsched import objects

_PREFIX = 'filter_tenant_id'


class AggregateMultiTenancyIsolation(base.Filter):
    """Reject a host whose aggregates are for other projects.

    Metadata keys that begin with ``filter_tenant_id`` contain comma-separated
    project ids. A host accepts the projects that its aggregates name. If none
    of its aggregates has such a key, it accepts all projects. The filter
    isolates these hosts from other projects, but a project of an aggregate
    may also use hosts outside it.
    """

    reason = 'is kept for other projects'
    run_filter_once_per_request = True

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        verdicts = hosts.memo('projects of aggregates', _verdicts)
        return verdicts.keep(hosts['aggregates'], request)


class Verdicts:
    """The projects that may use each of some numbered things.

    :param allowed: the only projects that may use a thing, by its number;
        without an entry, all projects may
    :param denied: projects that may not use it, by its number
    """

    def __init__(
        self, count: int, allowed: Mapping[int, Iterable[str]],
        denied: Mapping[int, Iterable[str]],
    ) -> None:
        self._others = np.ones(count, dtype=bool)
        self._others[list(allowed)] = False
        self._named: dict[str, view.Mask] = {}
        for projects, verdict in ((allowed, True), (denied, False)):
            for number, names in projects.items():
                for name in names:
                    self._named.setdefault(name, self._others.copy())[
                        number] = verdict

    def keep(
        self, numbers: view.Column, request: objects.RequestSpec
    ) -> view.Mask:
        """Return whether the project of a request may use these things."""
        project = request.get('project_id')
        verdicts = self._named.get(project or '', self._others)
        if verdicts.all():
            return np.ones(len(numbers), dtype=bool)
        return verdicts.take(numbers)


def _verdicts(hosts: view.Hosts) -> Verdicts:
    allowed = {}
    for code in np.unique(hosts['aggregates']).tolist():
        aggregates = list(hosts.value('aggregates', code))
        projects = frozenset[str]().union(*(
            aggregate.values(aggregates, key) for each in aggregates
            for key in each.metadata if key.startswith(_PREFIX)))
        if projects:
            allowed[code] = projects
    return Verdicts(int(hosts['aggregates'].max(initial=0)) + 1, allowed, {})
