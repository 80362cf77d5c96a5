# SPDX-License-Identifier: Apache-2.0
"""Options of the group ``[etcd]``, and ``[claims] connection``."""

import dataclasses
import importlib.util
from urllib import parse

from oslo_config import cfg

from cellsched.claims.etcd import protocol
from cellsched import exception

GROUP = 'etcd'

#: Prefix of the keys if the connection has none.
PREFIX = '/cellsched/'

_PORT = 2379

_OPTS = [
    cfg.FloatOpt('request_timeout', default=5.0, min=0.1, help="""
Seconds to wait for the answer of a member to one request.

After that another member is used. The first one may have executed the
request; the store finds that out before it repeats anything. Should be longer
than an election of etcd, which takes a second by default.
"""),
    cfg.FloatOpt('retry_timeout', default=30.0, min=0.0, help="""
Seconds for which a call is retried if members do not answer, or other clients
change the same providers.

After that the call fails as it does when a database is down.
"""),
    cfg.FloatOpt('batch_timeout', default=5.0, min=0.1, help="""
Seconds for which a large batch may keep other clients from writing.

A batch of more than about 120 consumers and hosts in all holds the store until
it is written. The timeout applies to batches whose process stopped; one that
is only slow begins again.
"""),
    cfg.IntOpt('max_txn_ops', default=protocol.OPS_MAX, min=16, help="""
Number of operations that a transaction may have.

Must not exceed the option ``--max-txn-ops`` of the members. Larger batches
have nested transactions, which the members count alone.
"""),
    cfg.IntOpt('max_pool_size', default=32, min=1, help="""
Number of connections kept open to each member.

Additional threads open more connections and close them after use.
"""),
    cfg.StrOpt('cafile', help="""
File with certificates of authorities, to check the members' certificates.

Used for connections that begin with ``etcds://``. By default, the authorities
of the library requests are used.
"""),
    cfg.StrOpt('certfile', help="""
File with the certificate of this client.

Needs ``[etcd] keyfile``.
"""),
    cfg.StrOpt('keyfile', help="""
File with the private key of ``[etcd] certfile``.
"""),
    cfg.StrOpt('username', help="""
User name, if authentication is enabled in etcd.

The user needs permission to read and write keys below the prefix of
``[claims] connection``. See also ``[etcd] password``.
"""),
    cfg.StrOpt('password', secret=True, help="""
Password of ``[etcd] username``.
"""),
]


def opts() -> list[cfg.Opt]:
    """Return the options of the store.

    :raises ImportError: etcd3gw is not installed
    """
    if importlib.util.find_spec('etcd3gw') is None:
        raise ImportError('etcd3gw is missing, which cellsched[etcd] installs')
    return list(_OPTS)


@dataclasses.dataclass(frozen=True)
class Endpoints:
    """Members of a cluster, and the prefix of a deployment's keys.

    :param members: host and port of each
    """

    members: tuple[tuple[str, int], ...]
    prefix: str = PREFIX
    tls: bool = False


def place(connection: str | None) -> Endpoints:
    """Return the endpoints in ``[claims] connection``.

    :raises cellsched.exception.ConfigurationInvalid: the URL is invalid
    """
    scheme, _, rest = (connection or '').partition('://')
    hosts, _, path = rest.partition('/')
    if scheme not in ('etcd', 'etcds') or not hosts or (
            '?' in rest or '#' in rest or '@' in rest):
        raise _invalid()
    path = path.strip('/')
    return Endpoints(
        tuple(map(_member, hosts.split(','))),
        f'/{path}/' if path else PREFIX, scheme == 'etcds')


def _member(text: str) -> tuple[str, int]:
    try:
        split = parse.urlsplit(f'//{text}')
        host, port = split.hostname, split.port
    except ValueError:
        raise _invalid() from None
    if not host or port == 0:
        raise _invalid()
    return host, _PORT if port is None else port


def _invalid() -> exception.ConfigurationInvalid:
    # The text does not repeat the URL, which may have a password.
    return exception.ConfigurationInvalid(
        field='[claims] connection',
        expected='etcd://HOST:PORT,HOST:PORT/PREFIX, or etcds:// for TLS; '
                 'set the login with [etcd] username and password')
