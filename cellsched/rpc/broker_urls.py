# SPDX-License-Identifier: Apache-2.0
"""Transport URLs: reading them, and the form that kombu takes.

In a URL each special character of a user name, a password and a virtual host
is percent-encoded. oslo.messaging decodes them, and its driver for RabbitMQ
encodes them for kombu, except for ``/`` in credentials and ``?``, ``#`` and
``;`` in a virtual host, which kombu then takes for the end of what they are
in. URLs with these are handed to the driver in another form.
"""

import re
from urllib.parse import quote
from urllib.parse import urlsplit

from oslo_config import cfg
import oslo_messaging
from oslo_utils import netutils

#: Schemes of oslo.messaging's driver for RabbitMQ, and what kombu calls it.
_DRIVERS = ('rabbit', 'kombu')
_KOMBU_SCHEMES = ('amqp', 'amqps', 'pyamqp')

#: Port of a broker whose URL names none.
PORT = 5672

#: A host name or an address.
_HOST = re.compile(r'[\w.:-]*')


def parse(conf: cfg.ConfigOpts, url: str) -> oslo_messaging.TransportURL:
    """Return the parts of a URL.

    :raises ValueError: the URL cannot be read, or a special character in it
        is not percent-encoded, so that a part of a password might be taken
        for a host or a virtual host; the text may quote some of the URL
    """
    split = urlsplit(url)
    hosts = [host for host in split.netloc.split(',') if host]
    with_user = [host for host in hosts if '@' in host]
    if ('#' in url or '@' in split.path or '@' in split.query
            or with_user and len(with_user) < len(hosts)):
        raise ValueError('a character that is not percent-encoded')
    parsed = oslo_messaging.TransportURL.parse(conf, url)
    if is_broker(parsed) and not all(
            _HOST.fullmatch(host.hostname or '') for host in parsed.hosts):
        raise ValueError('a host whose name is none')
    return parsed


def is_broker(url: oslo_messaging.TransportURL) -> bool:
    """Return whether a URL is one of a broker that speaks AMQP 0-9-1."""
    return (url.transport.partition('+')[0] in _DRIVERS
            and _kombu_scheme(url) in _KOMBU_SCHEMES)


def places(
    url: oslo_messaging.TransportURL
) -> frozenset[tuple[str, int, str]]:
    """Return hosts, ports and virtual hosts that a URL of a broker leads to.

    Two that have one in common lead to the same queues, whoever logs in. Of
    another transport there are none.
    """
    if not is_broker(url):
        return frozenset()
    # Nothing stands for what a client takes then.
    return frozenset(
        ((host.hostname or 'localhost').lower(), host.port or PORT,
         url.virtual_host or '/')
        for host in url.hosts or [oslo_messaging.TransportHost()])


def for_kombu(
    url: oslo_messaging.TransportURL,
    host: oslo_messaging.TransportHost | None,
) -> str:
    """Return the URL by which kombu connects to one of a URL's hosts.

    It is that of the driver, with all special characters encoded.

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
    """Return the URL in a form that arrives at kombu as it was meant.

    A ``kombu+`` URL without hosts is handed on by the driver as it is.
    """
    if not (is_broker(url) and url.hosts and _is_mistaken(url)):
        return url
    scheme = _kombu_scheme(url)
    all_hosts = ';'.join(for_kombu(url, host) for host in url.hosts)
    return oslo_messaging.TransportURL(
        url.conf, f'kombu+{scheme}',
        virtual_host=all_hosts.removeprefix(f'{scheme}://'), query=url.query)


def _is_mistaken(url: oslo_messaging.TransportURL) -> bool:
    """Return whether kombu would misread what the driver makes of a URL."""
    return (any('/' in (text or '') for host in url.hosts
                for text in (host.username, host.password))
            or _virtual_host(url) != (url.virtual_host or ''))


def _kombu_scheme(url: oslo_messaging.TransportURL) -> str:
    return url.transport.replace('kombu+', '').replace('rabbit', 'amqp')


def _encoded(text: str | None) -> str:
    return quote(text or '', safe='')


def _virtual_host(url: oslo_messaging.TransportURL) -> str:
    """Return the virtual host, with what would end it encoded.

    The rest is left as the driver leaves it.
    """
    return re.sub('[?#;]', lambda match: quote(match[0]),
                  url.virtual_host or '')
