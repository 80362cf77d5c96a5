# SPDX-License-Identifier: Apache-2.0
"""Options of the store: ``[etcd]``, and ``[claims] connection``."""

import dataclasses
import importlib.util
from urllib import parse

from oslo_config import cfg

from cellsched.claims.etcd import protocol
from cellsched import exception

GROUP = 'etcd'

#: What keys begin with where a connection does not say it.
PREFIX = '/cellsched/'

_PORT = 2379

_OPTS = [
    cfg.FloatOpt('request_timeout', default=5.0, min=0.1, help="""
Seconds in which etcd has to answer one request.

Then another member is asked. What the first one was to do may have been done,
which is found out before anything is repeated. Should be longer than an
election takes, which is a second with etcd's own defaults.
"""),
    cfg.FloatOpt('patience', default=30.0, min=0.0, help="""
Seconds for which a call is tried when members do not answer, or when others
change the same providers all the time.

Then the call fails, and whoever made it does what it does when a database is
down.
"""),
    cfg.FloatOpt('batch_timeout', default=5.0, min=0.1, help="""
Seconds for which a batch that takes several transactions may keep others
waiting.

Batches of more than some 120 consumers and hosts take several. One whose
process ended in between is given back after this time by whoever meets it; one
that is only slow begins again.
"""),
    cfg.IntOpt('max_txn_ops', default=protocol.OPS_MAX, min=16, help="""
Operations that members take in one transaction.

As their own ``--max-txn-ops`` says. Batches that need more take several
transactions.
"""),
    cfg.IntOpt('max_pool_size', default=32, min=1, help="""
Connections that are kept open to each member.

More are made when there are more threads than that, and closed after use.
"""),
    cfg.StrOpt('cafile', help="""
File of the certificates of authorities that members' are checked by.

Used for a connection that begins with ``etcds://``. Unset, those that come
with the library requests are used.
"""),
    cfg.StrOpt('certfile', help="""
File of the certificate that this process shows to members.

Needs ``[etcd] keyfile``.
"""),
    cfg.StrOpt('keyfile', help="""
File of the private key of ``[etcd] certfile``.
"""),
    cfg.StrOpt('username', help="""
User of etcd, where it asks for one.

Needs to read and write below the prefix of ``[claims] connection``. See also
``[etcd] password``.
"""),
    cfg.StrOpt('password', secret=True, help="""
Password of ``[etcd] username``.
"""),
]


def opts() -> list[cfg.Opt]:
    """Return the options of the store.

    :raises ImportError: what it needs is not installed
    """
    if importlib.util.find_spec('etcd3gw') is None:
        raise ImportError(
            'etcd3gw is missing, which cellsched[etcd] installs')
    return list(_OPTS)


@dataclasses.dataclass(frozen=True)
class Endpoints:
    """Members of a cluster, and the prefix of a deployment's keys there.

    :param members: host and port of each
    """

    members: tuple[tuple[str, int], ...]
    prefix: str = PREFIX
    tls: bool = False

    def __str__(self) -> str:
        hosts = ','.join(
            f'[{host}]:{port}' if ':' in host else f'{host}:{port}'
            for host, port in self.members)
        return f'etcd{"s" * self.tls}://{hosts}{self.prefix}'.rstrip('/')


def place(connection: str | None) -> Endpoints:
    """Return what ``[claims] connection`` says.

    :raises cellsched.exception.ConfigurationInvalid: it says something else
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
    # A wrong one may hold a password.
    return exception.ConfigurationInvalid(
        field='[claims] connection',
        expected='etcd://HOST:PORT,HOST:PORT/PREFIX, or etcds:// for TLS; '
                 'who logs in is said by [etcd] username and password')
