# SPDX-License-Identifier: Apache-2.0
"""Transport URLs: parsing, and conversion to the form that kombu expects.

In a URL, each special character of a user name, a password and a virtual host
is percent-encoded. oslo.messaging decodes them, and its RabbitMQ driver
encodes them again for kombu, except for ``/`` in credentials and ``?``, ``#``
and ``;`` in a virtual host. kombu would end the part at such a character, so
URLs with these characters are passed to the driver in another form.
"""

import re
from urllib.parse import quote
from urllib.parse import urlsplit

from oslo_config import cfg
import oslo_messaging
from oslo_utils import netutils

#: Schemes of oslo.messaging's RabbitMQ driver, and kombu's name for each.
_DRIVERS = ('rabbit', 'kombu')
_KOMBU_SCHEMES = ('amqp', 'amqps', 'pyamqp')

#: Default port of a broker.
PORT = 5672

#: A host name or an address.
_HOST = re.compile(r'[\w.:-]*')


def parse(conf: cfg.ConfigOpts, url: str) -> oslo_messaging.TransportURL:
    """Return the parts of a URL.

    :raises ValueError: the URL is invalid, or a special character in it is
        not percent-encoded, so that a part of a password might be read as a
        host or a virtual host; the text may quote parts of the URL
    """
    split = urlsplit(url)
    hosts = [host for host in split.netloc.split(',') if host]
    with_user = [host for host in hosts if '@' in host]
    if ('#' in url or '@' in split.path or '@' in split.query
            or with_user and len(with_user) < len(hosts)):
        raise ValueError('a special character is not percent-encoded')
    parsed = oslo_messaging.TransportURL.parse(conf, url)
    if is_broker(parsed) and not all(
            _HOST.fullmatch(host.hostname or '') for host in parsed.hosts):
        raise ValueError('a host name is invalid')
    return parsed


def is_broker(url: oslo_messaging.TransportURL) -> bool:
    """Return whether the URL is that of an AMQP 0-9-1 broker."""
    return (url.transport.partition('+')[0] in _DRIVERS
            and _kombu_scheme(url) in _KOMBU_SCHEMES)


def places(
    url: oslo_messaging.TransportURL
) -> frozenset[tuple[str, int, str]]:
    """Return the hosts, ports and virtual hosts of a broker's URL.

    Two URLs with a common place use the same queues, even with other users.
    The result is empty for other transports.
    """
    if not is_broker(url):
        return frozenset()
    # An empty virtual host means the client's default.
    return frozenset(
        ((host.hostname or 'localhost').lower(), host.port or PORT,
         url.virtual_host or '/')
        for host in url.hosts or [oslo_messaging.TransportHost()])


def for_kombu(
    url: oslo_messaging.TransportURL,
    host: oslo_messaging.TransportHost | None,
) -> str:
    """Return the URL with which kombu connects to one host of a URL.

    It equals the driver's URL, with all special characters encoded.

    :param host: None for a URL without hosts, which means the local broker
    """
    host = host or oslo_messaging.TransportHost(
        'localhost', username='guest', password='guest')
    return (f'{_kombu_scheme(url)}://{_encoded(host.username)}:'
            f'{_encoded(host.password)}@'
            f'{netutils.escape_ipv6(host.hostname or "")}:'
            f'{host.port or PORT}/{_virtual_host(url)}')


def for_driver(
    url: oslo_messaging.TransportURL
) -> oslo_messaging.TransportURL:
    """Return the URL in a form that the driver passes to kombu correctly.

    The driver passes a ``kombu+`` URL without hosts on unchanged.
    """
    if not (is_broker(url) and url.hosts and _is_mistaken(url)):
        return url
    scheme = _kombu_scheme(url)
    all_hosts = ';'.join(for_kombu(url, host) for host in url.hosts)
    return oslo_messaging.TransportURL(
        url.conf, f'kombu+{scheme}',
        virtual_host=all_hosts.removeprefix(f'{scheme}://'), query=url.query)


def _is_mistaken(url: oslo_messaging.TransportURL) -> bool:
    """Return whether kombu would misread the driver's form of a URL."""
    return (any('/' in (text or '') for host in url.hosts
                for text in (host.username, host.password))
            or _virtual_host(url) != (url.virtual_host or ''))


def _kombu_scheme(url: oslo_messaging.TransportURL) -> str:
    return url.transport.replace('kombu+', '').replace('rabbit', 'amqp')


def _encoded(text: str | None) -> str:
    return quote(text or '', safe='')


def _virtual_host(url: oslo_messaging.TransportURL) -> str:
    """Return the virtual host, with the characters encoded that would end it.

    Other characters stay as the driver writes them.
    """
    return re.sub('[?#;]', lambda match: quote(match[0]),
                  url.virtual_host or '')
