# SPDX-License-Identifier: Apache-2.0
"""Sends notifications in the forms that are configured."""

from collections.abc import Callable
from collections.abc import Sequence
import logging
from typing import Any
from typing import Literal
from typing import NamedTuple

import oslo_messaging
from oslo_messaging import transport as messaging

from cellsched import clock as clock_
from cellsched import context as context_
from cellsched import exception
from cellsched import plugins
from cellsched.rpc import serializer

LOG = logging.getLogger(__name__)

_DRIVERS = 'oslo.messaging.notify.drivers'


#: Seconds after which a failure was slow, and for which nothing is sent then.
SLOW_S = 1.0
PAUSE_S = 30.0


class Note(NamedTuple):
    """A notification in one form.

    ``payload`` is called for what it says, and only if it is sent.
    """

    publisher: str
    event: str
    payload: Callable[[], dict[str, Any]]


class Senders:
    """What sends each form; false if there is nothing to send.

    Without a driver in ``[oslo_messaging_notifications] driver`` nothing is
    sent, nor without a transport. A broker that lets senders wait in vain is
    not asked again for a while, so that it costs its time once and not for
    each server.

    :param transport: a transport for notifications; its configuration says
        which drivers and legacy topics there are
    :param form: ``unversioned``, ``versioned`` or ``both``
    :param topics: where versioned notifications go
    :raises cellsched.exception.PluginNotFound: a driver is not there
    """

    def __init__(
        self, transport: oslo_messaging.Transport | None, form: str,
        topics: Sequence[str], clock: clock_.Clock | None = None,
    ) -> None:
        self._legacy = self._versioned = None
        if transport is None:
            return
        options = transport.conf.oslo_messaging_notifications
        if not set(options.driver) - {'noop'}:
            return
        _check(options.driver)
        guarded = _Guarded(transport, clock or clock_.Clock())
        if form in ('unversioned', 'both'):
            self._legacy = _sender(guarded)
        if form in ('versioned', 'both'):
            self._versioned = _sender(guarded, list(topics))

    def __bool__(self) -> bool:
        return self._legacy is not None or self._versioned is not None

    def send(
        self, context: context_.RequestContext,
        priority: Literal['info', 'error'], legacy: Note, versioned: Note,
    ) -> None:
        """Send a notification, each form in its own words.

        Never fails: what cannot be sent is logged.
        """
        for sender, note in ((self._legacy, legacy),
                             (self._versioned, versioned)):
            if sender is None:
                continue
            try:
                tell = getattr(sender.prepare(note.publisher), priority)
                tell(context, note.event, note.payload())
            except Exception as exc:
                _log_failure(note.event, exc)


class _Guarded(messaging.NotificationTransport):
    """A transport whose failures cost one line of the log.

    oslo.messaging logs them, with a traceback and the whole notification.
    """

    def __init__(
        self, transport: oslo_messaging.Transport, clock: clock_.Clock
    ) -> None:
        super().__init__(transport._driver)
        self._clock = clock
        self._paused_until = clock.monotonic()

    def _send_notification(
        self, target: oslo_messaging.Target, ctxt: dict[str, Any],
        message: dict[str, Any], version: float, retry: int | None = None,
    ) -> None:
        what = f'{message["event_type"]} to {target.topic}'
        began = self._clock.monotonic()
        if began < self._paused_until:
            LOG.warning('Could not send notification %s: the broker did not '
                        'answer before', what)
            return
        try:
            super()._send_notification(target, ctxt, message, version, retry)
        except Exception as exc:
            _log_failure(what, exc)
            now = self._clock.monotonic()
            if now - began >= SLOW_S:
                self._paused_until = now + PAUSE_S


def _sender(
    transport: _Guarded, topics: list[str] | None = None
) -> oslo_messaging.Notifier:
    # Below zero means for ever, for which no request can wait.
    retries = max(transport.conf.oslo_messaging_notifications.retry, 0)
    return oslo_messaging.Notifier(
        transport, retry=retries, serializer=serializer.Serializer(),
        topics=topics)


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
                name=name, namespace=_DRIVERS,
                named=', which [oslo_messaging_notifications] driver names',
                available=', '.join(available))
