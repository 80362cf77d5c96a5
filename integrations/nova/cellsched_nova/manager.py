# SPDX-License-Identifier: Apache-2.0
"""The scheduler manager that Nova's service runs, and that service."""

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import random
import sys
from typing import Any

from nova.compute import utils
import nova.conf
from nova import context as nova_context
from nova.db.api import api as api_db
from nova.db.main import api as main_db
from nova import exception as nova_exception
from nova import objects
from nova.objects import fields
from nova.scheduler.client import report
from nova.scheduler.manager import SchedulerManager
from nova.scheduler import rpcapi
from nova import service
from nova import utils as nova_utils
from nova import version
from oslo_concurrency import processutils
from oslo_log import log
import oslo_messaging
from oslo_reports import guru_meditation_report
from oslo_reports import opts as report_opts
from oslo_serialization import jsonutils
from oslo_utils import importutils

from cellsched.claims import coordination
from cellsched import exception
from cellsched_nova import claims
from cellsched_nova import configuration
from cellsched_nova.decision import Components
from cellsched_nova.decision import make_components
from cellsched_nova.decision import RequestDecision
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

#: Nova's pools of threads, since Nova 34.
thread_pool_factory = importutils.try_import('nova.thread_pool_factory')

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
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        options.register_opts(CONF)
        super().__init__(*args, **kwargs)
        self._options = configuration.ProductOptions(CONF)

    def init_host(self, service_ref: Any) -> None:
        """Start to read hosts periodically and to record decisions."""
        super().init_host(service_ref)
        sys.setswitchinterval(_SWITCH_S)
        self._random = random.Random()
        # Like Nova's own, this scheduler starts while Keystone is down.
        self._client = report_client.LateReportClient()
        self._hosts = source.NovaHosts(self.host_manager, self._client, CONF)
        self._claims = claims.make(
            self._client, CONF.cellsched.claim_timeout,
            self._hosts.places, CONF.cellsched.placement_guards,
            coordination.backend_url(self._options.conf))
        self._records = records.DecisionRecords(
            records.open_database(CONF), CONF.cellsched.decision_retention)
        self._parts = self._make_parts()
        interval_s = CONF.cellsched.refresh_interval
        if interval_s:
            self._hosts.start(interval_s)
        self._claims.deferred.start()
        self._records.start()

    def _make_parts(self) -> Components:
        """Return the components for the current options."""
        parts = make_components(
            self._options.conf, self._random, self._hosts, self.host_manager,
            self._client, self._claims, CONF, self._records.record)
        by_row = parts.plugins.by_row
        if by_row:
            LOG.info('Plug-ins that check one host at a time: %s',
                     ', '.join(by_row))
        return parts

    def graceful_shutdown(self, *timeout: float) -> None:
        """Stop the threads, and shut down as Nova's manager does.

        :param timeout: seconds; Nova 33 gives none
        """
        # Nova ends the threads that read the cells.
        self._hosts.stop()
        super().graceful_shutdown(*timeout)
        self._stop()

    def cleanup_host(self) -> None:
        """Stop the threads; Nova 32 calls this only."""
        self._hosts.stop()
        super().cleanup_host()
        self._stop()

    def _stop(self) -> None:
        self._claims.deferred.stop()
        self._records.stop()

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
    except exception.ConfigurationInvalid as exc:
        print(f'invalid configuration: {exc}', file=sys.stderr)
        return 1
    problems = configuration.problems(
        CONF, 'api_database', 'database', 'placement')
    if problems:
        for problem in problems:
            print(f'invalid configuration: {problem}', file=sys.stderr)
        return 1
    log.setup(CONF, 'nova')
    objects.register_all()
    report_opts.set_defaults(CONF)
    objects.Service.enable_min_version_cache()
    guru_meditation_report.TextGuruMeditation.setup_autorun(version, conf=CONF)
    install_manager()
    try:
        with configuration.translate_errors():
            server = service.Service.create(
                binary=_BINARY, topic=rpcapi.RPC_TOPIC)
    except exception.CellschedException as exc:
        print(f'cannot start: {exc}', file=sys.stderr)
        return 1
    release_process_resources()
    service.serve(server, workers=CONF.scheduler.workers
                  or processutils.get_worker_count())
    service.wait()
    return 0


def release_process_resources() -> None:
    """Release the threads and connections that a fork must not share.

    The workers are forks of this process. Two processes that share a
    connection read each other's answers.
    """
    if thread_pool_factory is None:
        # Nova 32 and 33 have two pools.
        nova_utils.destroy_scatter_gather_executor()
        nova_utils.destroy_default_executor()
    else:
        thread_pool_factory.reset_all_executors()
    for engine in (
            api_db.get_engine(), main_db.get_engine(),
            *(database.writer.get_engine() for database, _
              in nova_context.CELL_CACHE.values())):
        engine.dispose()
    nova_context.CELL_CACHE.clear()
    # Each worker makes a client, with a session of its own, at the first use.
    report.PLACEMENTCLIENT = None


def install_manager() -> None:
    """Make Nova's scheduler service use the manager of this package."""
    kind = ColumnSchedulerManager
    service.SERVICE_MANAGERS[_BINARY] = f'{kind.__module__}.{kind.__name__}'
