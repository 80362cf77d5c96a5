# SPDX-License-Identifier: Apache-2.0
"""Load of a simulated deployment: requests for servers, and their lifetimes.

A preset draws the load from published distributions; see ``presets.yaml``.
:mod:`.traces` reads load from files of public data sets.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import copy
import dataclasses
import functools
from importlib import resources
import math
import pathlib
from typing import Any
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import yaml

from cellsched import exception
from cellsched.objects.requests import POLICIES
from cellsched.scheduler import recording
from cellsched.simulator.capacity.scenario import LOADS
from cellsched.simulator.capacity import traces
from cellsched.validation.json_schema import check

#: The shortest lifetime in published traces, in hours.
LIFETIME_MIN_H = 1 / 12

#: The exponent of Zipf's law for the shares of projects.
ZIPF = 1.1

#: Length of an incident, and the factor of the rate meanwhile.
BURST_S = 60
BURST_FACTOR = 20

#: The number of servers of a request that may have a server group.
GROUP_SIZES = range(2, 11)

_HOUR_S = 3600
_DAY_S = 24 * _HOUR_S

#: The time of day with the highest rate.
_PEAK_S = 14 * _HOUR_S

#: Requests that are drawn at once.
_CHUNK = 4096

#: The largest number of servers of one request.
_BATCH_MAX = 1000

Column = npt.NDArray[Any]


class Flavor(NamedTuple):
    """The size of a server."""

    name: str
    vcpus: int
    memory_mb: int
    disk_gb: int


class Arrival(NamedTuple):
    """A request for servers of one flavor.

    :param at: seconds since the start
    :param lifetimes: one for each server, in seconds; infinity for a server
        that stays
    :param group: the policy of the server group of these servers, or None
    """

    at: float
    project: str
    flavor: Flavor
    lifetimes: tuple[float, ...]
    group: str | None


@dataclasses.dataclass
class Load:
    """Requests in the order of time.

    :param shares: the share of each flavor in all servers
    :param arrivals: yields the requests, each time the same
    """

    flavors: Sequence[Flavor]
    shares: Column
    arrivals: Callable[[], Iterator[Arrival]]


class Curve:
    """A cumulative distribution, linear in the logarithm between points.

    :param points: ascending pairs of a value and the percentage of values
        that are not greater; the last percentage is 100
    :param least: the lower bound of values
    :raises ValueError: names the expectation
    """

    def __init__(
        self, points: Sequence[Sequence[float]], least: float
    ) -> None:
        values, shares = np.array(points, dtype='float64').T
        shares = shares / 100
        if values[0] > least and shares[0] > 0:
            values, shares = np.r_[least, values], np.r_[0.0, shares]
        if values[0] < least:
            raise ValueError(f'values of at least {least:.4g}')
        if (np.diff(values) <= 0).any() or (np.diff(shares) < 0).any():
            raise ValueError('values and percentages in ascending order')
        if shares[-1] != 1:
            raise ValueError('100 as the last percentage')
        self._logarithms, self._shares = np.log(values), shares
        lengths = np.diff(values) / np.diff(self._logarithms)
        masses = np.diff(shares, prepend=0)
        #: The mean.
        self.mean = float(values[0] * masses[0] + lengths @ masses[1:])
        # The share of each interval in the sum of all values.
        self._weights = np.cumsum(
            np.r_[values[0] * masses[0], lengths * masses[1:]]) / self.mean
        self._values = np.r_[values[0], values]

    def inverse(self, quantiles: Column) -> Column:
        """Return the value at each quantile, from 0 to 1."""
        found: Column = np.exp(
            np.interp(quantiles, self._shares, self._logarithms))
        return found

    def share(self, values: Column) -> Column:
        """Return the share of values that are not greater."""
        found: Column = np.interp(
            np.log(values), self._logarithms, self._shares, left=0.0)
        return found

    def residual(self, random: np.random.Generator, count: int) -> Column:
        """Draw remaining lifetimes, as those of servers at any moment.

        A lifetime is drawn with a probability in proportion to its length,
        and its remaining part with equal probability.
        """
        found = np.searchsorted(self._weights, random.random(count))
        low = self._values[found]
        lengths = low + random.random(count) * (
            self._values[found + 1] - low)
        remaining: Column = lengths * random.random(count)
        return remaining


class SyntheticLoad(Load):
    """Load that is drawn from distributions.

    :param values: the preset, with changes of the scenario
    :param random: the source of the numbers; it is copied, so that the load
        does not depend on other users of it
    :param rate: servers per hour
    :param initial: the number of servers at the start
    """

    def __init__(
        self, values: Mapping[str, Any], random: np.random.Generator,
        hours: float, rate: float, initial: int = 0,
    ) -> None:
        super().__init__(*flavors_of(values), self._arrivals)
        self.lifetimes = _curve(values, 'lifetimes', LIFETIME_MIN_H)
        self.batches = _curve(values, 'batches', 0.5)
        self.initial = initial
        self._batch_max = values.get('batch_max', _BATCH_MAX)
        self._random = random.spawn(1)[0]
        self._end_s = hours * _HOUR_S
        self._flavor_bounds = _bounds(self.shares)
        self._projects = [
            f'project-{number}' for number in range(values['projects'])]
        self._project_bounds = _bounds(
            np.arange(1, values['projects'] + 1) ** -ZIPF)
        self._groups = [None, *values.get('groups', {})]
        shares = [*values.get('groups', {}).values()]
        self._group_bounds = _bounds(
            np.array([max(1 - sum(shares), 0), *shares]))
        self._day, self._weekend = values['day'], values['weekend']
        bursts = values['bursts'] / _DAY_S
        #: Requests per second on average, outside of bursts.
        self._rate = rate / _HOUR_S / self.batch_mean / (
            1 + (BURST_FACTOR - 1) * BURST_S * bursts)
        self._burst_rate = bursts

    @functools.cached_property
    def batch_mean(self) -> float:
        """The mean number of servers of a request."""
        return 1 + float(np.sum(1 - self.batches.share(
            np.arange(1, self._batch_max))))

    def _arrivals(self) -> Iterator[Arrival]:
        # Each call yields the same requests.
        random = copy.deepcopy(self._random)
        if self.initial:
            yield from self._drawn(
                random, np.zeros(self.initial),
                np.ones(self.initial, dtype='int64'), self.lifetimes.residual)
        bursts = np.sort(random.random(random.poisson(
            self._burst_rate * self._end_s))) * self._end_s
        # Draw the requests in chunks, so that a year does not fill the memory.
        peak = self._rate * (1 + self._day) / (1 - 2 / 7 * self._weekend)
        start, length = 0.0, _CHUNK / peak
        while start < self._end_s:
            end = min(start + length, self._end_s)
            at = self._times(random, start, end, peak, bursts)
            sizes = np.minimum(np.ceil(self.batches.inverse(
                random.random(len(at))) - 1e-6), self._batch_max)
            yield from self._drawn(
                random, at, sizes.astype('int64'),
                lambda random, count: self.lifetimes.inverse(
                    random.random(count)))
            start = end

    def _times(
        self, random: np.random.Generator, start: float, end: float,
        peak: float, bursts: Column,
    ) -> Column:
        """Draw the times of requests between two times, ascending."""
        # 1. Thin out a process of the highest rate.
        count = random.poisson(peak * (end - start))
        at = start + random.random(count) * (end - start)
        at = at[random.random(count) * peak < self._rate_at(at)]
        # 2. Add the requests of incidents.
        overlaps = np.minimum(bursts + BURST_S, end) - np.maximum(
            bursts, start)
        for number in np.flatnonzero(overlaps > 0).tolist():
            begin = max(bursts[number], start)
            more = random.poisson(
                (BURST_FACTOR - 1) * overlaps[number]
                * float(self._rate_at(begin)))
            at = np.r_[at, begin + random.random(more) * overlaps[number]]
        return np.sort(at)

    def _rate_at(self, at: Any) -> Any:
        """Return the requests per second at times. Day 1 begins at 0."""
        wave = 1 + self._day * np.cos(
            2 * math.pi / _DAY_S * (at - _PEAK_S))
        week = np.where(at // _DAY_S % 7 >= 5, 1 - self._weekend, 1.0)
        return self._rate * wave * week / (1 - 2 / 7 * self._weekend)

    def _drawn(
        self, random: np.random.Generator, at: Column, sizes: Column,
        lifetimes: Any,
    ) -> Iterator[Arrival]:
        """Yield requests at these times, of these numbers of servers."""
        count = len(at)
        flavors = np.searchsorted(self._flavor_bounds, random.random(count))
        projects = np.searchsorted(self._project_bounds, random.random(count))
        groups = np.searchsorted(self._group_bounds, random.random(count))
        groups[(sizes < GROUP_SIZES.start) | (sizes >= GROUP_SIZES.stop)] = 0
        lives = (lifetimes(random, int(sizes.sum())) * _HOUR_S).tolist()
        ends = np.cumsum(sizes)
        for when, project, flavor, start, end, group in zip(
                at.tolist(), projects.tolist(), flavors.tolist(),
                (ends - sizes).tolist(), ends.tolist(), groups.tolist()):
            yield Arrival(
                when, self._projects[project], self.flavors[flavor],
                tuple(lives[start:end]), self._groups[group])


def _traced(trace: traces.Trace, hours: float) -> Load:
    """Return the load of a trace."""
    count = int(np.searchsorted(trace.at, hours * _HOUR_S))
    flavors = [Flavor(f'{vcpus}c-{memory_mb}m-{disk_gb}g', vcpus, memory_mb,
                      disk_gb) for vcpus, memory_mb, disk_gb in trace.sizes]
    totals = np.bincount(trace.flavors[:count], minlength=len(flavors))

    def arrivals() -> Iterator[Arrival]:
        # 1. Find the first server of each request.
        is_first = np.ones(count, dtype=bool)
        if trace.batched:
            is_first[1:] = np.any([
                np.diff(each[:count]) != 0 for each in (
                    trace.at, trace.projects, trace.flavors)], axis=0)
        firsts = np.flatnonzero(is_first)
        # 2. Yield requests, in parts if they have very many servers.
        for start, end in zip(firsts, np.r_[firsts[1:], count]):
            for begin in range(int(start), int(end), _BATCH_MAX):
                lives = trace.lifetimes[begin:min(begin + _BATCH_MAX, end)]
                yield Arrival(
                    float(trace.at[begin]),
                    f'project-{trace.projects[begin]}',
                    flavors[trace.flavors[begin]], tuple(lives.tolist()), None)

    return Load(flavors, totals / max(count, 1), arrivals)


def _recorded(
    path: str, hours: float, lifetimes: Curve | None,
    random: np.random.Generator,
) -> Load:
    """Return the load of a recording, which has no deletions.

    See :mod:`cellsched.scheduler.recording`.

    :param lifetimes: the distribution of lifetimes in hours; None for servers
        that stay
    """
    found: list[Arrival] = []
    servers: dict[Flavor, int] = {}
    start = None
    for entry in recording.read(path):
        start = entry.at if start is None else start
        if entry.at - start > hours * _HOUR_S:
            break
        count = len(entry.uuids)
        amounts = entry.request.resources()
        sizes = [amounts.get(name, 0)
                 for name in ('VCPU', 'MEMORY_MB', 'DISK_GB')]
        flavor = Flavor('-'.join(map(str, sizes)), *sizes)
        servers[flavor] = servers.get(flavor, 0) + count
        lives = [math.inf] * count if lifetimes is None else (
            lifetimes.inverse(random.random(count)) * _HOUR_S).tolist()
        group = entry.request.get('instance_group')
        policy = group.get('policy') if group else None
        found.append(Arrival(
            entry.at - start, str(entry.request.project_id), flavor,
            tuple(lives), policy if policy in POLICIES else None))
    if not servers:
        raise invalid('recording', 'a file with decisions', 'it has none')
    shares = np.array([*servers.values()]) / sum(servers.values())
    return Load([*servers], shares, lambda: iter(found))


@functools.cache
def presets() -> Mapping[str, Mapping[str, Any]]:
    """Return the presets by name."""
    found: dict[str, Any] = yaml.safe_load(
        resources.files(__package__).joinpath('presets.yaml').read_text(
            encoding='utf-8'))
    return {name: {**found.get(values.get('like'), {}), **values}
            for name, values in found.items()}


def of(
    section: Mapping[str, Any], random: np.random.Generator, hours: float,
    hosts: int, capacity: Sequence[float] | None = None,
) -> Load:
    """Return the load that the section ``load`` of a scenario describes.

    ``rate`` is the number of servers per hour. ``fill`` is the share of the
    scarcest resource that is in use at the start and on average; the rate
    follows from it, unless it is given.

    :param hosts: the number of hosts
    :param capacity: the vCPUs, memory in MB and disk in GB of all hosts, which
        ``fill`` needs
    :raises cellsched.exception.InvalidField: names the field and the
        expectation
    """
    kind = next((each for each in LOADS if each in section), 'preset')
    check('scenario', section, LOADS[kind], 'load')
    if kind == 'trace':
        return _traced(traces.read(
            pathlib.Path(section['trace']), section.get('form'),
            section.get('machine')), hours)
    if kind == 'recording':
        return _recorded(
            section['recording'], hours,
            _curve(section, 'lifetimes', LIFETIME_MIN_H)
            if 'lifetimes' in section else None, random)
    name = str(section.get('preset'))
    if name not in presets():
        raise invalid('preset', 'one of ' + ', '.join(sorted(presets())),
                      f'unknown preset {name!a:.60}')
    values = {**presets()[name], **section}
    if sum(values.get('groups', {}).values()) > 1:
        raise invalid('groups', 'at most 1',
                      'the sum of the shares is above 1')
    rate = values['rate'] if 'rate' in section else (
        values['rate'] * hosts / 1000)
    fill = section.get('fill')
    if fill is None or capacity is None:
        return SyntheticLoad(values, random, hours, rate)
    # The number of mean servers that fill the scarcest resource. As many
    # servers arrive in a mean lifetime.
    flavors, shares = flavors_of(values)
    servers = fill / float(np.max(
        shares @ sizes_of(flavors) / np.maximum(capacity, 1e-9)))
    if 'rate' not in section:
        rate = servers / _curve(values, 'lifetimes', LIFETIME_MIN_H).mean
    return SyntheticLoad(values, random, hours, rate, round(servers))


def flavors_of(
    values: Mapping[str, Any]
) -> tuple[tuple[Flavor, ...], Column]:
    """Return the flavors of a preset and their shares."""
    percents = np.array([each[2] for each in values['flavors']], 'float64')
    if percents.sum() <= 0:
        raise invalid('flavors', 'at least one percentage above 0')
    return tuple(
        Flavor(f'{vcpus}c-{memory:g}g', vcpus, round(memory * 1024),
               values.get('disk_gb', 20))
        for vcpus, memory, _ in values['flavors']
    ), percents / percents.sum()


def sizes_of(flavors: Sequence[Flavor]) -> Column:
    """Return vCPUs, memory in MB and disk in GB of flavors, as rows."""
    return np.array([each[1:] for each in flavors], dtype='float64')


def invalid(
    field: str, expected: str | None, problem: str | None = None
) -> exception.InvalidField:
    """Return the error for a field of the section ``load``."""
    return exception.InvalidField(
        where='scenario', field=f'load.{field}', problem=problem,
        expected=expected)


def _curve(values: Mapping[str, Any], field: str, least: float) -> Curve:
    try:
        return Curve(values[field], least)
    except ValueError as exc:
        raise invalid(field, None, str(exc)) from None


def _bounds(shares: Column) -> Column:
    """Return the upper bounds of shares in 0..1, for a search."""
    bounds: Column = np.cumsum(shares) / np.sum(shares)
    bounds[-1] = 1.0
    return bounds
