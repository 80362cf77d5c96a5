# SPDX-License-Identifier: Apache-2.0
"""Errors of message delivery, and tests whether a broker rejects the client.

oslo.messaging translates most errors of a broker, but not the errors of a
connection that the broker refuses. Its server declares a queue that the broker
refuses again and again.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import logging
from typing import Any
from typing import NamedTuple
import uuid

from amqp import exceptions as amqp_exc
import kombu
from kombu import exceptions as kombu_exc
from oslo_config import cfg
import oslo_messaging

from cellsched import exception
from cellsched.rpc import broker_urls
from cellsched.rpc.rabbit_options import GROUP
from cellsched.rpc.rabbit_options import Options

LOG = logging.getLogger(__name__)

#: Errors of the libraries below oslo.messaging: the broker is unreachable, or
#: refuses the connection or the message.
BROKER_ERRORS = (kombu_exc.KombuError, amqp_exc.AMQPError)

#: Errors that sending raises if the message was not delivered.
ERRORS = (oslo_messaging.MessagingException, *BROKER_ERRORS, OSError)

#: Errors of a broker that the same declaration will meet again.
_REFUSALS = (amqp_exc.AccessRefused, amqp_exc.AMQPNotImplementedError,
             amqp_exc.InternalError, amqp_exc.NotAllowed,
             amqp_exc.PreconditionFailed, amqp_exc.ResourceLocked)

#: Maximum length of the text of a broker in an error.
_SHOWN_MAX = 300

#: The begin of the names of queues that only a check declares.
_CHECK = 'cellsched_check'

#: Milliseconds after which the broker deletes such a queue.
_CHECK_KEPT_MS = 60_000


class _Refused(Exception):
    """The broker answered and rejected the client.

    :param field: what it rejects; None for the connection
    """

    def __init__(self, reason: str, field: str | None = None) -> None:
        super().__init__(reason)
        self.field = field


def check_options(
    conf: cfg.ConfigOpts, url: oslo_messaging.TransportURL
) -> None:
    """Check the options for the broker at a URL; connects to nothing.

    :raises cellsched.exception.ConfigurationInvalid: the driver cannot work
        with an option
    """
    Options(conf, url).check()


def certificate_remark(
    conf: cfg.ConfigOpts, url: oslo_messaging.TransportURL
) -> str | None:
    """Return a remark about the certificates of several brokers, or None."""
    if not broker_urls.is_broker(url) or len(url.hosts) < 2:
        return None
    options = Options(conf, url)
    if not options['ssl'] or not options['ssl_ca_file']:
        return None
    return ('each certificate must contain the names of all '
            f'{len(url.hosts)} hosts: after a fail-over, the client compares '
            'it with the name of the first host')


def check_broker(
    conf: cfg.ConfigOpts, url: oslo_messaging.TransportURL, field: str,
    timeout_s: float = 5.0, must_answer: bool = False,
) -> None:
    """Check that the broker at a URL accepts connections.

    Each host of the URL is tried until one accepts. An unreachable broker is
    logged, because services wait for it. URLs of other drivers are skipped.

    :param field: the option of the URL
    :param timeout_s: timeout for each host; by default the driver's
    :param must_answer: whether an unreachable broker is an error
    :raises cellsched.exception.BrokerUnreachable: no host answers
    :raises cellsched.exception.BrokerRefused: each host that answers rejects
        the user, the password or the virtual host
    :raises cellsched.exception.ConfigurationInvalid: the options cannot be
        used
    """
    reason = _try_hosts(conf, url, field, timeout_s, None)
    if reason and must_answer:
        raise exception.BrokerUnreachable(field=field, reason=reason)
    if reason:
        LOG.warning('The broker of %s is unreachable: %s', field, reason)


def check_queues(
    conf: cfg.ConfigOpts, url: oslo_messaging.TransportURL, field: str,
    targets: Sequence[oslo_messaging.Target], timeout_s: float = 10.0,
) -> None:
    """Check that the broker at a URL accepts the queues of servers.

    They are declared as the driver declares them. Without servers, queues of
    the same kinds are declared and deleted.

    :param targets: the topics and the names of the servers
    :param timeout_s: timeout for each host and each queue
    :raises cellsched.exception.BrokerRefused: the broker rejects a queue, or
        as :func:`check_broker`
    :raises cellsched.exception.ConfigurationInvalid: the options cannot be
        used
    :raises oslo_messaging.MessageDeliveryFailure: no host answers
    """
    reason = _try_hosts(conf, url, field, timeout_s, targets)
    if reason:
        raise oslo_messaging.MessageDeliveryFailure(
            f'The broker of {field} is unreachable: {reason}')


def _try_hosts(
    conf: cfg.ConfigOpts, url: oslo_messaging.TransportURL, field: str,
    timeout_s: float, targets: Sequence[oslo_messaging.Target] | None,
) -> str:
    """Try each host until one accepts; return why none could be reached.

    :param targets: see :func:`check_queues`; None declares nothing
    """
    if not broker_urls.is_broker(url):
        return ''
    options = Options(conf, url)
    options.check()
    refused: exception.BrokerRefused | None = None
    unreachable: list[str] = []
    for host in url.hosts or [None]:
        place = _place(host)
        try:
            _connect(broker_urls.for_kombu(url, host), timeout_s, options,
                     targets)
            return ''
        except _Refused as exc:
            refused = exception.BrokerRefused(
                place=place, field=exc.field or field, reason=str(exc))
            if exc.field:
                # The queues of a cluster are those of all its hosts.
                break
        except ERRORS as exc:
            unreachable.append(f'{place} ({exception.describe(exc)})')
    if refused is not None:
        raise refused
    return ', '.join(unreachable)


def _connect(
    url: str, timeout_s: float, options: Options,
    targets: Sequence[oslo_messaging.Target] | None,
) -> None:
    # Announce the same capability as the driver. Without it, RabbitMQ closes
    # the socket without a reason.
    requested = {'capabilities': {'authentication_failure_close': True}}
    connection = kombu.Connection(
        url, connect_timeout=timeout_s, ssl=options.tls(),
        login_method=options['rabbit_login_method'],
        transport_options={
            'client_properties': requested, 'read_timeout': timeout_s,
            'write_timeout': timeout_s})
    transport = connection.transport
    try:
        opened = transport.establish_connection()
    except amqp_exc.AccessRefused:
        raise _Refused('the user name or the password is wrong') from None
    except amqp_exc.NotAllowed as exc:
        # The error text names the user and the virtual host.
        raise _Refused(_text(exc)) from None
    try:
        if targets is not None:
            _declare(opened.channel(), options, targets)
    finally:
        transport.close_connection(opened)


class _Kind(NamedTuple):
    """A kind of the queues that the driver declares.

    :param option: the option that chooses the kind
    """

    option: str
    durable: bool
    auto_delete: bool
    arguments: dict[str, Any]


def _kinds(options: Options) -> tuple[_Kind, _Kind, _Kind]:
    """Return the kinds of the queues of topics, of fan-out and of replies."""
    mirrored = ({'x-ha-policy': 'all'} if options['rabbit_ha_queues'] else {})
    quorum: dict[str, Any] = {'x-queue-type': 'quorum'}
    for name, argument in (
            ('delivery_limit', 'x-delivery-limit'),
            ('max_memory_length', 'x-max-in-memory-length'),
            ('max_memory_bytes', 'x-max-in-memory-bytes')):
        if options[f'rabbit_quorum_{name}']:
            quorum[argument] = options[f'rabbit_quorum_{name}']
    expires_s = options['rabbit_transient_queues_ttl']
    expires = {'x-expires': expires_s * 1000} if expires_s else {}
    topics = _Kind(
        'rabbit_quorum_queue', options.durable, options['amqp_auto_delete'],
        quorum if options['rabbit_quorum_queue'] else mirrored)
    replies = _Kind(
        'rabbit_transient_quorum_queue',
        options['rabbit_transient_quorum_queue'], False,
        {**(quorum if options['rabbit_transient_quorum_queue'] else mirrored),
         **expires})
    if not options['rabbit_stream_fanout']:
        return topics, replies._replace(
            option='rabbit_stream_fanout'), replies
    ages = {'x-max-age': f'{expires_s}s'} if expires_s else {}
    return topics, _Kind('rabbit_stream_fanout', True, False, {
        'x-queue-type': 'stream', **ages}), replies


def _declare(
    channel: Any, options: Options,
    targets: Sequence[oslo_messaging.Target],
) -> None:
    """Declare queues and their exchanges as the driver declares them."""
    topics, fanout, replies = _kinds(options)
    # 1. Queues of each kind, which this check deletes. A refused queue must
    #    leave no exchange of its kind, which would be in the way of the next.
    found = [(topics, _queue(topics, None, _CHECK)),
             (fanout, _queue(fanout, None, f'{_CHECK}_fanout')),
             (replies, _queue(replies, None, f'reply_{_CHECK}'))]
    for kind, queue in found:
        with _refusals(kind, options, queue.name):
            queue.name = f'{queue.name}_{uuid.uuid4().hex[:8]}'
            if kind.arguments.get('x-queue-type') != 'stream':
                # If the connection fails, the broker deletes the queue.
                queue.queue_arguments = {**queue.queue_arguments,
                                         'x-expires': _CHECK_KEPT_MS}
            queue(channel).declare()
        queue(channel).delete()
    # 2. The queues that the driver uses later, and their exchanges. It makes
    #    the names of other queues itself.
    exchange = kombu.Exchange(
        options.exchange, 'topic', durable=topics.durable,
        auto_delete=topics.auto_delete)
    found = [(topics, _queue(topics, exchange, name))
             for target in targets for name in _names(target)]
    if options['rabbit_stream_fanout']:
        found += [(fanout, _queue(fanout, kombu.Exchange(
            f'{target.topic}_fanout', 'fanout', durable=True,
            auto_delete=True), f'{target.topic}_fanout', target.topic))
            for target in targets]
    for kind, queue in found:
        with _refusals(kind, options, queue.name):
            queue(channel).declare()


def _names(target: oslo_messaging.Target) -> Iterator[str]:
    yield target.topic
    if target.server:
        yield f'{target.topic}.{target.server}'


def _queue(
    kind: _Kind, exchange: Any, name: str,
    key: str | None = None,
) -> Any:
    return kombu.Queue(
        name, exchange, key or name, durable=kind.durable,
        auto_delete=kind.auto_delete, queue_arguments=kind.arguments)


@contextlib.contextmanager
def _refusals(
    kind: _Kind, options: Options, name: str
) -> Iterator[None]:
    """Translate the error of a broker that refuses a queue."""
    try:
        yield
    except _REFUSALS as exc:
        text = _text(exc)
        field = (f'[{GROUP}] {kind.option} = '
                 f'{str(options[kind.option]).lower()} for queue {name}')
        if isinstance(exc, amqp_exc.AccessRefused):
            field = f'queue {name}'
            remedy = 'give the user the rights configure, write and read'
        elif 'inequivalent' in text:
            remedy = ('it was made with another option; use a new virtual '
                      'host, or delete it in the broker')
        elif not options[kind.option]:
            remedy = 'set the option to true'
        else:
            remedy = 'change the option'
        raise _Refused(f'{text}; {remedy}', field) from None


def _text(error: amqp_exc.AMQPError) -> str:
    return ' '.join(error.reply_text.split())[:_SHOWN_MAX]


def _place(host: oslo_messaging.TransportHost | None) -> str:
    if host is None:
        return f'localhost:{broker_urls.PORT}'
    return f'{host.hostname}:{host.port or broker_urls.PORT}'
