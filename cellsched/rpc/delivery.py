# SPDX-License-Identifier: Apache-2.0
"""Errors of message delivery, and a test whether a broker rejects the client.

oslo.messaging translates most errors of a broker, but not the errors of a
connection that the broker refuses.
"""

from collections.abc import Callable
import logging
import ssl
from typing import Any

from amqp import exceptions as amqp_exc
import kombu
from kombu import exceptions as kombu_exc
from oslo_config import cfg
from oslo_config import types
import oslo_messaging

from cellsched import exception
from cellsched.rpc import broker_urls

LOG = logging.getLogger(__name__)

#: Errors of the libraries below oslo.messaging: the broker is unreachable, or
#: refuses the connection or the message.
BROKER_ERRORS = (kombu_exc.KombuError, amqp_exc.AMQPError)

#: Errors that sending raises if the message was not delivered.
ERRORS = (oslo_messaging.MessagingException, *BROKER_ERRORS, OSError)

#: Values of ``ssl_version``; None if Python's OpenSSL lacks the version.
_SSL_VERSIONS = {
    name.lower(): getattr(ssl, f'PROTOCOL_{name}', None)
    for name in ('TLSv1', 'SSLv23', 'SSLv2', 'SSLv3', 'TLSv1_1', 'TLSv1_2')}


class _Refused(Exception):
    """The broker answered and rejected the client."""


def check_broker(
    conf: cfg.ConfigOpts, url: oslo_messaging.TransportURL, field: str,
    timeout_s: float = 5.0,
) -> None:
    """Check that the broker at a URL accepts connections.

    Each host of the URL is tried until one accepts. An unreachable broker is
    logged and is no error, because services wait for it. URLs of other drivers
    are skipped.

    :param field: the option of the URL
    :param timeout_s: timeout for each host; by default the driver's
    :raises cellsched.exception.BrokerRefused: each host that answers rejects
        the user, the password or the virtual host
    :raises cellsched.exception.ConfigurationInvalid: the TLS options cannot be
        used
    """
    if not broker_urls.is_broker(url):
        return
    options = _options(conf, url)
    refused: exception.BrokerRefused | None = None
    unreachable: list[str] = []
    for host in url.hosts or [None]:
        place = _place(host)
        try:
            _connect(broker_urls.for_kombu(url, host), timeout_s, options)
            return
        except _Refused as exc:
            refused = exception.BrokerRefused(
                place=place, field=field, reason=str(exc))
        except ERRORS as exc:
            unreachable.append(f'{place} ({exception.describe(exc)})')
    if refused is not None:
        raise refused
    LOG.warning('The broker of %s is unreachable: %s',
                field, ', '.join(unreachable))


def _connect(url: str, timeout_s: float, options: dict[str, Any]) -> None:
    # Announce the same capability as the driver. Without it, RabbitMQ closes
    # the socket without a reason.
    requested = {'capabilities': {'authentication_failure_close': True}}
    connection = kombu.Connection(
        url, connect_timeout=timeout_s,
        transport_options={'client_properties': requested}, **options)
    transport = connection.transport
    try:
        transport.close_connection(transport.establish_connection())
    except amqp_exc.AccessRefused:
        raise _Refused('the user name or the password is wrong') from None
    except amqp_exc.NotAllowed as exc:
        # The error text names the user and the virtual host.
        raise _Refused(' '.join(exc.reply_text.split())) from None


def _place(host: oslo_messaging.TransportHost | None) -> str:
    if host is None:
        return f'localhost:{broker_urls.PORT}'
    return f'{host.hostname}:{host.port or broker_urls.PORT}'


def _options(
    conf: cfg.ConfigOpts, url: oslo_messaging.TransportURL
) -> dict[str, Any]:
    """Return arguments for kombu's connection, as the driver makes them.

    The query of the URL overrides the options of the group.
    """
    group = conf.oslo_messaging_rabbit

    def setting(name: str) -> Any:
        return url.query.get(name, group[name])

    try:
        # Values of a query are text.
        tls = types.Boolean()(setting('ssl'))
    except ValueError:
        raise _invalid('ssl', 'true or false') from None
    host = url.hosts[0].hostname if len(url.hosts) == 1 else None
    return {'login_method': setting('rabbit_login_method'),
            'ssl': tls and _tls(setting, host)}


def _tls(
    setting: Callable[[str], str], only_host: str | None
) -> dict[str, Any] | bool:
    """Return the TLS arguments.

    :raises cellsched.exception.ConfigurationInvalid: an option is invalid
    """
    made: dict[str, Any] = {}
    version, key_file, cert_file, ca_file = map(
        setting, ('ssl_version', 'ssl_key_file', 'ssl_cert_file',
                  'ssl_ca_file'))
    if version:
        made['ssl_version'] = _SSL_VERSIONS.get(version.lower())
        if made['ssl_version'] is None:
            raise _invalid('ssl_version', 'a TLS version known to OpenSSL')
    # Load the files here, so that an unreadable file is reported as a
    # configuration error and not as an error of the broker.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if key_file:
        made['keyfile'] = key_file
    if cert_file:
        made['certfile'] = cert_file
        _load('ssl_cert_file, ssl_key_file', lambda: context.load_cert_chain(
            cert_file, key_file or None, password=''))
    if ca_file:
        made['ca_certs'] = ca_file
        made['cert_reqs'] = ssl.CERT_REQUIRED
        made['server_hostname'] = only_host
        _load('ssl_ca_file', lambda: context.load_verify_locations(ca_file))
    return made or True


def _load(names: str, load: Callable[[], None]) -> None:
    try:
        load()
    except OSError as exc:
        raise _invalid(names, 'readable files', f'{exc}') from None


def _invalid(
    names: str, expected: str, problem: str | None = None
) -> exception.ConfigurationInvalid:
    return exception.ConfigurationInvalid(
        field=f'[oslo_messaging_rabbit] {names}', problem=problem,
        expected=expected)
