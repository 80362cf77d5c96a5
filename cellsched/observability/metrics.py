# SPDX-License-Identifier: Apache-2.0
"""The metrics of services, and the recorder that is used without a port.

To add a metric, define a :class:`Figure` here, and add a row to the table in
``doc/source/admin/metrics.rst``. The code that a service runs records values
in a :class:`Metrics`, which does nothing, so that metrics cost nothing if they
are off. A process that publishes them has a
:class:`cellsched.observability.prometheus.PrometheusMetrics`.

Labels have few values: names of cells, plug-ins and resource classes, and
fixed words.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
from typing import Any

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

#: A value, with its metric and the values of the labels.
Reading = tuple[Figure, tuple[str, ...], float]


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

    def add_source(self, source: Callable[[], Iterable[Reading]]) -> None:
        """Read gauges and facts from a function at each scrape.

        The function must not wait for anything.
        """

    def publish(self) -> None:
        """Write the values of this process for others of its service."""

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics, and their media type.

        :param accept: the media types that the client accepts
        """
        return b'', 'text/plain'

    def close(self) -> None:
        """Leave the other processes of the service."""


def queue_readings(queue: str, state: Mapping[str, Any]) -> list[Reading]:
    """Return the gauges of a queue.

    :param state: the result of :meth:`cellsched.batching.TaskQueue.state`
    """
    return [(QUEUED, (queue,), state.get('waiting', 0)),
            (RUNNING, (queue,), state.get('running', 0))]
