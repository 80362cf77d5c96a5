# SPDX-License-Identifier: Apache-2.0
"""Options of the claim store in Cassandra, and its URL."""

import dataclasses
from importlib import util
import re
from urllib import parse

from oslo_config import cfg

from cellsched import exception
from cellsched import urls

GROUP = 'cassandra'

#: Values of the option ``arithmetic``.
ADDS = {'auto': None, 'yes': True, 'no': False}

PORT = 9042

_KEYSPACE = re.compile('[a-z][a-z0-9_]{0,47}')


_OPTS = [
    cfg.FloatOpt('timeout', default=10.0, min=0.1, help="""
Seconds to wait for the answer to one request.

A request without an answer may have been executed; the store finds that out.
A value below the server's ``write_request_timeout`` causes more unknown
outcomes. Related: ``retry_timeout``.
"""),
    cfg.FloatOpt('retry_timeout', default=30.0, min=0.1, help="""
Seconds for which a call is retried if the server does not answer, or other
clients change the same rows.

After that the call fails, and the caller repeats it. Related: ``timeout``.
"""),
    cfg.FloatOpt('abandoned_after', default=3.0, min=0.0, help="""
Seconds after which a claim or transfer that is in progress is rolled back by
other clients that need the same server or capacity.

A client whose operation is rolled back begins it again, so a low value costs
little. With a high value, other clients wait longer after a client stopped.
"""),
    cfg.StrOpt('consistency', default='QUORUM',
               choices=['QUORUM', 'LOCAL_QUORUM'], help="""
Replicas that must acknowledge a read or a write.

``LOCAL_QUORUM`` counts the replicas of one data centre, and requires
``serial_consistency_level`` to be ``LOCAL_SERIAL``.
"""),
    cfg.StrOpt('serial_consistency_level', default='SERIAL',
               choices=['SERIAL', 'LOCAL_SERIAL'], help="""
Replicas that agree on the order of conditional writes.

Use ``LOCAL_SERIAL`` only if all claims come from one data centre. With claims
from two data centres, each would have its own order, and capacity would be
claimed twice.
"""),
    cfg.StrOpt('local_datacenter', help="""
Name of the data centre whose nodes are preferred.

By default, the nodes of all data centres are used alike.
"""),
    cfg.IntOpt('replication_factor', default=3, min=1, help="""
Replication factor of a keyspace that ``cellsched-manage claims_db sync``
creates.

An existing keyspace is not changed. For another replication strategy, create
the keyspace first.
"""),
    cfg.StrOpt('cafile', help="""
File with certificates of authorities, to check the nodes' certificates.

Used for connections that begin with ``cassandras://``. By default, the
authorities of the operating system are used.
"""),
    cfg.StrOpt('certfile', help="""
File with the certificate of this client.

Needed if the nodes set ``require_client_auth``. Needs ``[cassandra] keyfile``.
"""),
    cfg.StrOpt('keyfile', help="""
File with the private key of ``[cassandra] certfile``.
"""),
    cfg.BoolOpt('verify_hostname', default=True, help="""
Whether the certificate of a node must name the address of the node.

A service learns the addresses of further nodes from the cluster, usually IP
addresses. Turn this off only if the certificates cannot name them and an own
certificate authority is set in ``[cassandra] cafile``.
"""),
    cfg.StrOpt('arithmetic', default='auto', choices=[*ADDS], help="""
Whether the server supports addition to a column under a condition.

``auto`` detects it. Without it, as before Cassandra 5.0, counters are read,
compared and set, which causes more conflicts.
"""),
]


def opts() -> list[cfg.Opt]:
    """Return the options of ``[cassandra]``."""
    if util.find_spec('cassandra') is None:
        raise ImportError('cassandra-driver is missing, which '
                          'cellsched[cassandra] installs')
    return [*_OPTS]


def check(conf: cfg.ConfigOpts) -> None:
    """Check that the options are consistent.

    :raises cellsched.exception.ConfigurationInvalid: they are not
    """
    if conf.consistency == 'LOCAL_QUORUM' and (
            conf.serial_consistency_level != 'LOCAL_SERIAL'):
        raise exception.ConfigurationInvalid(
            field='[cassandra] consistency',
            problem='reads would miss writes of another data center',
            expected='QUORUM, or serial_consistency_level = LOCAL_SERIAL')
    if bool(conf.certfile) != bool(conf.keyfile):
        raise exception.ConfigurationInvalid(
            field='[cassandra] certfile and keyfile',
            problem='only one of them is set', expected='both or none')


@dataclasses.dataclass(frozen=True)
class Address:
    """The parts of the store's URL.

    :param hosts: host and port of each node
    :param shown: the URL without the password
    :param tls: whether to connect with TLS
    """

    hosts: tuple[tuple[str, int], ...]
    keyspace: str
    user: str | None
    password: str | None = dataclasses.field(repr=False)
    shown: str = ''
    tls: bool = False


def address(url: str | None) -> Address:
    """Parse ``cassandra://USER:PASSWORD@HOST:PORT,HOST/KEYSPACE``.

    With ``cassandras://``, connections use TLS.

    :raises cellsched.exception.ConfigurationInvalid: the URL is invalid
    """
    scheme, _, rest = (url or '').partition('://')
    credentials, at, place = rest.rpartition('@')
    places, _, keyspace = place.partition('/')
    user, _, password = credentials.partition(':')
    hosts = tuple(filter(None, map(_host, places.split(','))))
    if (scheme not in ('cassandra', 'cassandras')
            or not _KEYSPACE.fullmatch(keyspace)
            or len(hosts) != len(places.split(','))
            or bool(at) != bool(user and password)):
        raise exception.ConfigurationInvalid(
            field='[claims] connection',
            problem=f'{urls.mask(url):.200} is not valid',
            expected='cassandra://USER:PASSWORD@HOST:PORT,HOST:PORT/KEYSPACE, '
                     'or cassandras:// for TLS; KEYSPACE is 1 to 48 '
                     'characters of a-z, 0-9 and _')
    return Address(
        hosts, keyspace, parse.unquote(user) or None,
        parse.unquote(password) if at else None, urls.mask(url),
        scheme == 'cassandras')


def _host(text: str) -> tuple[str, int] | None:
    found = re.fullmatch(
        r'(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::([0-9]{1,5}))?', text)
    if found is None:
        return None
    port = int(found[3] or PORT)
    return (found[1] or found[2], port) if 0 < port < 65536 else None
