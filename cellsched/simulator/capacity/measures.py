# SPDX-License-Identifier: Apache-2.0
"""Measures of a simulated deployment: packing, waiting, conflicts, fairness.

The functions are pure. :class:`Recorder` gathers the events of a run, and
returns the measures as a document.
"""

import array
import bisect
import collections
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from cellsched.simulator.capacity import load
from cellsched.simulator.capacity.scenario import Scenario
from cellsched.weighers import fragmentation

Column = npt.NDArray[Any]

#: Projects in a document, those with the most servers.
PROJECTS_MAX = 100

#: Significant digits of the figures of a document.
_DIGITS = 9

_RESOURCES = ('vcpus', 'memory', 'disk')


def compaction(
    hosts: int, fits: Callable[[Column], bool], permutations: int,
    random: np.random.Generator,
) -> Column:
    """Return the fewest hosts that the servers fit, for each permutation.

    It is the measure that Google's Borg compares schedulers by: hosts are
    removed in a random order as long as the servers fit the rest.

    :param fits: returns whether the servers fit the hosts in some rows
    """
    found = []
    for _ in range(permutations):
        order = random.permutation(hosts)
        found.append(bisect.bisect_left(
            range(hosts), True, key=lambda count: fits(order[:count])))
    return np.array(found, dtype='int64')


def fits_in(counts: Column, sizes: Column, capacity: Column) -> bool:
    """Return whether servers fit hosts, the largest first, each first host.

    :param counts: the number of servers of each flavor
    :param sizes: the amounts of each flavor
    :param capacity: the amounts of each host
    """
    free = np.array(capacity, dtype='float64')
    total = np.maximum(free.sum(axis=0), 1e-9)
    for flavor in np.argsort(-(sizes / total).max(axis=1), kind='stable'):
        size, count = sizes[flavor], counts[flavor]
        takes = np.flatnonzero(size)
        if not count or not len(takes):
            continue
        room = np.maximum(np.floor(
            (free[:, takes] / size[takes]).min(axis=1)), 0)
        placed = np.clip(count - (np.cumsum(room) - room), 0, room)
        if placed.sum() < count:
            return False
        free -= placed[:, np.newaxis] * size
    return True


def empty(used: Column) -> float | None:
    """Return the share of hosts without servers."""
    return ratio(float(np.count_nonzero(~used.any(axis=1))), len(used))


def stranded(capacity: Column, used: Column, sizes: Column) -> list[
        float | None]:
    """Return the share of each resource that is free but cannot be used.

    A free amount is stranded if the host has less of another resource than
    any flavor needs.

    :param sizes: the amounts of each flavor
    """
    free = np.maximum(capacity - used, 0)
    exhausted = free < sizes.min(axis=0)
    found = []
    for place in range(capacity.shape[1]):
        rows = np.delete(exhausted, place, axis=1).any(axis=1)
        found.append(ratio(float(free[rows, place].sum()),
                           float(capacity[:, place].sum())))
    return found


def unusable(
    capacity: Column, used: Column, sizes: Column, shares: Column
) -> list[float | None]:
    """Return the share of each free resource that the flavors cannot use.

    See :func:`cellsched.weighers.fragmentation.unusable`.
    """
    free = np.maximum(capacity - used, 0.0)
    totals = fragmentation.unusable(free, sizes, shares).sum(axis=0)
    return [ratio(float(part), float(whole))
            for part, whole in zip(totals, free.sum(axis=0))]


def jain(values: Sequence[float] | Column) -> float | None:
    """Return Jain's index of fairness, from 1 / count to 1 for equals."""
    found = np.asarray(values, dtype='float64')
    if not len(found):
        return None
    if not found.any():
        # Projects that all got nothing are equal.
        return 1.0
    # Squares of small values would lose their digits.
    found = found / found.max()
    return float(found.sum() ** 2 / len(found) / np.square(found).sum())


def ratio(part: float, whole: float) -> float | None:
    """Return a share, or None of nothing."""
    return part / whole if whole else None


@dataclasses.dataclass
class _Project:
    asked: int = 0
    placed: int = 0
    refused: int = 0
    waited_s: float = 0.0


