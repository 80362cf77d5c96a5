# SPDX-License-Identifier: Apache-2.0
"""The metrics of a process, for Prometheus.

:data:`FIGURES` are all metrics. The code that a service runs records them in a
:class:`Metrics`, which does nothing, so that metrics cost nothing if they are
off. A process that publishes them has a :class:`PrometheusMetrics`.

Labels have few values: names of cells, plug-ins and resource classes, and
fixed words.
"""

import atexit
import bisect
import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import dataclasses
import fcntl
import functools
import importlib
from importlib import metadata
import itertools
import logging
import os
import pathlib
import shutil
import tempfile
import threading
from typing import Any

LOG = logging.getLogger(__name__)

#: Kinds of metrics. A gauge is summed over the processes of a service. A fact
#: is the same for all of them, and comes from the one that answers.
COUNTER, HISTOGRAM, GAUGE, FACT = 'counter', 'histogram', 'gauge', 'fact'


@dataclasses.dataclass(frozen=True, eq=False)
class Figure:
    """A metric.

    :param name: the name in Prometheus
    :param labels: names of the labels
    :param values: for a single label, the values that are published before
        they first occur, so that an alert sees the first increase
    :param buckets: upper bounds of a histogram, in seconds
    """

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def base(self) -> str:
        """The name without the suffix of a counter."""
        return self.name.removesuffix('_total')

    @property
    def type(self) -> str:
        """The type in Prometheus."""
        return GAUGE if self.kind == FACT else self.kind


#: Results of requests for hosts.
SELECTED, NO_VALID_HOST, UNCERTAIN, BUSY, FAILED = (
    'selected', 'no_valid_host', 'uncertain', 'busy', 'failed')

REQUESTS = Figure(
    'cellsched_scheduler_requests_total', COUNTER,
    'Requests for hosts, by result.', ('result',),
    (SELECTED, NO_VALID_HOST, UNCERTAIN, BUSY, FAILED))
REQUEST_SECONDS = Figure(
    'cellsched_scheduler_request_duration_seconds', HISTOGRAM,
    'Duration of requests for hosts, with their claims.',
    buckets=(.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10))
PHASE_SECONDS = Figure(
    'cellsched_scheduler_phase_duration_seconds', HISTOGRAM,
    'Duration of the phases of requests: to read changed hosts, to wait for '
    'a decision and select hosts, and to claim them.', ('phase',),
    ('read', 'select', 'claim'), REQUEST_SECONDS.buckets)
PLUGIN_SECONDS = Figure(
    'cellsched_scheduler_plugin_duration_seconds', HISTOGRAM,
    'Duration of a filter or a weigher in a request.', ('kind', 'plugin'),
    buckets=(.00001, .0001, .001, .01, .1, 1))
HOSTS_IN = Figure(
    'cellsched_scheduler_filter_hosts_entered_total', COUNTER,
    'Hosts that reached a filter.', ('filter',))
HOSTS_OUT = Figure(
    'cellsched_scheduler_filter_hosts_passed_total', COUNTER,
    'Hosts that passed a filter.', ('filter',))
CLAIMS = Figure(
    'cellsched_scheduler_claims_total', COUNTER,
    'Claims for requests, by result: won; lost, because another scheduler '
    'claimed first; busy, because a host was locked; conflict, because a '
    'server held other claims; failed.', ('result',),
    ('won', 'lost', 'busy', 'conflict', 'failed'))
CLAIM_RETRIES = Figure(
    'cellsched_scheduler_claim_retries_total', COUNTER,
    'Selections that were repeated after a claim was not won.')
RECORDED = Figure(
    'cellsched_scheduler_recorded_decisions_total', COUNTER,
    'Decisions for the recording of [scheduler] record, by result: written, '
    'or dropped, because they came faster than they can be written.',
    ('result',), ('written', 'dropped'))
PENDING_CLAIMS = Figure(
    'cellsched_scheduler_pending_claims', GAUGE,
    'Selected hosts whose claims have no result yet.')
