# SPDX-License-Identifier: Apache-2.0
"""Keep hosts whose address is in the requested network."""

import bisect
import ipaddress

import numpy as np

from cellsched.filters import base
from cellsched.hosts import view
from cellsched import objects
from cellsched.objects import keys

#: Offset that separates IPv6 addresses from IPv4 addresses.
_IPV6 = 1 << 128


class SimpleCIDRAffinityFilter(base.Filter):
    """Reject a host whose address is in another network than requested.

    The scheduler hint ``build_near_host_ip`` is an address in the network.
    The hint ``cidr`` is the prefix length, with a slash; the default is
    ``/24``. It is refused without an address.
    """

    reason = 'has an address in another network'
    run_filter_once_per_request = True
    hints = frozenset({'build_near_host_ip', 'cidr'})

    def applies(self, request: objects.RequestSpec) -> bool:
        # A prefix length without an address is refused, not ignored.
        return any(map(any, map(request.hint, self.hints)))

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        keys.check_hints({hint: request.hint(hint) for hint in self.hints},
                         'request', 'scheduler_hints')
        [near], [size] = (request.hint(hint) or ['/24']
                          for hint in ('build_near_host_ip', 'cidr'))
        network = ipaddress.ip_network(f'{near}{size}', strict=False)
        numbers, rows = hosts.memo('hosts by address', _by_address)
        inside = slice(bisect.bisect_left(numbers, _number(network[0])),
                       bisect.bisect_right(numbers, _number(network[-1])))
        mask = np.zeros(len(rows), dtype=bool)
        mask[rows[inside]] = True
        return mask if hosts.is_whole else mask.take(hosts.rows)


def _by_address(hosts: view.Hosts) -> tuple[list[int], view.Column]:
    """Return the sorted addresses of all hosts, and the host of each."""
    numbers = list(map(_address, hosts['host_ip']))
    rows = sorted(range(len(numbers)), key=numbers.__getitem__)
    return sorted(numbers), np.array(rows, dtype='int64')


def _address(text: str | None) -> int:
    """Return the number of an address; -1 if it is invalid."""
    try:
        return _number(ipaddress.ip_address(text or ''))
    except ValueError:
        return -1


def _number(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> int:
    return int(address) + (_IPV6 if address.version == 6 else 0)
