# SPDX-License-Identifier: Apache-2.0
"""Servers: what receives the messages of a topic."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import oslo_messaging
from oslo_messaging.rpc import dispatcher as oslo_dispatcher
from oslo_messaging.rpc import server as oslo_server
from oslo_versionedobjects import exception as ovo_exception

from cellsched import context as request_context
from cellsched import exception
from cellsched.rpc import dispatcher as dispatcher_
from cellsched.rpc import remote_exceptions
from cellsched.rpc import serializer


class BaseAPI:
    """The endpoint that every server has: it answers whether it is there."""

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


def server(
    transport: oslo_messaging.Transport, topic: str, host: str,
    endpoints: Sequence[Any], now: Callable[[], float] | None = None,
    error_form: str = remote_exceptions.OURS,
) -> oslo_messaging.MessageHandlingServer:
    """Return a server of a topic, to be started.

    It receives what is sent to the topic and to this host of it. Methods whose
    names begin with ``_`` cannot be called. Errors travel to the caller.

    ``start()``, then ``stop()`` and ``wait()``, which returns when what was
    received is done.

    :param now: returns seconds since the epoch by the clock by which callers
        say until when they wait; without it nothing comes too late
    :param error_form: how errors that users may read travel; see ``errors``
    """
    dispatcher = dispatcher_.Dispatcher(
        [*endpoints, BaseAPI(topic)], Arguments(), now,
        remote_exceptions.translation(error_form))
    # oslo.messaging asks the global configuration, which may be another.
    conf = transport.conf
    if 'rpc_ping_enabled' in conf and conf.rpc_ping_enabled:
        dispatcher.endpoints.append(oslo_dispatcher.PingEndpoint())
    return oslo_server.RPCServer(
        transport, oslo_messaging.Target(topic=topic, server=host),
        dispatcher)
