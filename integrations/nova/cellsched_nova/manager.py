# SPDX-License-Identifier: Apache-2.0
"""The scheduler manager that Nova's service runs, and that service."""

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import pathlib
import random
import socket
import sys
import threading
from typing import Any

from nova.compute import utils
import nova.conf
from nova import context as nova_context
from nova.db.api import api as api_db
from nova.db.main import api as main_db
from nova import exception as nova_exception
from nova import objects
from nova.objects import fields
from nova import rpc
from nova.scheduler.client import report
from nova.scheduler.manager import SchedulerManager
from nova.scheduler import rpcapi
from nova import service
from nova import thread_pool_factory
from nova import version
from oslo_concurrency import processutils
from oslo_log import log
import oslo_messaging
from oslo_reports import guru_meditation_report
from oslo_reports import opts as report_opts
from oslo_serialization import jsonutils
from oslo_utils import timeutils

from cellsched.claims import coordination
from cellsched.claims import listing
from cellsched.clock import Clock
from cellsched.conf import logging_setup
from cellsched.db import session
from cellsched import exception
from cellsched.observability import metrics
from cellsched.observability.metrics import Metrics
from cellsched.observability.metrics import Reading
from cellsched.observability import monitoring
from cellsched.observability.prometheus import make_directory
from cellsched.observability.prometheus import PrometheusMetrics
from cellsched.rpc import broker_urls
from cellsched.rpc import delivery
from cellsched.scheduler.drivers import filter_scheduler
from cellsched.scheduler import recording
from cellsched.wiring.service import monitor
from cellsched_nova import cells as nova_cells
from cellsched_nova import claims
from cellsched_nova import configuration
from cellsched_nova.decision import Components
from cellsched_nova.decision import make_components
from cellsched_nova.decision import make_lane
from cellsched_nova.decision import RequestDecision
from cellsched_nova import enabled_plugins
from cellsched_nova import options
from cellsched_nova import records
from cellsched_nova import report_client
from cellsched_nova import source


@contextlib.contextmanager
def notify_request(notifier: Any, context: Any, spec: Any) -> Iterator[None]:
    """Send the start and end notifications, versioned and unversioned.

    A request that fails has no end notification, as in Nova.

    :param notifier: the notifier for unversioned messages
    """
    for phase in fields.NotificationPhase.START, fields.NotificationPhase.END:
        notifier.info(
            context, f'scheduler.select_destinations.{phase}',
            {'request_spec': spec.to_legacy_request_spec_dict()})
        utils.notify_about_scheduler_action(
            context=context, request_spec=spec,
            action=fields.NotificationAction.SELECT_DESTINATIONS, phase=phase)
        if phase == fields.NotificationPhase.START:
            yield


CONF = nova.conf.CONF
LOG = log.getLogger(__name__)

#: Seconds for which one thread runs while others wait. After each answer of a
#: server, a request waits that long for the thread that reads the hosts.
_SWITCH_S = 0.0005

#: The binary name of a scheduler in Nova's service records.
_BINARY = 'nova-scheduler'

_NOT_GIVEN = object()


