# SPDX-License-Identifier: Apache-2.0
"""Keep hosts in the failure domains with the fewest group members."""

from collections.abc import Iterable

import numpy as np

from cellsched.filters import base
from cellsched.filters import server_group
from cellsched.hosts import view
from cellsched import objects
from cellsched.objects import keys

_SPREAD, _SKEW = 'spread', 'max_skew'

#: The columns with the domain of each host, by kind of domain.
_COLUMNS = {'cell': 'cell', 'az': 'availability_zone'}


class ServerGroupSpreadFilter(base.Filter):
    """Reject hosts in failure domains with too many members of the group.

    A server group is spread over the domains that its rule ``spread`` names:
    ``cell``, ``az`` (availability zones) or ``host``. With a new server, a
    domain may have at most ``max_skew`` members more than the domain with the
    fewest members. ``max_skew`` is a rule too, 1 by default and at most 1000.
    Only domains in which a host passed the earlier filters count, so name
    this filter last in ``enabled_filters``.

    The scheduler hints ``spread`` and ``max_skew`` request the same for one
    request. They apply in addition to the rules of its group. Without a
    group, the servers of the request are spread.
    """

    reason = 'has too many of the servers to spread in its domain'
    #: The filter must get exactly the remaining hosts.
    by_row = True
    reopens = True
    serves = frozenset({'spread'})
    hints = frozenset({_SPREAD, _SKEW})

    def applies(self, request: objects.RequestSpec) -> bool:
        if request.hint(_SPREAD) or request.hint(_SKEW):
            return True
        group = request.get('instance_group')
        return group is not None and _SPREAD in (group.get('_rules') or ())

    def located(self, request: objects.RequestSpec) -> Iterable[str]:
        group = request.get('instance_group')
        return (group.get('members') if group is not None else None) or ()

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        if not len(hosts):
            return np.ones(0, dtype=bool)
        leaves = server_group.moved(request)
        members = [uuid for uuid in self.located(request)
                   if uuid not in leaves]
        counts = hosts.whole.counts_of(members)
        # The kinds of domains, with the allowed skew of each.
        spreads = []
        group = request.get('instance_group')
        rules = group.rules if group is not None else {}
        if _SPREAD in rules:
            spreads.append((rules[_SPREAD], rules.get(_SKEW, 1)))
        hints = {name: values for name in (_SPREAD, _SKEW)
                 if (values := request.hint(name))}
        keys.check_hints(hints, 'request', 'scheduler_hints')
        if hints:
            [domain], [skew] = hints[_SPREAD], hints.get(_SKEW, ['1'])
            spreads.append((domain, int(skew)))
        mask = np.ones(len(hosts), dtype=bool)
        for domain, skew in spreads:
            if domain in _COLUMNS:
                column = _COLUMNS[domain]
                totals = np.bincount(hosts.whole[column], counts).take(
                    hosts[column])
            else:
                totals = counts.take(hosts.rows)
            mask &= totals < totals.min() + skew
        return mask
