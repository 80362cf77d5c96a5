# SPDX-License-Identifier: Apache-2.0
"""The process that compares its decisions with nova-scheduler."""

from collections.abc import Mapping
from collections.abc import Sequence
import datetime
import random
import signal
import sys
import threading
from typing import Any

import nova.conf
from nova import rpc
from nova.scheduler.client import report
from nova.scheduler import host_manager
from oslo_config import cfg
from oslo_log import log
import oslo_messaging
from oslo_utils import timeutils

from cellsched_nova import claims
from cellsched_nova import configuration
from cellsched_nova import decision
from cellsched_nova import deployment
from cellsched_nova import records
from cellsched_nova.shadow import comparison
from cellsched_nova.shadow import requests
from cellsched_nova.shadow.scheduler import ShadowScheduler
from cellsched_nova import source

CONF = nova.conf.CONF
LOG = log.getLogger(__name__)

#: Drivers that send notifications to other processes.
_DRIVERS = frozenset({'messaging', 'messagingv2', 'routing'})

_EVENT = 'scheduler.select_destinations.'

#: Seconds between checks for requests without an end.
_SPACING_S = 1.0


class Endpoint:
    """Receives the notifications of nova-scheduler in both formats."""

    filter_rule = oslo_messaging.NotificationFilter(
        event_type=r'^scheduler\.select_destinations\.(start|end)$')

    def __init__(self, shadow: ShadowScheduler) -> None:
        self._shadow = shadow
        self._lock = threading.Lock()

    def info(
        self, context: Any, publisher_id: str, event_type: str,
        payload: Mapping[str, Any], metadata: Mapping[str, Any],
    ) -> None:
        """Handle a notification; never fails."""
        try:
            with self._lock:
                if event_type == f'{_EVENT}start':
                    self._shadow.begin(context, payload, _age_s(metadata))
                else:
                    self._shadow.end(context, payload)
        except requests.RequestUnknown as exc:
            LOG.warning('A notification of publisher %s is ignored: %s',
                        publisher_id, exc)
        except Exception:
            # The next notifications must still be received.
            LOG.exception('A notification of publisher %s is ignored',
                          publisher_id)

    def expire(self) -> None:
        """Conclude the requests without an end; never fails."""
        try:
            with self._lock:
                self._shadow.expire()
        except Exception:
            # The next requests may still be compared.
            LOG.exception('A request could not be compared')


def problems(conf: cfg.ConfigOpts) -> list[str]:
    """Return the problems of the notifications, a line for each."""
    drivers = conf.oslo_messaging_notifications.driver
    if _DRIVERS.intersection(drivers):
        return []
    return ['[oslo_messaging_notifications] driver: nova-scheduler sends no '
            'notifications; expected one of ' + ', '.join(sorted(_DRIVERS))]


def topics(conf: cfg.ConfigOpts) -> list[str]:
    """Return the topics of the most detailed enabled format."""
    found: list[str] = (
        conf.oslo_messaging_notifications.topics
        if conf.notifications.notification_format == 'unversioned'
        else conf.notifications.versioned_notifications_topics)
    return found


def listener(conf: cfg.ConfigOpts, endpoint: Endpoint) -> Any:
    """Return the listener, in a pool so that other listeners still receive."""
    return oslo_messaging.get_notification_listener(
        oslo_messaging.get_notification_transport(
            conf, allowed_remote_exmods=rpc.get_allowed_exmods()),
        [oslo_messaging.Target(topic=topic) for topic in topics(conf)],
        [endpoint], executor='threading',
        serializer=rpc.RequestContextSerializer(None),
        pool=conf.cellsched.shadow_pool)


def make_shadow(
    conf: cfg.ConfigOpts, store: comparison.ComparisonStore
) -> ShadowScheduler:
    """Return the scheduler that decides as the manager does, without claims.

    Reads Nova's databases and Placement.
    """
    own = configuration.ProductOptions(conf).conf
    manager = host_manager.HostManager()
    configuration.check_cells(conf, manager.cells.values())
    client = report.report_client_singleton()
    hosts = source.NovaHosts(manager, client, conf)
    parts = decision.make_components(
        own, random.Random(), hosts, manager, client,
        claims.make(client, 0.0, hosts.places), conf)
    return ShadowScheduler(
        parts, store.add, conf.cellsched.shadow_timeout)


def set_up(conf: cfg.ConfigOpts) -> None:
    """Set the options for a process that receives no calls.

    Nova's API and computes send changes of aggregates and instances to
    schedulers only.
    """
    for name, value, group in (
            ('track_instance_changes', False, 'filter_scheduler'),
            ('full_refresh_interval', 1, 'cellsched'),
            ('no_valid_host_text', 'cellsched', 'cellsched')):
        conf.set_override(name, value, group)


def run(argv: Sequence[str]) -> int:
    """Compare until the process is stopped; return an exit code.

    :param argv: options of oslo.config
    :raises cellsched.exception.CellschedException: the start failed
    """
    deployment.configure(argv)
    found = [*configuration.problems(CONF, 'api_database', 'placement'),
             *problems(CONF)]
    if found:
        for problem in found:
            print(f'invalid configuration: {problem}', file=sys.stderr)
        return 1
    with configuration.translate_errors():
        store = comparison.ComparisonStore(
            records.open_database(CONF), CONF.cellsched.comparison_retention)
        log.setup(CONF, 'nova')
        set_up(CONF)
        endpoint = Endpoint(make_shadow(CONF, store))
        server = listener(CONF, endpoint)
    stopping = threading.Event()
    for number in signal.SIGINT, signal.SIGTERM:
        signal.signal(number, lambda *arguments: stopping.set())
    # One thread handles notifications in order: start before end.
    server.start(override_pool_size=1)
    LOG.info('Listening to topics %s', ', '.join(topics(CONF)))
    while not stopping.wait(_SPACING_S):
        endpoint.expire()
    server.stop()
    server.wait()
    return 0


def _age_s(metadata: Mapping[str, Any]) -> float:
    """Return the seconds since a notification was sent."""
    try:
        sent_at = datetime.datetime.fromisoformat(metadata['timestamp'])
    except (KeyError, TypeError, ValueError):
        return 0.0
    if sent_at.tzinfo is None:
        sent_at = sent_at.replace(tzinfo=datetime.UTC)
    return max(0.0, (timeutils.utcnow(True) - sent_at).total_seconds())