TABLE_READ = Figure(
    'cellsched_scheduler_host_table_read_timestamp_seconds', FACT,
    'Time of the last reading of the host table.')
CELL_READ = Figure(
    'cellsched_cell_read_timestamp_seconds', FACT,
    'Time of the last answer of a cell. The age of its data is time() minus '
    'this.', ('cell',))
SILENT_CELLS = Figure(
    'cellsched_silent_cells', FACT,
    'Enabled cells that did not answer the last reading.')
HOSTS = Figure(
    'cellsched_hosts', FACT, 'Compute hosts by state: up, down or disabled.',
    ('cell', 'state'))
SERVICES = Figure(
    'cellsched_services', FACT,
    'Services by state: up; down; stopped in order, which only schedulers and '
    'conductors record; disabled by an operator, up or not; unknown, if the '
    'cell does not answer. Services above the cells are in cell0.',
    ('binary', 'cell', 'state'))
CAPACITY_VCPUS = Figure(
    'cellsched_capacity_vcpus', FACT,
    'Virtual CPUs that the hosts of a cell offer.', ('cell',))
FREE_VCPUS = Figure(
    'cellsched_free_vcpus', FACT,
    'Virtual CPUs on hosts that are up and enabled that no claim takes.',
    ('cell',))
CAPACITY_MEMORY = Figure(
    'cellsched_capacity_memory_bytes', FACT,
    'Memory that the hosts of a cell offer.', ('cell',))
FREE_MEMORY = Figure(
    'cellsched_free_memory_bytes', FACT,
    'Memory on hosts that are up and enabled that no claim takes.', ('cell',))
CAPACITY_DISK = Figure(
    'cellsched_capacity_disk_bytes', FACT,
    'Disk that the hosts of a cell offer.', ('cell',))
FREE_DISK = Figure(
    'cellsched_free_disk_bytes', FACT,
    'Disk on hosts that are up and enabled that no claim takes.', ('cell',))
FREE_RESOURCES = Figure(
    'cellsched_free_resources', FACT,
    'Amount of another resource class on hosts that are up and enabled that '
    'no claim takes.', ('cell', 'resource_class'))
BUILDS = Figure(
    'cellsched_conductor_builds_total', COUNTER,
    'Builds by result: cast to a compute host; failed, and recorded in cell0; '
    'deleted by their user; retried after a transient error; left to another '
    'conductor.', ('result',),
    ('cast', 'failed', 'deleted', 'retried', 'left'))
BUILDS_NOW = Figure(
    'cellsched_conductor_builds_in_progress', GAUGE,
    'Builds by state: leased by a conductor, or waiting for a retry.',
    ('state',))
RECOVERED = Figure(
    'cellsched_conductor_recovered_builds_total', COUNTER,
    'Lost builds that were taken up, by reason: the lease of their conductor '
    'expired, a compute host did not begin them and was cast to again, or '
    'they were given to another host.', ('reason',),
    ('lease_expired', 'cast_again', 'other_host'))
COMPUTE_BUILDS = Figure(
    'cellsched_compute_builds_total', COUNTER,
    'Builds on a compute host by result: active; rescheduled to another host; '
    'error; deleted by their user.', ('result',),
    ('active', 'rescheduled', 'error', 'deleted'))
QUEUED = Figure(
    'cellsched_queued_tasks', GAUGE,
    'Tasks that wait for a thread, or to be written, by queue: the topic of '
    'messages; cells, for readings of cells; recovery, for builds that are '
    'taken up; decisions, for the records of decisions.', ('queue',))
RUNNING = Figure(
    'cellsched_running_tasks', GAUGE, 'Tasks that run, by queue.', ('queue',))
WORKERS = Figure(
    'cellsched_workers', GAUGE, 'Processes of the service that run.')
VERSION = Figure(
    'cellsched_build_info', FACT, 'The release, with the value 1.',
    ('version',))

#: Every metric.
FIGURES: tuple[Figure, ...] = tuple(
    each for each in vars().copy().values() if isinstance(each, Figure))

