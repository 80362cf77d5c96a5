# SPDX-License-Identifier: Apache-2.0
"""The message transports of a process and of its cells."""

from collections.abc import Callable
from collections.abc import Iterable
import contextlib
import functools
import logging
import threading
from typing import Any

from oslo_config import cfg
import oslo_messaging
from oslo_messaging import transport as oslo_transport

from cellsched.conf import loader
from cellsched import exception
from cellsched import plugins
from cellsched.rpc import broker_urls

#: URL scheme of cell0, which has no queues.
NO_TRANSPORT = 'none'

_DRIVERS = 'oslo.messaging.drivers'

#: Drivers of notifications that use no broker.
_WITHOUT_BROKER = {'log', 'noop', 'test'}

#: The expected form of a URL, for errors that must not quote the URL.
_FORM = ('scheme://user:password@host:port/virtual_host, in which special '
         'characters of user, password and virtual host are percent-encoded '
         '(/ as %2F)')


#: Loggers of oslo.messaging that log a traceback for each message that cannot
#: be read, or that arrives twice. Anyone who can write into a queue could fill
#: the log with it.
_OF_MESSAGES = ('oslo_messaging._drivers.amqpdriver',
                'oslo.messaging._drivers.impl_rabbit')


class _OneLine(logging.Filter):
    """Replaces the traceback of an error by the name of its class."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info and record.exc_info[1]
        if error:
            record.msg = f'{record.getMessage()} {type(error).__name__}'
            record.args = record.exc_info = record.exc_text = None
        return True


_ONE_LINE = _OneLine()


class Transport(oslo_transport.RPCTransport):
    """A transport of RPC that keeps its driver, so that servers can listen.

    :param driver: see ``oslo_messaging.base.BaseDriver``
    """

    def __init__(self, driver: Any) -> None:
        super().__init__(driver)
        self._listen_at = driver.listen

    def listener(self, target: oslo_messaging.Target) -> Any:
        """Return a listener that receives one message at a time."""
        return self._listen_at(target, 1, None)


def _open_rpc(
    conf: cfg.ConfigOpts, url: oslo_messaging.TransportURL,
    allowed_remote_exmods: list[str],
) -> Transport:
    driver = plugins.load(_DRIVERS, url.transport.partition('+')[0])
    return Transport(driver(
        conf, url, default_exchange=conf.control_exchange,
        allowed_remote_exmods=allowed_remote_exmods))


class Transports:
    """Opens each transport once; transports are expensive and thread-safe.

    Create it after a fork, like everything that connects.

    :param allowed_remote_exmods: modules whose exceptions a caller receives
        unchanged; other exceptions arrive as ``RemoteError``
    :param at_once: register oslo.messaging's options now, not on first use;
        this imports all drivers
    """

    def __init__(
        self, conf: cfg.ConfigOpts,
        allowed_remote_exmods: Iterable[str] = ('cellsched.exception',),
        at_once: bool = True,
    ) -> None:
        self._given = conf
        if at_once:
            self._conf  # noqa: B018
        self._allowed_remote_exmods = list(allowed_remote_exmods)
        # Held while a transport is created, which may connect.
        self._lock = threading.Lock()
        self._open: dict[tuple[Callable, str], oslo_messaging.Transport] = {}

    @functools.cached_property
    def _conf(self) -> cfg.ConfigOpts:
        loader.register_messaging(self._given)
        return self._given

    @functools.cached_property
    def _delivery(self) -> Any:
        # Imported late: it imports the same libraries as the RabbitMQ driver.
        from cellsched.rpc import delivery

        return delivery

    def get(self, url: str | None = None) -> Transport:
        """Return the transport at a URL, or at ``[DEFAULT] transport_url``.

        :raises cellsched.exception.ConfigurationInvalid: the URL is missing or
            unusable; the error quotes no part of it
        :raises cellsched.exception.Invalid: the URL means no transport, like
            cell0's
        """
        return self._get(_open_rpc, url, 'transport_url')

    def check_url(self, url: str, field: str) -> None:
        """Check that a driver exists for a URL.

        The transport is opened only if the URL has a query, which the driver
        must check; drivers take long to import.

        :param field: name of the field in errors
        :raises cellsched.exception.ConfigurationInvalid: there is no driver,
            or the URL cannot be read; the error quotes no part of it
        """
        parsed = self._parsed(url, field, self._given)
        if parsed.transport not in plugins.names(_DRIVERS):
            raise exception.ConfigurationInvalid(
                field=field, expected=_schemes())
        if parsed.query:
            self.get(url)

    def notifications(self) -> oslo_messaging.Transport:
        """Return the transport of notifications.

        Its URL is ``[oslo_messaging_notifications] transport_url``, by default
        ``[DEFAULT] transport_url``. Does not connect yet.

        :raises cellsched.exception.ConfigurationInvalid: as :meth:`get`
        """
        return self._get(
            oslo_messaging.get_notification_transport,
            self._conf.oslo_messaging_notifications.transport_url,
            '[oslo_messaging_notifications] transport_url')

    def check_queues(self, targets: Iterable[oslo_messaging.Target]) -> None:
        """Check that the broker accepts the queues of servers.

        :param targets: see :func:`.delivery.check_queues`
        :raises oslo_messaging.MessageDeliveryFailure: the broker at
            ``[DEFAULT] transport_url`` is unreachable
        :raises Exception: as :meth:`check`
        """
        field, url = self._chosen(None, '')
        self._delivery.check_queues(
            self._conf, self._parsed(url, field), field, list(targets))

    def remark(self) -> str | None:
        """Return a remark about ``[DEFAULT] transport_url``, or None."""
        field, url = self._chosen(None, '')
        remark = self._delivery.certificate_remark(
            self._conf, self._parsed(url, field))
        return remark and f'{field}: {remark}'

    def check(self) -> None:
        """Check that the configured brokers do not reject the client.

        Connects once to ``[DEFAULT] transport_url`` and, if notifications are
        enabled, to their broker. An unreachable broker is logged, because
        services wait for it.

        :raises cellsched.exception.BrokerRefused: a broker rejects the user,
            the password or the virtual host
        :raises cellsched.exception.ConfigurationInvalid: as :meth:`get`
        :raises cellsched.exception.Invalid: as :meth:`get`
        """
        field, url = self._chosen(None, '')
        self._check(url, field)
        notifications = self._conf.oslo_messaging_notifications
        if (set(notifications.driver) - _WITHOUT_BROKER
                and notifications.transport_url):
            self._check(notifications.transport_url,
                        '[oslo_messaging_notifications] transport_url')

    def check_reachable(self, url: str, field: str) -> None:
        """Check that the broker at a URL answers and accepts the client.

        :param field: name of the field in errors
        :raises cellsched.exception.BrokerUnreachable: it does not answer
        :raises Exception: as :meth:`check`
        """
        self._delivery.check_broker(
            self._conf, self._parsed(url, field), field, must_answer=True)

    def _check(self, url: str, field: str) -> None:
        self._delivery.check_broker(
            self._conf, self._parsed(url, field), field)

    def _chosen(self, url: str | None, field: str) -> tuple[str, str]:
        """Return a URL and its option; by default the process's own URL."""
        field = field if url else '[DEFAULT] transport_url'
        url = url or self.own_url()
        if url.partition(':')[0].lower() == NO_TRANSPORT:
            raise exception.Invalid(
                f'{field}: {NO_TRANSPORT}:// has no transport.')
        return field, url

    def _get(
        self, opener: Callable[..., Any], url: str | None, field: str
    ) -> Any:
        field, url = self._chosen(url, field)
        with self._lock:
            if (opener, url) not in self._open:
                self._open[opener, url] = self._opened(opener, url, field)
            return self._open[opener, url]

    def close(self) -> None:
        """Close all transports. Stop their servers first."""
        with self._lock:
            while self._open:
                self._open.popitem()[1].cleanup()

    def places(self, url: str) -> frozenset[tuple[str, int, str]]:
        """Return the virtual hosts of a URL; see :func:`.broker_urls.places`.

        :raises cellsched.exception.ConfigurationInvalid: as :meth:`get`
        """
        return broker_urls.places(self._parsed(url, 'transport_url'))

    def own_url(self) -> str:
        """Return ``[DEFAULT] transport_url``.

        :raises cellsched.exception.ConfigurationInvalid: it is not set
        """
        location = self._conf.get_location('transport_url')
        if location is None or location.location == cfg.Locations.opt_default:
            raise exception.ConfigurationInvalid(
                field='[DEFAULT] transport_url',
                problem='it is not set',
                expected='the URL of a message transport')
        return self._conf.transport_url

    def _opened(
        self, opener: Callable[..., Any], url: str, field: str
    ) -> Any:
        parsed = self._parsed(url, field)
        problem = None
        for name in _OF_MESSAGES:
            # The same filter is added only once.
            logging.getLogger(name).addFilter(_ONE_LINE)
        if broker_urls.is_broker(parsed):
            self._delivery.check_options(self._conf, parsed)
        try:
            return opener(self._conf, broker_urls.for_driver(parsed),
                          self._allowed_remote_exmods)
        except (exception.PluginNotFound, oslo_messaging.DriverLoadFailure):
            expected = _schemes()
        except (exception.ConfigurationInvalid, ImportError) as exc:
            problem = f'its driver cannot be imported: {exc}'
            expected = 'an installed transport'
        except (ValueError, cfg.Error, oslo_messaging.MessagingException):
            # The text of these errors may quote a password, and so may a part
            # of a URL that cannot be parsed.
            expected = _FORM
        raise exception.ConfigurationInvalid(
            field=field, problem=problem, expected=expected)

    def _parsed(
        self, url: str, field: str, conf: cfg.ConfigOpts | None = None
    ) -> oslo_messaging.TransportURL:
        with contextlib.suppress(
                ValueError, oslo_messaging.MessagingException):
            return broker_urls.parse(conf or self._conf, url)
        raise exception.ConfigurationInvalid(field=field, expected=_FORM)


def _schemes() -> str:
    schemes = ', '.join(plugins.names(_DRIVERS))
    return f'a URL that begins with one of: {schemes}'