class ColumnSchedulerManager(SchedulerManager):
    """Selects hosts with column filters, from Nova's databases and Placement.

    Nova's host manager keeps the reported aggregates and instances, and this
    manager reads them there. Nova creates the manager before it forks the
    workers, and calls :meth:`init_host` in each worker: only there are
    connections, locks and random numbers made.

    :cvar listener: the socket for health and metrics, which workers inherit
    :cvar directory: the directory for the metrics of the workers
    """

    listener: socket.socket | None = None
    directory: str | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        options.register_opts(CONF)
        super().__init__(*args, **kwargs)
        self._options = configuration.ProductOptions(CONF)

    def init_host(self, service_ref: Any) -> None:
        """Start to read hosts periodically and to record decisions."""
        super().init_host(service_ref)
        sys.setswitchinterval(_SWITCH_S)
        self._random = random.Random()
        self._lane = make_lane()
        # The request filters of Nova use it, too.
        self._client = report.PLACEMENTCLIENT = (
            report_client.BoundedReportClient(CONF))
        self._hosts = source.NovaHosts(
            self.host_manager, self._client, CONF,
            hardware=enabled_plugins.hardware_columns(
                CONF, self.host_manager))
        self._claims = claims.make(
            self._client, CONF.cellsched.claim_timeout,
            self._hosts.places, CONF.cellsched.placement_guards,
            coordination.lock_of(
                self._options.conf, session.Databases(Clock())))
        self._metrics: Metrics = Metrics()
        if self.listener is not None:
            self._metrics = PrometheusMetrics('scheduler', self.directory)
            self._metrics.add_source(self._read_metrics)
        self._records = records.DecisionRecords(
            records.open_database(CONF), CONF.cellsched.decision_retention)
        self._stopping = threading.Event()
        self._recorder = self._make_recorder()
        self._parts = self._make_parts()
        interval_s = CONF.cellsched.refresh_interval
        if interval_s:
            self._hosts.start(interval_s)
        self._claims.deferred.start()
        self._records.start()
        if self._recorder is not None:
            threading.Thread(
                target=self._write_recording, args=(self._recorder,),
                daemon=True, name='recording').start()
        if self.listener is not None:
            self._serve(self.listener)

    def _serve(self, listener: socket.socket) -> None:
        """Answer requests for health, readiness and metrics."""
        def publish() -> None:
            while not self._stopping.wait(self._metrics.publish_s):
                self._metrics.publish()

        timeout_s = CONF.monitoring.check_timeout
        made = monitor(self._metrics, timeout_s, listener)
        made.watch(self.health_checks(timeout_s), self.unready)
        made.serve()
        if self._metrics.publish_s:
            threading.Thread(
                target=publish, daemon=True, name='metrics').start()

    def _read_metrics(self) -> Iterator[Reading]:
        yield metrics.QUEUED, ('decisions',), self._records.waiting
        yield from filter_scheduler.host_metrics(
            self._hosts, {uuid: cell.name for uuid, cell
                          in self.host_manager.cells.items()},
            timeutils.utcnow_ts(microsecond=True), CONF.service_down_time)

    def health_checks(self, timeout_s: float) -> dict[str, monitoring.Check]:
        """Return a check of each server that the scheduler needs."""
        client = rpc.get_client(oslo_messaging.Target(
            topic=rpcapi.RPC_TOPIC, namespace='baseapi', version='1.0'))

        def ping() -> str:
            client.prepare(
                server=self.host, timeout=timeout_s, retry=0).call(
                    nova_context.get_admin_context(), 'ping', arg='')
            return ''

        def read_mappings() -> str:
            with configuration.translate_errors():
                objects.CellMappingList.get_all(
                    nova_context.get_admin_context())
            return ''

        def ask_cells() -> str:
            cells = self.host_manager.cells.values()
            # A cell has less time than all checks together.
            _, silent = nova_cells.gathered(
                nova_context.get_admin_context(), [*cells], nova_cells.ping,
                timeout_s=timeout_s / 2)
            names = ', '.join(sorted(cell.identity for cell in silent))
            if silent and len(silent) == len(cells):
                raise exception.CellUnreachable(
                    cell=names, reason='no cell answers')
            return f'no answer of {names}' if silent else ''

        def probe() -> str:
            with self._claims.deadline.of_request(timeout_s):
                return listing.probe(self._claims.store, self.host)

        return {
            f'broker, topic {rpcapi.RPC_TOPIC}': ping,
            'API database': read_mappings, 'cells': ask_cells,
            'Placement': probe}

    def unready(self) -> str:
        """Return why the scheduler takes no requests; empty if it does."""
        if self._stopping.is_set():
            return 'the service stops'
        return filter_scheduler.unready(
            self._hosts, Clock().timestamp(), CONF.cellsched.refresh_interval,
            '[cellsched] stale_hosts_timeout',
            CONF.cellsched.stale_hosts_timeout)

    def _make_parts(self) -> Components:
        """Return the components for the current options."""
        parts = make_components(
            self._options.conf, self._random, self._hosts, self.host_manager,
            self._client, self._claims, CONF, self._records.record,
            self._lane)
        parts = dataclasses.replace(
            parts, metrics=self._metrics, recorder=self._recorder)
        by_row = parts.plugins.by_row
        if by_row:
            LOG.info('Plug-ins that check one host at a time: %s',
                     ', '.join(by_row))
        return parts

    def _make_recorder(self) -> recording.Recorder | None:
        """Return the recorder of decisions, if it is on."""
        if not CONF.cellsched.record:
            return None
        made = recording.Recorder(
            pathlib.Path(CONF.cellsched.record),
            CONF.cellsched.record_mb * 2 ** 20,
            lambda: self._parts.plugins.header(self._options.conf),
            Clock().monotonic, self._metrics)
        try:
            made.check()
        except exception.ConfigurationInvalid as exc:
            LOG.error('Decisions are not recorded: %s', exc)
            return None
        return made

    def _write_recording(self, recorder: recording.Recorder) -> None:
        while not self._stopping.wait(recording.SPACING_S):
            recorder.flush()

    def graceful_shutdown(self, timeout: float) -> None:
        """Stop the threads, and shut down as Nova's manager does."""
        self._stopping.set()
        # Nova ends the threads that read the cells.
        self._hosts.stop()
        super().graceful_shutdown(timeout)
        self._claims.deferred.stop()
        self._records.stop()
        if self._recorder is not None:
            self._recorder.close()

    def update_aggregates(self, ctxt: Any, aggregates: Any) -> None:
        """Receive changed aggregates; the next request is decided on them."""
        super().update_aggregates(ctxt, aggregates)
        self._hosts.apply_aggregates()

    def delete_aggregate(self, ctxt: Any, aggregate: Any) -> None:
        """Receive that an aggregate was deleted."""
        super().delete_aggregate(ctxt, aggregate)
        self._hosts.apply_aggregates()

    def _follow_options(self) -> None:
        """Apply the options that changed."""
        try:
            if not self._options.follow():
                return
        except exception.ConfigurationInvalid as exc:
            LOG.error('A changed option is ignored: %s', exc)
        self._parts = self._make_parts()
        if self._recorder is not None:
            self._recorder.follow_options()

    @oslo_messaging.expected_exceptions(nova_exception.NoValidHost)
    def select_destinations(
        self, context: Any, request_spec: Any = None,
        filter_properties: Any = None, spec_obj: Any = _NOT_GIVEN,
        instance_uuids: Any = None, return_objects: bool = False,
        return_alternates: bool = False,
    ) -> list[Any]:
        """Select and claim a host for each instance, as in Nova."""
        if spec_obj is _NOT_GIVEN:
            spec_obj = objects.RequestSpec.from_primitives(
                context, request_spec, filter_properties)
        self._follow_options()
        alternates = (CONF.scheduler.max_attempts - 1
                      if return_objects and return_alternates else 0)
        decision = RequestDecision(
            self._parts, context, spec_obj, instance_uuids, alternates)
        with notify_request(self.notifier, context, spec_obj):
            selections = decision.select()
        if return_objects:
            return selections
        return jsonutils.to_primitive(
            [first.to_dict() for first, *_ in selections])