#: A value of a gauge or of a fact, with the values of its labels.
Reading = tuple[Figure, tuple[str, ...], float]

#: Returns values at the time of a scrape; must not wait for anything.
Source = Callable[[], Iterable[Reading]]


class Metrics:
    """Records nothing."""

    #: Whether anything is recorded.
    is_on = False

    #: Seconds between calls of :meth:`publish`; 0 if none is needed.
    publish_s = 0.0

    def add(
        self, figure: Figure, labels: tuple[str, ...] = (), value: float = 1
    ) -> None:
        """Increase a counter, or add a duration to a histogram."""
        if self.is_on:
            self.add_all([(figure, labels, value)])

    def add_all(self, readings: Iterable[Reading]) -> None:
        """Add several values at once, which costs less."""

    def add_later(self, read: Callable[[], Iterable[Reading]]) -> None:
        """Add the values that a function returns, before the next scrape.

        The function may be called in another thread.
        """

    def add_source(self, source: Source) -> None:
        """Read gauges and facts from a function."""

    def publish(self) -> None:
        """Write the values of this process for others of its service."""

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics, and their media type.

        :param accept: the media types that the client accepts
        """
        return b'', 'text/plain'

    def close(self) -> None:
        """Leave the other processes of the service."""


#: Seconds until other processes of a service see the values of this one.
_PUBLISH_S = 5.0

#: Values that wait for a scrape; with more, they are added at once.
_LATER_MAX = 1000

#: A metric and the values of its labels.
_Key = tuple[Figure, tuple[str, ...]]

#: A metric, a suffix, names and values of labels, and a value.
_Sample = tuple[Figure, str, tuple[str, ...], tuple[str, ...], float]


class PrometheusMetrics(Metrics):
    """Keeps metrics, and publishes them with prometheus_client.

    A request for hosts has many values, which are added between requests. Each
    costs an addition; the objects of the library cost several times as much.

    Processes of one service share a directory with files for each of them, and
    any of them publishes the sums. Make this object after the fork.

    :param service: publish the metrics of this service as zero from the start
    :param directory: the directory of several processes; None for one
    """

    is_on = True

    def __init__(self, service: str, directory: str | None = None) -> None:
        self._lock = threading.Lock()
        self._later: collections.deque[
            Callable[[], Iterable[Reading]]] = collections.deque()
        self._counts: dict[_Key, float] = {}
        #: The number of values in each bucket, and the sum of the values.
        self._durations: dict[_Key, list[float]] = {}
        self._sources: list[Source] = []
        self._shared = None if directory is None else _SharedValues(directory)
        self.publish_s = 0.0 if directory is None else _PUBLISH_S
        for figure in FIGURES:
            if not figure.name.startswith(f'cellsched_{service}_'):
                continue
            first: list[tuple[str, ...]] = [(each,) for each in figure.values]
            if not figure.labels:
                first = [()]
            for labels in first:
                if figure.kind == COUNTER:
                    self._counts[figure, labels] = 0
                elif figure.kind == HISTOGRAM:
                    self._durations[figure, labels] = _no_values(figure)

    def add_all(self, readings: Iterable[Reading]) -> None:
        counts, durations = self._counts, self._durations
        with self._lock:
            for figure, labels, value in readings:
                key = figure, labels
                if figure.kind == COUNTER:
                    counts[key] = counts.get(key, 0) + value
                    continue
                known = durations.get(key)
                if known is None:
                    known = durations[key] = _no_values(figure)
                known[bisect.bisect_left(figure.buckets, value)] += 1
                known[-1] += value

    def add_later(self, read: Callable[[], Iterable[Reading]]) -> None:
        self._later.append(read)
        if len(self._later) > _LATER_MAX:
            self._add_due()

    def _add_due(self) -> None:
        while True:
            try:
                read = self._later.popleft()
            except IndexError:
                # Another thread may have taken the last one.
                return
            try:
                self.add_all(read())
            except Exception:
                # The function belongs to another request.
                LOG.exception('Values could not be added to the metrics')

    def add_source(self, source: Source) -> None:
        self._sources.append(source)

    def publish(self) -> None:
        if self._shared is not None:
            self._shared.write(self._samples(self._read()[0]))

    def exposition(self, accept: str) -> tuple[bytes, str]:
        library = _library()
        registry = library.CollectorRegistry()
        if self._shared is None:
            registry.register(self)
        else:
            gauges, facts = self._read()
            self._shared.write(self._samples(gauges))
            self._shared.register(registry)
            registry.register(_Samples([
                (figure, '', figure.labels, labels, value)
                for (figure, labels), value in facts.items()]))
        encode, kind = library.exposition.choose_encoder(accept)
        return encode(registry), kind

    def collect(self) -> Iterable[Any]:
        """Return the metrics of this process for prometheus_client.

        With this method the object can be registered as a collector.
        """
        gauges, facts = self._read()
        return _Samples(self._samples(
            {**gauges, **facts}, cumulative=True)).collect()

    def close(self) -> None:
        if self._shared is not None:
            self._shared.close()

    def _read(self) -> tuple[dict[_Key, float], dict[_Key, float]]:
        """Return the gauges and the facts."""
        gauges: dict[_Key, float] = {(WORKERS, ()): 1}
        facts: dict[_Key, float] = {
            (VERSION, (_version(),)): 1}
        for source in self._sources:
            try:
                for figure, labels, value in source():
                    found = facts if figure.kind == FACT else gauges
                    key = figure, labels
                    found[key] = found.get(key, 0) + value
            except Exception:
                # The other metrics are more useful than none.
                LOG.exception('Some metrics could not be read')
        return gauges, facts

    def _samples(
        self, readings: Mapping[_Key, float], cumulative: bool = False
    ) -> Iterator[_Sample]:
        """Yield the samples of counters, histograms and other readings.

        :param cumulative: whether buckets include the buckets below them
        """
        self._add_due()
        with self._lock:
            counts = {**self._counts, **readings}
            durations = {key: (*value,)
                         for key, value in self._durations.items()}
        for (figure, labels), value in counts.items():
            yield figure, '', figure.labels, labels, value
        for (figure, labels), (*numbers, total) in durations.items():
            yield figure, '_sum', figure.labels, labels, total
            if cumulative:
                numbers = [*itertools.accumulate(numbers)]
                yield figure, '_count', figure.labels, labels, numbers[-1]
            bounds = [*map(repr, map(float, figure.buckets)), '+Inf']
            for bound, number in zip(bounds, numbers, strict=True):
                yield (figure, '_bucket', (*figure.labels, 'le'),
                       (*labels, bound), number)


@functools.cache
def _version() -> str:
    """Return the release; finding it takes as long as half a scrape."""
    return metadata.version('cellsched')


def _library() -> Any:
    """Return the library, with the modules that are used here."""
    # It takes long to import, and most processes do not need it.
    importlib.import_module('prometheus_client.multiprocess')
    return importlib.import_module('prometheus_client')


def _no_values(figure: Figure) -> list[float]:
    return [0.0] * (len(figure.buckets) + 2)


class _Samples:
    """Collects samples for the library."""

    def __init__(self, samples: Iterable[_Sample]) -> None:
        self._samples = samples

    def collect(self) -> Iterable[Any]:
        made: dict[str, Any] = {}
        for figure, suffix, names, labels, value in self._samples:
            metric = made.get(figure.name)
            if metric is None:
                metric = made[figure.name] = _library().Metric(
                    figure.base, figure.help, figure.type)
            metric.add_sample(
                figure.name + suffix, dict(zip(names, labels)), value)
        return made.values()


#: The beginning of the names of directories for metrics, and in each the file
#: that the processes of the service lock.
_PREFIX, _OWNER = 'cellsched-metrics-', 'service'


class SharedDirectory:
    """A directory for the metrics of the processes of a service.

    Make it before the fork. It is removed when the process that made it ends.
    If that is killed, the next service of the same user on the machine removes
    it, once all processes that inherited it have ended.

    :ivar path: the path of the directory
    """

    def __init__(self) -> None:
        while True:
            self.path = tempfile.mkdtemp(prefix=_PREFIX)
            owner = pathlib.Path(self.path, _OWNER)
            self._file = owner.open('ab')
            # Another service may have removed it before it was locked.
            if _lock(self._file) and owner.exists():
                break
            self._file.close()
        self._pid = os.getpid()
        atexit.register(self.remove)
        _remove_stale_directories()

    def remove(self) -> None:
        """Remove the directory, if this process made it."""
        # Forks run this, too.
        if os.getpid() == self._pid:
            shutil.rmtree(self.path, ignore_errors=True)


def _remove_stale_directories() -> None:
    """Remove the directories of this user that no process has locked."""
    for path in pathlib.Path(tempfile.gettempdir()).glob(f'{_PREFIX}*'):
        # Another service may remove it meanwhile.
        with contextlib.suppress(OSError):
            if path.is_symlink() or path.stat().st_uid != os.getuid():
                continue
            with (path / _OWNER).open('rb') as file:
                if _lock(file):
                    shutil.rmtree(path, ignore_errors=True)


class _SharedValues:
    """Values of a process in files, which all processes of a service read.

    A worker that replaces a dead one continues its counters.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        slot = self._slot = _Slot(directory)
        # The library opens files there.
        os.environ['PROMETHEUS_MULTIPROC_DIR'] = directory
        self._kind = _library().values.MultiProcessValue(lambda: slot.number)
        self._lock = threading.Lock()
        #: Values of the library, with those of the process before.
        self._values: dict[tuple[str, tuple[str, ...]], tuple[Any, float]] = {}

    def write(self, samples: Iterable[_Sample]) -> None:
        """Write the values of this process."""
        with self._lock:
            for figure, suffix, names, labels, value in samples:
                key = figure.name + suffix, labels
                if key not in self._values:
                    made = self._kind(
                        figure.type, figure.base, key[0], names, labels,
                        figure.help, multiprocess_mode='livesum')
                    before = 0.0 if figure.kind == GAUGE else made.get()
                    self._values[key] = made, before
                made, before = self._values[key]
                made.set(before + value)

    def register(self, registry: Any) -> None:
        """Add the sums over all processes to a registry."""
        multiprocess = _library().multiprocess
        for number in self._slot.find_dead():
            multiprocess.mark_process_dead(number, self._directory)
        multiprocess.MultiProcessCollector(registry, self._directory)

    def close(self) -> None:
        _library().multiprocess.mark_process_dead(
            self._slot.number, self._directory)
        self._slot.close()


