# SPDX-License-Identifier: Apache-2.0
"""Servers: what receives the messages of a topic."""

from collections.abc import Sequence
from concurrent import futures
import functools
from typing import Any

import oslo_messaging
from oslo_messaging.rpc import dispatcher
from oslo_messaging.rpc import server as oslo_server
from oslo_versionedobjects import exception as ovo_exception

from cellsched import context as request_context
from cellsched import exception
from cellsched.rpc import serializer


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


class Arguments(serializer.Serializer):
    """Reads what callers sent; what cannot be read is an error of theirs.

    They are told which field it is, and nothing is logged.
    """

    def deserialize_entity(self, ctxt: Any, entity: Any) -> Any:
        try:
            return self._read(ctxt, entity)
        except exception.CellschedException:
            # It takes the error that is being handled with it.
            raise dispatcher.ExpectedException() from None

    def _read(self, ctxt: Any, entity: Any) -> Any:
        try:
            return super().deserialize_entity(ctxt, entity)
        except (AttributeError, KeyError, RecursionError, TypeError,
                ValueError,
                ovo_exception.VersionedObjectsException) as exc:
            # None of these says which part of the message is meant.
            raise exception.InvalidField(
                where='message', field='nova_object', expected='envelopes '
                'of known objects and versions '
                f'({type(exc).__name__})') from exc


class Server(oslo_server.RPCServer):
    """A server whose threads wait for work without waking up.

    Those of oslo.messaging's own choice look for it once a second: they are
    as many as there may be after as many messages, and a server takes up to a
    second to stop.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._executor_cls = functools.partial(
            futures.ThreadPoolExecutor,
            thread_name_prefix=f'rpc-{self._target.topic}')


def server(
    transport: oslo_messaging.Transport, topic: str, host: str,
    endpoints: Sequence[Any],
) -> oslo_messaging.MessageHandlingServer:
    """Return a server of a topic, to be started.

    It receives what is sent to the topic and to this host of it. Methods whose
    names begin with ``_`` cannot be called. What an endpoint expects to raise
    it says by ``oslo_messaging.expected_exceptions``; other errors are logged
    too, and all of them travel to a caller.

    ``start()``, then ``stop()`` and ``wait()``, which returns when what was
    received is done.
    """
    made = oslo_messaging.get_rpc_server(
        transport, oslo_messaging.Target(topic=topic, server=host),
        [*endpoints, BaseAPI(topic)], serializer=Arguments(),
        access_policy=dispatcher.DefaultRPCAccessPolicy, server_cls=Server)
    # oslo.messaging asks the global configuration, which may be another.
    if 'rpc_ping_enabled' in made.conf and made.conf.rpc_ping_enabled:
        made.dispatcher.endpoints.append(dispatcher.PingEndpoint())
    return made
