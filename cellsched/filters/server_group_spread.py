# SPDX-License-Identifier: Apache-2.0
"""Keep hosts in those failure domains that have few members of a group."""

from collections.abc import Iterable
import re

import numpy as np

from cellsched import exception
from cellsched.filters import base
from cellsched.filters import server_group
from cellsched.hosts import view
from cellsched import objects
from cellsched.objects import requests

_SPREAD, _SKEW = 'spread', 'max_skew'

#: The columns that say in which domain of a kind hosts are.
_COLUMNS = {'cell': 'cell', 'az': 'availability_zone'}


class ServerGroupSpreadFilter(base.Filter):
    """Reject the hosts of failure domains that are ahead of others.

    A server group is spread over the domains that its rule ``spread`` names:
    ``cell``, ``az`` (availability zones) or ``host``. With a new server, a
    domain may have ``max_skew`` (a rule too, 1 by default, 1000 at most)
    members more than that which has the fewest. Domains count in which a
    host passed the filters before this one, so name it last in
    ``enabled_filters``.

    The scheduler hints ``spread`` and ``max_skew`` ask for the same, for one
    request. They hold beside the rules of its group; without a group, the
    servers of the request are spread.
    """

    reason = 'has too many of the servers to spread in its domain'
    #: It has to be shown the hosts that are left, and no others.
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
        mask = np.ones(len(hosts), dtype=bool)
        for domain, skew in _wanted(request):
            if domain in _COLUMNS:
                column = _COLUMNS[domain]
                there = np.bincount(hosts.whole[column], counts).take(
                    hosts[column])
            else:
                there = counts.take(hosts.rows)
            mask &= there < there.min() + skew
        return mask


def _wanted(request: objects.RequestSpec) -> list[tuple[str, int]]:
    """Return the kinds of domains, and the skew that they may have.

    :raises cellsched.exception.InvalidField: a hint or a rule is no such
    """
    wanted = []
    group = request.get('instance_group')
    rules = group.rules if group is not None else {}
    if _SPREAD in rules:
        wanted.append((rules[_SPREAD], rules.get(_SKEW, 1)))
    hint, skew = request.hint(_SPREAD), request.hint(_SKEW) or ['1']
    if len(hint) != 1 or hint[0] not in requests.SPREADS:
        if hint or request.hint(_SKEW):
            raise _invalid(_SPREAD, 'one of ' + ', '.join(
                requests.SPREADS))
        return wanted
    least, most = requests.BOUNDS[_SKEW]
    if len(skew) != 1 or not re.fullmatch('[0-9]{1,4}', skew[0]) or not (
            least <= int(skew[0]) <= most):
        raise _invalid(_SKEW, f'a whole number from {least} to {most}')
    return [*wanted, (hint[0], int(skew[0]))]


def _invalid(hint: str, expected: str) -> exception.InvalidField:
    return exception.InvalidField(
        where='request', field=f'scheduler_hints.{hint}', expected=expected)