class _Slot:
    """The number of a process among those of its service.

    It is the smallest number without a locked file. The lock ends with the
    process, however that ends.
    """

    def __init__(self, directory: str) -> None:
        self._directory = pathlib.Path(directory)
        for self.number in itertools.count():
            self._file = self._path(self.number).open('ab')
            if _lock(self._file):
                break
            self._file.close()
        # The gauges of the process that had the number before.
        _library().multiprocess.mark_process_dead(self.number, directory)

    def find_dead(self) -> list[int]:
        """Return the numbers whose processes have ended."""
        dead = []
        for path in self._directory.glob('*.lock'):
            if path != self._path(self.number):
                with path.open('ab') as file:
                    if _lock(file):
                        dead.append(int(path.stem))
        return dead

    def close(self) -> None:
        """Release the number."""
        self._file.close()

    def _path(self, number: int) -> pathlib.Path:
        return self._directory / f'{number}.lock'


def _lock(file: Any) -> bool:
    """Lock a file; return False if another process holds the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def queue_readings(queue: str, state: Mapping[str, Any]) -> list[Reading]:
    """Return the gauges of a queue.

    :param state: what :meth:`cellsched.batching.TaskQueue.state` returns
    """
    return [(QUEUED, (queue,), state.get('waiting', 0)),
            (RUNNING, (queue,), state.get('running', 0))]
