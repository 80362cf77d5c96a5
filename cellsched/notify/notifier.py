# SPDX-License-Identifier: Apache-2.0
"""Sends notifications."""

from collections.abc import Callable
from collections.abc import Sequence
import logging
from typing import Any
from typing import Literal

import oslo_messaging
from oslo_messaging import transport as messaging

from cellsched import context as context_
from cellsched import exception
from cellsched.notify.payloads import request_spec
from cellsched import objects
from cellsched import plugins
from cellsched.rpc import serializer

LOG = logging.getLogger(__name__)

_DRIVERS = 'oslo.messaging.notify.drivers'

_Payload = Callable[[objects.RequestSpec, Sequence[str]], dict[str, Any]]


class Notifier:
    """Tells what a scheduler does, in the forms that are configured.

    Nothing here fails who calls it: what cannot be sent is logged. Without a
    driver in ``[oslo_messaging_notifications] driver`` nothing is done.

    :param transport: a transport for notifications; its configuration says
        which drivers and legacy topics there are
    :param host: the scheduler's name
    :param form: ``unversioned``, ``versioned`` or ``both``
    :param topics: where versioned notifications go
    :raises cellsched.exception.PluginNotFound: a driver is not there
    """

    def __init__(
        self, transport: oslo_messaging.Transport, host: str, form: str,
        topics: Sequence[str],
    ) -> None:
        self._senders: list[tuple[oslo_messaging.Notifier, _Payload]] = []
        options = transport.conf.oslo_messaging_notifications
        if not set(options.driver) - {'noop'}:
            return
        _check(options.driver)
        guarded = _Guarded(transport)
        # Below zero means for ever, for which no request can wait.
        retries = max(options.retry, 0)
        if form in ('unversioned', 'both'):
            self._senders.append((oslo_messaging.Notifier(
                guarded, f'scheduler.{host}', retry=retries,
                serializer=serializer.Serializer()), request_spec.legacy))
        if form in ('versioned', 'both'):
            self._senders.append((oslo_messaging.Notifier(
                guarded, f'nova-scheduler:{host}', retry=retries,
                serializer=serializer.Serializer(), topics=list(topics),
            ), request_spec.versioned))

    def select_destinations(
        self, context: context_.RequestContext,
        phase: Literal['start', 'end'], request: objects.RequestSpec,
        instance_uuids: Sequence[str] | None,
    ) -> None:
        """Tell that a decision begins, or that it has found its hosts."""
        event = f'scheduler.select_destinations.{phase}'
        for sender, payload in self._senders:
            try:
                sender.info(
                    context, event, payload(request, instance_uuids or ()))
            except Exception as exc:
                _log_failure(event, exc)


class _Guarded(messaging.NotificationTransport):
    """A transport whose failures cost one line of the log.

    oslo.messaging logs them, with a traceback and the whole notification.
    """

    def __init__(self, transport: oslo_messaging.Transport) -> None:
        super().__init__(transport._driver)

    def _send_notification(
        self, target: oslo_messaging.Target, ctxt: dict[str, Any],
        message: dict[str, Any], version: float, retry: int | None = None,
    ) -> None:
        try:
            super()._send_notification(target, ctxt, message, version, retry)
        except Exception as exc:
            _log_failure(f'{message["event_type"]} to {target.topic}', exc)


def _log_failure(what: str, exc: Exception) -> None:
    # The rest of a text that quotes a URL may be a password.
    said, url, _ = str(exc).partition('://')
    text = ' '.join(said.split()) + (url and f'{url}****')
    LOG.warning('Could not send notification %s: %s: %s',
                what, type(exc).__name__, text)


def _check(names: Sequence[str]) -> None:
    available = plugins.names(_DRIVERS)
    for name in names:
        if name not in available:
            raise exception.PluginNotFound(
                name=name, namespace=_DRIVERS, available=', '.join(available))
