# SPDX-License-Identifier: Apache-2.0
"""Servers: what receives the messages of a topic."""

from collections.abc import Sequence
from concurrent import futures
import functools
import logging
from typing import Any

import oslo_messaging
from oslo_messaging._drivers import base
from oslo_messaging.rpc import dispatcher
from oslo_messaging.rpc import server as oslo_server
from oslo_versionedobjects import exception as ovo_exception

from cellsched import clock as clock_
from cellsched import context as request_context
from cellsched import exception
from cellsched.rpc import brokers
from cellsched.rpc import dispatcher as dispatcher_
from cellsched.rpc import errors
from cellsched.rpc import listening
from cellsched.rpc import serializer

LOG = logging.getLogger(__name__)

#: The logs of those who read messages.
_READERS = ('oslo_messaging._drivers.amqpdriver',
            'oslo.messaging._drivers.impl_rabbit')

#: Seconds between the signs of life that a caller may ask for.
_MONITOR_MAX_S = 1e6


class BaseAPI:
    """What every server answers: whether it is there."""

    target = oslo_messaging.Target(namespace='baseapi', version='1.1')

    def __init__(self, service: str) -> None:
        self._service = service

    def ping(
        self, context: request_context.RequestContext, arg: Any
    ) -> dict[str, Any]:
        """Return ``arg``, and who received it."""
        return {'service': self._service, 'arg': arg}

    def get_backdoor_port(
        self, context: request_context.RequestContext
    ) -> None:
        """Return the port of a debugger, which there is not."""


class Arguments(serializer.Serializer):
    """Reads what callers sent; what cannot be read is an error of theirs."""

    def deserialize_entity(self, ctxt: Any, entity: Any) -> Any:
        try:
            return super().deserialize_entity(ctxt, entity)
        except ovo_exception.IncompatibleObjectVersion:
            # Callers know this one by its name.
            raise
        except (AttributeError, KeyError, RecursionError, TypeError,
                ValueError,
                ovo_exception.VersionedObjectsException) as exc:
            # None of these says which part of the message is meant.
            raise exception.InvalidField(
                where='message', field='nova_object', expected='envelopes '
                'of known objects and versions '
                f'({type(exc).__name__})') from None

    def deserialize_context(
        self, ctxt: dict[str, Any]
    ) -> request_context.RequestContext:
        try:
            return super().deserialize_context(ctxt)
        except (AttributeError, TypeError, ValueError) as exc:
            raise exception.InvalidField(
                where='message', field='context', expected='what '
                f'RequestContext.to_dict gives ({type(exc).__name__})'
            ) from None


class Server(oslo_server.RPCServer):
    """A server whose threads wait for work without waking up.

    Those of oslo.messaging's own choice look for it once a second: they are
    as many as there may be after as many messages, and a server takes up to a
    second to stop. Where messages have to be polled, whoever receives one
    works on it.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._thread_name = f'rpc-{self._target.topic}'
        self._executor_cls = functools.partial(
            futures.ThreadPoolExecutor, thread_name_prefix=self._thread_name)

    def _create_listener(self) -> base.Listener:
        listener = super()._create_listener()
        if isinstance(listener, base.PollStyleListenerAdapter):
            source = listener._poll_style_listener
            listener = listening.Listener(
                source, self._work_executor._max_workers, self._thread_name,
                functools.partial(brokers.socket_of, source))
        return listener

    def _on_incoming(self, incoming: list[Any]) -> None:
        if isinstance(self.listener, listening.Listener):
            self._process_incoming(incoming)
        else:
            super()._on_incoming(incoming)

    # This carries the mark by which oslo.messaging knows what comes in order.
    @functools.wraps(oslo_server.RPCServer.wait)
    def wait(self, *args: Any, **kwargs: Any) -> None:
        super().wait(*args, **kwargs)
        if isinstance(self.dispatcher, dispatcher_.Dispatcher):
            self.dispatcher.stop()

    def _process_incoming(self, incoming: list[Any]) -> None:
        # oslo.messaging logs some of these as they are, and fails at others.
        [message] = incoming
        method = message.message.get('method')
        message.message['method'] = (
            dispatcher_.shown(method) if isinstance(method, str) else None)
        if not _is_number(message.client_timeout):
            message.client_timeout = None
        asker = getattr(message, 'orig_msg_id', None)
        if asker and not (dispatcher_.is_name(asker)
                          and dispatcher_.is_name(message.reply_q)):
            LOG.warning('Refused a message: _msg_id and _reply_q: texts of at '
                        'most %d characters', dispatcher_.NAME_MAX)
            message.acknowledge()
            return
        super()._process_incoming(incoming)


class _Unreadable(logging.Filter):
    """Lets a log have one line of a message that is none.

    oslo.messaging writes the traceback of its reading.
    """

    _begins = ('Failed to process message', 'ignoring duplicate message')

    def filter(self, record: logging.LogRecord) -> bool:
        text = str(record.msg)
        if record.exc_info and text.startswith(self._begins):
            error = record.exc_info[1]
            record.msg, record.args = 'Refused a message: %s: %s', (
                type(error).__name__, dispatcher_.shown(str(error), 200))
            record.levelno, record.levelname = logging.WARNING, 'WARNING'
            record.exc_info = record.exc_text = None
        return True


_UNREADABLE = _Unreadable()


def server(
    transport: oslo_messaging.Transport, topic: str, host: str,
    endpoints: Sequence[Any], clock_tolerance_s: float = 60.0,
    error_form: str = errors.OURS,
) -> oslo_messaging.MessageHandlingServer:
    """Return a server of a topic, to be started.

    It receives what is sent to the topic and to this host of it. Methods whose
    names begin with ``_`` cannot be called. Errors travel to the caller.

    ``start()``, then ``stop()`` and ``wait()``, which returns when what was
    received is done.

    :param clock_tolerance_s: by how much the clocks of callers may differ
    :param error_form: how errors that users may read travel; see ``errors``
    """
    conf = transport.conf
    for name in _READERS:
        logging.getLogger(name).addFilter(_UNREADABLE)
    made = Server(
        transport, oslo_messaging.Target(topic=topic, server=host),
        dispatcher_.Dispatcher(
            [*endpoints, BaseAPI(topic)], Arguments(), clock_.Clock(),
            clock_tolerance_s, errors.translation(error_form)),
        'threading')
    # oslo.messaging asks the global configuration, which may be another.
    if 'rpc_ping_enabled' in conf and conf.rpc_ping_enabled:
        made.dispatcher.endpoints.append(dispatcher.PingEndpoint())
    return made


def _is_number(said: Any) -> bool:
    return type(said) in (int, float) and 0 < said < _MONITOR_MAX_S
