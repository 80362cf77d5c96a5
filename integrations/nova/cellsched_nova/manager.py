# SPDX-License-Identifier: Apache-2.0
"""The manager that Nova's service runs in the place of its own."""

import random
from typing import Any

import nova.conf
from nova import exception as nova_exception
from nova import objects as nova_objects
from nova.scheduler import manager
from oslo_log import log
import oslo_messaging
from oslo_serialization import jsonutils

from cellsched import exception
from cellsched_nova import claims
from cellsched_nova import configuration
from cellsched_nova import deciding
from cellsched_nova import decision_parts
from cellsched_nova import notices
from cellsched_nova import options
from cellsched_nova import records
from cellsched_nova import report_client
from cellsched_nova import source

CONF = nova.conf.CONF
LOG = log.getLogger(__name__)

_NOT_GIVEN = object()


class ColumnSchedulerManager(manager.SchedulerManager):
    """Decides on columns, over Nova's databases and Placement.

    What Nova's manager hears of aggregates and instances, its host manager
    keeps as ever, and this one reads it there.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        options.register_opts(CONF)
        super().__init__(*args, **kwargs)
        self._options = configuration.ProductOptions(CONF)
        self._random = random.Random()
        # As Nova's own, this one starts though Keystone is down.
        self._client = report_client.LateReportClient()
        self._hosts = source.NovaHosts(self.host_manager, self._client, CONF)
        self._claims = claims.make(
            self._client, CONF.cellsched.claim_timeout,
            self._hosts.places, CONF.cellsched.placement_guards)
        self._records = records.DecisionRecords(
            records.open_database(CONF), CONF.cellsched.decision_retention)
        self._parts = self._make_parts()

    def _make_parts(self) -> decision_parts.Parts:
        """Return what decides as the options are now."""
        parts = decision_parts.make(
            self._options.conf, self._random, self._hosts, self.host_manager,
            self._client, self._claims, CONF, self._records.record)
        by_row = parts.plugins.by_row
        if by_row:
            LOG.info('Asked about one host after the other: %s',
                     ', '.join(by_row))
        return parts

    def init_host(self, service_ref: Any) -> None:
        """Begin to read hosts all the time, and to write what was decided."""
        super().init_host(service_ref)
        interval_s = CONF.cellsched.refresh_interval
        if interval_s:
            self._hosts.start(interval_s)
        self._claims.owed.start()
        self._records.start()

    def graceful_shutdown(self, timeout: float) -> None:
        """Read hosts no more, and do what Nova's manager does."""
        # Nova ends the threads by which cells are read.
        self._hosts.stop()
        super().graceful_shutdown(timeout)
        self._claims.owed.stop()
        self._records.stop()

    def _follow_options(self) -> None:
        """Have options that changed since count from now on."""
        try:
            if not self._options.follow():
                return
        except exception.ConfigurationInvalid as exc:
            LOG.error('An option is left as it was: %s', exc)
        self._parts = self._make_parts()

    @oslo_messaging.expected_exceptions(nova_exception.NoValidHost)
    def select_destinations(
        self, context: Any, request_spec: Any = None,
        filter_properties: Any = None, spec_obj: Any = _NOT_GIVEN,
        instance_uuids: Any = None, return_objects: bool = False,
        return_alternates: bool = False,
    ) -> list[Any]:
        """Choose a host for each instance, and claim it; as Nova's does."""
        if spec_obj is _NOT_GIVEN:
            spec_obj = nova_objects.RequestSpec.from_primitives(
                context, request_spec, filter_properties)
        self._follow_options()
        alternates = (CONF.scheduler.max_attempts - 1
                      if return_objects and return_alternates else 0)
        decision = deciding.RequestDecision(
            self._parts, context, spec_obj, instance_uuids, alternates)
        with notices.told(self.notifier, context, spec_obj):
            selections = decision.select()
        if return_objects:
            return selections
        return jsonutils.to_primitive(
            [first.to_dict() for first, *_ in selections])
