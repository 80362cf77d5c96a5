# SPDX-License-Identifier: Apache-2.0
"""Room for what a request takes, as the claim store will ask for it.

The store has the last word. To look at the figures first spares the pipeline
the hosts that it would refuse, and tells by how much they fall short.
"""

import abc
import functools
import math
from typing import ClassVar

import numpy as np

from cellsched import exception
from cellsched.filters import base
from cellsched.hosts import view
from cellsched import objects

#: The most of one resource class that a store can keep.
_AMOUNT_MAX = 2 ** 31 - 1

#: For people: what a host lacks, and the unit, by resource class.
_WORDS = {
    'DISK_GB': ('disk', 'GB'),
    'MEMORY_MB': ('memory', 'MB'),
    'PCPU': ('dedicated CPUs', 'PCPU'),
    'VCPU': ('CPUs', 'VCPU'),
}

#: The most that one server may take: what the host physically has.
_SIZES = {
    'DISK_GB': 'total_usable_disk_gb',
    'MEMORY_MB': 'total_usable_ram_mb',
    'VCPU': 'vcpus_total',
}


class _Stage(base.Filter):
    """Compares an amount; made for a size, and always in the pipeline."""

    kind: ClassVar[str]
    local = True

    def __init__(self, resource: str, amount: int) -> None:
        super().__init__(options=None)
        self.resource = resource
        self.amount = amount
        self.word, self.unit = _WORDS.get(resource, (resource, resource))
        self.name = f'{self.kind}:{self.resource}'

    @abc.abstractmethod
    def offered(self, hosts: view.Hosts) -> view.Column:
        """Return how much each host may give."""

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask | None:
        return self.offered(hosts) >= self.amount

    def shortfall(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> tuple[view.Column, str]:
        return self.amount - self.offered(hosts), self.unit


class Size(_Stage):
    """Reject a host that is smaller than the server, however empty it is.

    A ratio offers more than there is to many servers, not to one.
    """

    kind = 'size'
    run_filter_once_per_request = True

    def __init__(self, resource: str, amount: int) -> None:
        super().__init__(resource, amount)
        self.reason = f'is too small in {self.word}'

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask | None:
        smallest = hosts.memo(('smallest', self.resource), self._smallest)
        if self.amount <= smallest:
            return None
        return super().keep(hosts, request)

    def offered(self, hosts: view.Hosts) -> view.Column:
        return hosts[_SIZES[self.resource]]

    def _smallest(self, hosts: view.Hosts) -> float:
        return self.offered(hosts).min(initial=math.inf)


class Capacity(_Stage):
    """Reject a host that has too little room of one resource class."""

    kind = 'capacity'

    def __init__(self, resource: str, amount: int) -> None:
        super().__init__(resource, amount)
        self.reason = f'lacks {self.word}'

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask | None:
        if hosts.is_whole and self.amount <= hosts.least_room(self.resource):
            return None
        return hosts.room(self.resource) >= self.amount

    def offered(self, hosts: view.Hosts) -> view.Column:
        return hosts.room(self.resource)


def counts(hosts: view.Hosts, request: objects.RequestSpec) -> view.Column:
    """Return how many such servers each host has room for.

    Only room is asked about, and neither size nor any filter. Where nothing
    is asked for, there is room for as many as can be counted.
    """
    found = np.full(len(hosts), _AMOUNT_MAX)
    for resource, amount in request.resources().items():
        found = np.minimum(found, hosts.room(resource) // amount)
    return np.maximum(found, 0).astype('int64')


def stages(request: objects.RequestSpec) -> list[base.Filter]:
    """Return what a host must have for the request: size, then room.

    :raises cellsched.exception.InvalidField: an amount makes no sense
    """
    return list(_stages(tuple(request.resources().items())))


# Flavors are few, and there is nothing in a stage but an amount of one.
@functools.lru_cache(1024)
def _stages(amounts: tuple[tuple[str, int], ...]) -> list[base.Filter]:
    for resource, amount in amounts:
        if not 1 <= amount <= _AMOUNT_MAX:
            raise exception.InvalidField(
                where='request', field=f'resources.{resource}',
                expected=f'an amount from 1 to {_AMOUNT_MAX}')
    return [*(Size(*each) for each in amounts if each[0] in _SIZES),
            *(Capacity(*each) for each in amounts)]