def run(argv: Sequence[str]) -> int:
    """Run the service until it is stopped; return an exit code.

    :param argv: the arguments of nova-scheduler
    """
    options.register_opts(CONF)
    try:
        configuration.read(argv)
        problems = configuration.problems(
            CONF, 'api_database', 'database', 'placement')
        if not problems:
            logging_setup.set_up(CONF, 'nova')
            configuration.make_mutable(CONF)
    except exception.ConfigurationInvalid as exc:
        problems = [str(exc)]
    if problems:
        for problem in problems:
            print(f'invalid configuration: {problem}', file=sys.stderr)
        return 1
    objects.register_all()
    report_opts.set_defaults(CONF)
    objects.Service.enable_min_version_cache()
    guru_meditation_report.TextGuruMeditation.setup_autorun(version, conf=CONF)
    install_manager()
    try:
        if CONF.monitoring.scheduler_port is not None:
            ColumnSchedulerManager.listener = monitoring.listen(
                CONF.monitoring.address, CONF.monitoring.scheduler_port)
            ColumnSchedulerManager.directory = make_directory(
                ColumnSchedulerManager.listener)
        with configuration.translate_errors():
            # The manager of Nova would open connections that remain open.
            client = report.PLACEMENTCLIENT = (
                report_client.BoundedReportClient(CONF))
            server = service.Service.create(
                binary=_BINARY, topic=rpcapi.RPC_TOPIC)
            report_client.check(client)
    except exception.CellschedException as exc:
        print(f'cannot start: {exc}', file=sys.stderr)
        return 1
    warn_of_queues()
    release_process_resources()
    service.serve(server, workers=CONF.scheduler.workers
                  or processutils.get_worker_count())
    service.wait()
    return 0


def warn_of_queues() -> None:
    """Log one warning if the broker refuses the queues of Nova's options.

    The options are Nova's. Its server repeats the declaration for ever.
    """
    try:
        delivery.check_queues(
            CONF, broker_urls.parse(CONF, CONF.transport_url),
            '[DEFAULT] transport_url', [oslo_messaging.Target(
                topic=rpcapi.RPC_TOPIC, server=CONF.host)])
    except exception.CellschedException as exc:
        LOG.warning('%s', exc.format_message())
    except oslo_messaging.MessageDeliveryFailure as exc:
        LOG.warning('%s', exc)
    except ValueError:
        # The text may quote a password. Nova accepts the URL.
        LOG.warning('[DEFAULT] transport_url: the queues of the broker are '
                    'not checked: a special character is not encoded')


def release_process_resources() -> None:
    """Release the threads and connections that a fork must not share.

    The workers are forks of this process. Two processes that share a
    connection read each other's answers.
    """
    thread_pool_factory.reset_all_executors()
    for engine in (
            api_db.get_engine(), main_db.get_engine(),
            *(database.writer.get_engine() for database, _
              in nova_context.CELL_CACHE.values())):
        engine.dispose()
    nova_context.CELL_CACHE.clear()


def install_manager() -> None:
    """Make Nova's scheduler service use the manager of this package."""
    kind = ColumnSchedulerManager
    service.SERVICE_MANAGERS[_BINARY] = f'{kind.__module__}.{kind.__name__}'