class Recorder:
    """Gathers the events of a run.

    A server is asked for, and then placed or refused; a placed one may be
    removed. Times are seconds since the start of the run.

    :param made: the load of the run
    :param random: the source of the permutations of hosts
    """

    def __init__(
        self, scenario: Scenario, made: load.Load, random: np.random.Generator
    ) -> None:
        self._scenario, self._load = scenario, made
        self._sizes = load.sizes_of(made.flavors)
        self._random = random
        self._projects = collections.defaultdict[str, _Project](_Project)
        self._waits_s = array.array('d')
        #: The numbers of events.
        self.counts = dict.fromkeys((
            'asked', 'placed', 'refused', 'refused_although_it_fitted',
            'removed', 'conflicts', 'retries', 'lost', 'recovered',
            'evacuations_refused', 'lost_memory_mb', 'recovered_memory_mb'), 0)
        #: The seconds that each scheduler has worked.
        self.busy_s: list[float] = []
        #: The capacity of the hosts, and the amounts in use, which change.
        self._hosts: tuple[Column, Column] | None = None
        self._series: dict[str, list[float | None]] = {}
        self._before = 0, 0.0, 0.0
        self._failure: dict[str, float] = {}
        self._lost_at: float | None = None
        self._recovered_at: float | None = None
        self._end_s = 0.0

    # Events.

    def asked(self, project: str, count: int) -> None:
        """Record a request for a number of servers."""
        self.counts['asked'] += count
        self._projects[project].asked += count

    def placed(self, project: str, waited_s: float) -> None:
        """Record a server that got a host."""
        self.counts['placed'] += 1
        self._waits_s.append(waited_s)
        found = self._projects[project]
        found.placed += 1
        found.waited_s += waited_s

    def refused(
        self, at: float, project: str, flavor: load.Flavor, fitted: bool
    ) -> None:
        """Record a server that got no host.

        :param fitted: whether a host had room for it
        """
        self.counts['refused'] += 1
        self.counts['refused_although_it_fitted'] += fitted
        self._projects[project].refused += 1
        if self._failure or self._hosts is None:
            return
        # The first failure tells the density only if hosts have the room
        # together.
        totals = [*zip(*(each.sum(axis=0).tolist() for each in self._hosts))]
        if all(used + size <= whole
               for (whole, used), size in zip(totals, flavor[1:])):
            self._failure = {'at_s': at, **{
                name: used / whole
                for name, (whole, used) in zip(_RESOURCES, totals) if whole}}

    def lost(self, at: float, flavors: Sequence[load.Flavor]) -> None:
        """Record servers that failed with their hosts."""
        self._add('lost', flavors)
        if self._lost_at is None:
            self._lost_at = at

    def recovered(self, at: float, flavors: Sequence[load.Flavor]) -> None:
        """Record lost servers that run again."""
        self._add('recovered', flavors)
        self._recovered_at = at

    def evacuation_refused(self, fitted: bool) -> None:
        """Record a lost server that got no other host.

        :param fitted: whether a host had room for it
        """
        self.counts['evacuations_refused'] += 1
        self.counts['refused_although_it_fitted'] += fitted

    def sample(
        self, at: float, capacity: Column, used: Column, servers: int
    ) -> None:
        """Measure the hosts.

        :param capacity: vCPUs, memory in MB and disk in GB of each host, with
            allocation ratios; zeros for a host that takes no servers
        :param used: the amounts in use; the run changes them
        :param servers: the number of servers
        """
        self._end_s = at
        self._hosts = capacity, used
        shares = [ratio(float(part), float(whole)) for part, whole in zip(
            used.sum(axis=0), capacity.sum(axis=0))]
        lost = stranded(capacity, used, self._sizes)
        rest = unusable(capacity, used, self._sizes, self._load.shares)
        # Waits and busy times are those since the last sample.
        count, busy_s, waited_s = self._before
        placed, now_busy_s = len(self._waits_s), sum(self.busy_s)
        now_waited_s = sum(
            each.waited_s for each in self._projects.values())
        last_at = (self._series.get('at_s') or [0.0])[-1] or 0.0
        self._before = placed, now_busy_s, now_waited_s
        row = {
            'at_s': at, 'servers': servers,
            **{f'used_{name}': share
               for name, share in zip(_RESOURCES, shares)},
            'empty_hosts': empty(used),
            'stranded_vcpus': lost[0], 'stranded_memory': lost[1],
            'fragmentation_vcpus': rest[0], 'fragmentation_memory': rest[1],
            'time_to_place_s': ratio(
                now_waited_s - waited_s, placed - count),
            'scheduler_busy': ratio(
                now_busy_s - busy_s,
                (at - last_at) * len(self.busy_s)),
            **self.counts}
        for name, value in row.items():
            self._series.setdefault(name, []).append(value)

    # Results.

    def document(self, servers: Mapping[load.Flavor, int]) -> dict[str, Any]:
        """Return the results as plain data.

        :param servers: the numbers of servers at the end, by flavor
        """
        projects = sorted(
            self._projects.items(), key=lambda each: (-each[1].asked, each[0]))
        document = {
            'scenario': self._scenario.document, 'seed': self._scenario.seed,
            'summary': {**self._summary(), **self._compaction(servers)},
            'series': self._series,
            'projects': [{
                'project': name, 'asked': each.asked, 'placed': each.placed,
                'refused': each.refused,
                'time_to_place_s': ratio(each.waited_s, each.placed)}
                for name, each in projects[:PROJECTS_MAX]]}
        return {name: value if name == 'scenario' else _rounded(value)
                for name, value in document.items()}

    def _summary(self) -> dict[str, float | None]:
        counts = self.counts
        waits = np.array(self._waits_s)
        quantiles = (np.quantile(waits, (0.5, 0.99)).tolist()
                     if len(waits) else [None, None])
        busy_s = sum(self.busy_s)
        answered = [each for each in self._projects.values() if each.placed]
        found: dict[str, float | None] = {
            **counts, 'hours': self._end_s / 3600,
            'conflicts_per_placed': ratio(
                counts['conflicts'], counts['placed']),
            'retries_per_placed': ratio(counts['retries'], counts['placed']),
            'time_to_place_mean_s': ratio(float(waits.sum()), len(waits)),
            'time_to_place_p50_s': quantiles[0],
            'time_to_place_p99_s': quantiles[1],
            'time_to_place_max_s': float(waits.max()) if len(waits) else None,
            'scheduler_busy_s': busy_s,
            'scheduler_busy': ratio(busy_s, self._end_s * len(self.busy_s)),
            'fairness_of_waiting': jain(
                [each.waited_s / each.placed for each in answered]),
            'fairness_of_placing': jain(
                [each.placed / each.asked
                 for each in self._projects.values() if each.asked]),
            'recovery_s': None if (
                self._lost_at is None or self._recovered_at is None)
            else self._recovered_at - self._lost_at,
            'first_failure_at_s': self._failure.get('at_s')}
        for name in _RESOURCES:
            found[f'first_failure_used_{name}'] = self._failure.get(name)
        for name in ('servers', *(f'used_{name}' for name in _RESOURCES),
                     'empty_hosts', 'stranded_vcpus', 'stranded_memory',
                     'fragmentation_vcpus', 'fragmentation_memory'):
            values = [value for value in self._series.get(name, ())
                      if value is not None]
            found[f'{name}_mean'] = ratio(sum(values), len(values))
            found[f'{name}_end'] = values[-1] if values else None
        return found

    def _compaction(
        self, servers: Mapping[load.Flavor, int]
    ) -> Mapping[str, float | None]:
        """Return the share of hosts that the last servers need."""
        found: dict[str, float | None] = {
            f'compaction_{name}': None for name in ('p10', 'p50', 'p90')}
        permutations = self._scenario.measure.permutations
        if self._hosts is None or not permutations:
            return found
        capacity, _ = self._hosts
        counts = np.array([
            servers.get(each, 0) for each in self._load.flavors])
        if not fits_in(counts, self._sizes, capacity):
            return found
        needed = compaction(
            len(capacity),
            lambda rows: fits_in(counts, self._sizes, capacity[rows]),
            permutations, self._random)
        shares = np.quantile(needed, (0.1, 0.5, 0.9)) / len(capacity)
        return dict(zip(found, shares.tolist()))

    def _add(self, name: str, flavors: Sequence[load.Flavor]) -> None:
        self.counts[name] += len(flavors)
        self.counts[f'{name}_memory_mb'] += sum(
            each.memory_mb for each in flavors)


def _rounded(value: Any) -> Any:
    """Return data with numbers that do not depend on the order of sums."""
    if isinstance(value, float):
        return float(f'{value:.{_DIGITS}g}')
    if isinstance(value, Mapping):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return value
