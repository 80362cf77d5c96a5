# SPDX-License-Identifier: Apache-2.0
"""Metrics of a process, published with prometheus_client.

Processes of one service write their values to files in a directory, and any of
them publishes the sums.
"""

import bisect
from collections.abc import Callable
from collections.abc import Iterable
import contextlib
import fcntl
from importlib import metadata
import itertools
import logging
import os
import pathlib
import shutil
import socket
import tempfile
import threading
from typing import Any

import prometheus_client
from prometheus_client import core
from prometheus_client import exposition
from prometheus_client.mmap_dict import mmap_key
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client import multiprocess

from cellsched import exception
from cellsched.observability import metrics
from cellsched.observability.metrics import Figure
from cellsched.observability.metrics import Reading

LOG = logging.getLogger(__name__)

#: Seconds until other processes of a service see the values of this one.
PUBLISH_S = 5.0

_FAMILIES: dict[str, Any] = {
    metrics.COUNTER: core.CounterMetricFamily,
    metrics.HISTOGRAM: core.HistogramMetricFamily,
    metrics.GAUGE: core.GaugeMetricFamily,
    metrics.FACT: core.GaugeMetricFamily}

#: Values by metric and labels. The last one is the sum. In a histogram, the
#: number of values in each bucket precedes it.
_Values = dict[tuple[Figure, tuple[str, ...]], list[float]]


class PrometheusMetrics(metrics.Metrics):
    """Adds values, and is a collector of prometheus_client.

    A request for hosts has about fifty values. An addition here costs a sixth
    of the library's, whose files of several processes cost twice as much
    again. So the values go to the files every few seconds.

    Make this object after the fork.

    :param service: publish the metrics of this service as zero from the start
    :param directory: the result of :func:`make_directory` for several
        processes; None for one
    """

    is_on = True

    def __init__(self, service: str, directory: str | None = None) -> None:
        self._lock = threading.Lock()
        self._version = metadata.version('cellsched')
        self._sources: list[Callable[[], Iterable[Reading]]] = []
        self._files = None if directory is None else _Files(directory)
        self.publish_s = 0.0 if directory is None else PUBLISH_S
        self._values: _Values = {
            (figure, labels): _zeros(figure) for figure in metrics.FIGURES
            if figure.name.startswith(f'cellsched_{service}_')
            and figure.kind in (metrics.COUNTER, metrics.HISTOGRAM)
            for labels in ([(each,) for each in figure.values]
                           if figure.labels else [()])}

    def add_all(self, readings: Iterable[Reading]) -> None:
        with self._lock:
            _add(self._values, readings)

    def add_source(self, source: Callable[[], Iterable[Reading]]) -> None:
        self._sources.append(source)

    def publish(self) -> None:
        if self._files is not None:
            self._files.write(_families(self._read()[0]))

    def exposition(self, accept: str) -> tuple[bytes, str]:
        registry = prometheus_client.CollectorRegistry()
        registry.register(self)
        encode, media_type = exposition.choose_encoder(accept)
        return encode(registry), media_type

    def collect(self) -> Iterable[core.Metric]:
        """Return the metrics for a registry of prometheus_client."""
        summed, facts = self._read()
        families = _families(summed)
        if self._files is not None:
            self._files.write(families)
            families = self._files.sums()
        return [*families, *_families(facts)]

    def close(self) -> None:
        if self._files is not None:
            self._files.close()

    def _read(self) -> tuple[_Values, _Values]:
        """Return the values that are summed over processes, and the facts."""
        found: _Values = {}
        _add(found, [(metrics.WORKERS, (), 1),
                     (metrics.VERSION, (self._version,), 1)])
        for source in self._sources:
            try:
                _add(found, source())
            except Exception:
                # The other metrics are more useful than none.
                LOG.exception('Some metrics could not be read')
        facts = {key: values for key, values in found.items()
                 if key[0].kind == metrics.FACT}
        with self._lock:
            added = {key: [*values] for key, values in self._values.items()}
        return {**added, **{key: values for key, values in found.items()
                            if key not in facts}}, facts


def _zeros(figure: Figure) -> list[float]:
    return [0.0] * (len(figure.buckets) + 2 if figure.buckets else 1)


