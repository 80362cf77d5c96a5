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

#: What the option ``arithmetic`` says of the server.
ADDS = {'auto': None, 'yes': True, 'no': False}

PORT = 9042

_KEYSPACE = re.compile('[a-z][a-z0-9_]{0,47}')


_OPTS = [
    cfg.FloatOpt('timeout', default=10.0, min=0.1, help="""
Seconds in which the server has to answer one request.

A request that is not answered by then may have been done; the store finds
out. Less than what the server itself waits, which is ``write_request_timeout``
in its configuration, makes more of them. Related: ``patience``.
"""),
    cfg.FloatOpt('patience', default=30.0, min=0.1, help="""
Seconds for which a call goes on where the server does not answer, or others
are in the way.

After that it fails, and whoever made it repeats it. Related: ``timeout``.
"""),
    cfg.FloatOpt('abandoned_after', default=3.0, min=0.0, help="""
Seconds for which a claim or a transfer that is under way is left alone by
others who want the same server, or the room that it may give back.

Then it is undone. A client that is alive begins again when that happens to it,
so little is lost where this is too short; where it is too long, others wait
for a client that died.
"""),
    cfg.StrOpt('consistency', default='QUORUM',
               choices=['QUORUM', 'LOCAL_QUORUM'], help="""
Replicas that have a write when it is done.

``LOCAL_QUORUM`` needs those of one data centre only, and goes with
``serial_consistency_level`` being ``LOCAL_SERIAL``.
"""),
    cfg.StrOpt('serial_consistency_level', default='SERIAL',
               choices=['SERIAL', 'LOCAL_SERIAL'], help="""
Replicas among which conditional writes are put in order.

``LOCAL_SERIAL`` is for claims that all come from one data centre: with two of
them, each would have an order of its own, and room would be taken twice.
"""),
    cfg.StrOpt('local_datacenter', help="""
Data centre whose nodes are asked first.

Unset, the nodes of all are asked alike. The name is the server's.
"""),
    cfg.IntOpt('replication_factor', default=3, min=1, help="""
Copies of the data, where ``cellsched-manage claims_db sync`` makes the
keyspace.

A keyspace that is there is left as it is, so whoever wants another strategy of
replication makes it before.
"""),
    cfg.StrOpt('arithmetic', default='auto', choices=[*ADDS], help="""
Whether the server can add to a column under a condition.

``auto`` asks it. Where it cannot, as before Cassandra 5.0, figures are read,
compared and set, which loses more often to others.
"""),
]


def opts() -> list[cfg.Opt]:
    """Return the options of ``[cassandra]``."""
    if util.find_spec('cassandra') is None:
        raise ImportError('cassandra-driver is missing, which '
                          'cellsched[cassandra] installs')
    return [*_OPTS]


def check(conf: cfg.ConfigOpts) -> None:
    """Make sure that options go together.

    :raises cellsched.exception.ConfigurationInvalid: they do not
    """
    if conf.consistency == 'LOCAL_QUORUM' and (
            conf.serial_consistency_level != 'LOCAL_SERIAL'):
        raise exception.ConfigurationInvalid(
            field='[cassandra] consistency',
            expected='QUORUM, unless serial_consistency_level is '
                     'LOCAL_SERIAL: what another data centre writes would '
                     'not be read')


@dataclasses.dataclass(frozen=True)
class Address:
    """The place of the claims.

    :param hosts: with a port each
    :param shown: all of it without the password
    """

    hosts: tuple[tuple[str, int], ...]
    keyspace: str
    user: str | None
    password: str | None = dataclasses.field(repr=False)
    shown: str = ''


def address(url: str | None) -> Address:
    """Return what ``cassandra://USER:PASSWORD@HOST:PORT,HOST/KEYSPACE`` says.

    :raises cellsched.exception.ConfigurationInvalid: it is another URL
    """
    scheme, _, rest = (url or '').partition('://')
    credentials, at, place = rest.rpartition('@')
    places, _, keyspace = place.partition('/')
    user, _, password = credentials.partition(':')
    hosts = tuple(filter(None, map(_host, places.split(','))))
    if (scheme != 'cassandra' or not _KEYSPACE.fullmatch(keyspace)
            or len(hosts) != len(places.split(','))
            or bool(at) != bool(user and password)):
        raise exception.ConfigurationInvalid(
            field='[claims] connection',
            expected='cassandra://USER:PASSWORD@HOST:PORT,HOST:PORT/KEYSPACE, '
                     'a keyspace being a-z, 0-9 and _, at most 48, not '
                     f'{urls.mask(url):.200}')
    return Address(
        hosts, keyspace, parse.unquote(user) or None,
        parse.unquote(password) if at else None, urls.mask(url))


def _host(text: str) -> tuple[str, int] | None:
    found = re.fullmatch(
        r'(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::([0-9]{1,5}))?', text)
    if found is None:
        return None
    port = int(found[3] or PORT)
    return (found[1] or found[2], port) if 0 < port < 65536 else None
