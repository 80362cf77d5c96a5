# SPDX-License-Identifier: Apache-2.0
"""The options of oslo.messaging's RabbitMQ driver for a URL."""

from collections.abc import Callable
import contextlib
import os
import pathlib
import ssl
from typing import Any

from oslo_concurrency import lockutils
from oslo_config import cfg
import oslo_messaging

from cellsched.conf import loader
from cellsched import exception

#: The group of the options.
GROUP = 'oslo_messaging_rabbit'

#: Values of ``ssl_version``; None if Python's OpenSSL lacks the version.
_SSL_VERSIONS = {
    name.lower(): getattr(ssl, f'PROTOCOL_{name}', None)
    for name in ('TLSv1', 'SSLv23', 'SSLv2', 'SSLv3', 'TLSv1_1', 'TLSv1_2')}


class Options:
    """The options of the RabbitMQ driver for a URL.

    The query of the URL overrides the options of the group.

    :raises cellsched.exception.ConfigurationInvalid: a value in the query is
        invalid
    """

    def __init__(
        self, conf: cfg.ConfigOpts, url: oslo_messaging.TransportURL
    ) -> None:
        self.exchange: str = conf.control_exchange
        self.lock_path = lockutils.get_lock_path(conf)
        self._group = conf[GROUP]
        self._query = {}
        for option in (option for group, options in loader.list_messaging()
                       if group == GROUP for option in options):
            if option.name not in url.query:
                continue
            # The text of the error may quote a part of a password.
            with contextlib.suppress(ValueError):
                # Values of a query are text.
                self._query[option.name] = option.type(url.query[option.name])
                continue
            raise _invalid(option.name, f'a value of type {option.type}')

    def __getitem__(self, name: str) -> Any:
        return self._query[name] if name in self._query else self._group[name]

    @property
    def durable(self) -> bool:
        """Return whether the queues and the exchange of topics are durable."""
        return self['rabbit_quorum_queue'] or self['amqp_durable_queues']

    def check(self) -> None:
        """Check options that depend on each other.

        :raises cellsched.exception.ConfigurationInvalid: the driver cannot
            work with them
        """
        if self['rabbit_quorum_queue'] and self['rabbit_ha_queues']:
            raise _invalid('rabbit_ha_queues', 'false', 'a queue cannot be '
                           'both mirrored and of rabbit_quorum_queue')
        if self['rabbit_stream_fanout']:
            if not self['rabbit_transient_quorum_queue']:
                raise _invalid('rabbit_transient_quorum_queue', 'true',
                               'rabbit_stream_fanout requires it')
            if self['rabbit_qos_prefetch_count'] < 1:
                raise _invalid('rabbit_qos_prefetch_count', 'at least 1',
                               'rabbit_stream_fanout requires a limit')
        self._set_lock_path()
        self.tls()

    def _set_lock_path(self) -> None:
        """Pass the directory of locks on to the library that takes them.

        With the queue manager, the driver takes a lock between processes when
        it first sends a message. oslo.concurrency reads the directory from
        the global configuration of the process.
        """
        if not self['use_queue_manager']:
            return
        if self.lock_path:
            lockutils.set_defaults(self.lock_path)
        path = lockutils.get_lock_path(cfg.CONF)
        problem = None
        if not path:
            problem = ('it is not set, and [oslo_messaging_rabbit] '
                       'use_queue_manager requires it')
        else:
            # The library makes the directory.
            nearest = next(each for each in (
                pathlib.Path(path).absolute(),
                *pathlib.Path(path).absolute().parents) if each.exists())
            if not (nearest.is_dir() and os.access(nearest, os.W_OK)):
                problem = f'{nearest} is not a writable directory'
        if problem:
            raise exception.ConfigurationInvalid(
                field='[oslo_concurrency] lock_path', problem=problem,
                expected='a directory that the service can write to')

    def tls(self) -> dict[str, Any] | bool:
        """Return the TLS arguments of a connection.

        :raises cellsched.exception.ConfigurationInvalid: an option is invalid
        """
        if not self['ssl']:
            return False
        options: dict[str, Any] = {}
        version, key_file, cert_file, ca_file = (
            self[f'ssl_{name}'] for name in (
                'version', 'key_file', 'cert_file', 'ca_file'))
        if version:
            options['ssl_version'] = _SSL_VERSIONS.get(version.lower())
            if options['ssl_version'] is None:
                raise _invalid('ssl_version', 'a TLS version known to OpenSSL')
        # Load the files here, so that an unreadable file is reported as a
        # configuration error and not as an error of the broker.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if key_file:
            options['keyfile'] = key_file
        if cert_file:
            options['certfile'] = cert_file
            _load('ssl_cert_file, ssl_key_file', lambda: (
                context.load_cert_chain(
                    cert_file, key_file or None, password='')))
        if ca_file:
            options['ca_certs'] = ca_file
            options['cert_reqs'] = ssl.CERT_REQUIRED
            # kombu replaces it by the name of the host.
            options['server_hostname'] = None
            _load('ssl_ca_file',
                  lambda: context.load_verify_locations(ca_file))
        return options or True


def _load(names: str, load: Callable[[], None]) -> None:
    try:
        load()
    except OSError as exc:
        raise _invalid(names, 'readable files', f'{exc}') from None


def _invalid(
    names: str, expected: str, problem: str | None = None
) -> exception.ConfigurationInvalid:
    return exception.ConfigurationInvalid(
        field=f'[{GROUP}] {names}', problem=problem,
        expected=expected)