def _add(values: _Values, readings: Iterable[Reading]) -> None:
    for figure, labels, value in readings:
        known = values.get((figure, labels))
        if known is None:
            known = values[figure, labels] = _zeros(figure)
        if figure.buckets:
            known[bisect.bisect_left(figure.buckets, value)] += 1
        known[-1] += value


def _families(values: _Values) -> Iterable[core.Metric]:
    """Return values as metrics of the library, with cumulative buckets."""
    made: dict[Figure, Any] = {}
    for (figure, labels), (*numbers, total) in values.items():
        if figure not in made:
            made[figure] = _FAMILIES[figure.kind](
                figure.name, figure.help, labels=figure.labels)
        if numbers:
            bounds = [*map(repr, map(float, figure.buckets)), '+Inf']
            made[figure].add_metric(
                labels, [*zip(bounds, itertools.accumulate(numbers))], total)
        else:
            made[figure].add_metric(labels, total)
    return made.values()


def make_directory(listener: socket.socket) -> str:
    """Make the directory for the metrics of the processes of a service.

    Call this before the fork. One service at a time listens on an address and
    a port, so its directory has their names. The directory of a service that
    was killed is emptied.

    :raises cellsched.exception.ConfigurationInvalid: it cannot be made
    """
    address, port, *_ = listener.getsockname()
    path = pathlib.Path(tempfile.gettempdir(),
                        f'cellsched-metrics-{os.getuid()}-{address}-{port}')
    shutil.rmtree(path, ignore_errors=True)
    try:
        path.mkdir(0o700)
    except OSError as exc:
        raise exception.ConfigurationInvalid(
            field='[monitoring]',
            problem=f'cannot make the directory {path} for metrics of several '
            f'workers: {exc.strerror}',
            expected='a directory for temporary files that the service can '
            'write; TMPDIR names it') from None
    return str(path)


class _Files:
    """Values of the processes of a service, in files of prometheus_client.

    Each process has the smallest number that no running process has, and locks
    the file of its number. The lock ends with the process, however that ends.
    A process that replaces a dead one continues its counters, so there are as
    many files as processes at a time.
    """

    def __init__(self, directory: str) -> None:
        self._directory = pathlib.Path(directory)
        self._lock = threading.Lock()
        for number in itertools.count():
            self._owned = (self._directory / f'{number}.lock').open('ab')
            if _lock(self._owned):
                break
            self._owned.close()
        self._forget(number)
        self._files = {
            kind: MmapedDict(self._directory / f'{name}_{number}.db')
            for kind, name in ((metrics.COUNTER, 'counter'),
                               (metrics.HISTOGRAM, 'histogram'),
                               (metrics.GAUGE, 'gauge_livesum'))}
        #: Values of the process that had the number before, by key.
        self._before: dict[str, float] = {}

    def write(self, families: Iterable[core.Metric]) -> None:
        """Write the values of this process."""
        with self._lock:
            for family in families:
                file = self._files[family.type]
                for sample in family.samples:
                    key = mmap_key(
                        family.name, sample.name, [*sample.labels],
                        [*sample.labels.values()], family.documentation)
                    if key not in self._before:
                        self._before[key] = file.read_value(key)[0]
                    file.write_value(
                        key, self._before[key] + sample.value, 0.0)

    def sums(self) -> Iterable[core.Metric]:
        """Return the sums over all processes, without gauges of dead ones."""
        for path in self._directory.glob('*.lock'):
            with path.open('ab') as file:
                if _lock(file):
                    self._forget(path.stem)
        # The buckets in the files are cumulative already.
        return multiprocess.MultiProcessCollector.merge(
            self._directory.glob('*.db'), accumulate=False)

    def close(self) -> None:
        """Release the number; the next scrape removes the gauges."""
        self._owned.close()

    def _forget(self, number: object) -> None:
        """Remove the gauges of a process that has ended."""
        # Another process may remove them at the same time.
        with contextlib.suppress(FileNotFoundError):
            multiprocess.mark_process_dead(number, self._directory)


def _lock(file: Any) -> bool:
    """Lock a file; return False if another process holds the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
