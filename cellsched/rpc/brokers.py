# SPDX-License-Identifier: Apache-2.0
"""Connections to brokers that do no more for a message than it needs.

What oslo.messaging's drivers for brokers do beside that takes as long as to
read a message or to send one.
"""

from collections.abc import Callable
import contextlib
import socket
from typing import Any

import oslo_messaging
from oslo_messaging._drivers import amqp
from oslo_messaging._drivers import amqpdriver
from oslo_messaging._drivers import common

from cellsched.rpc import waiting

#: Seconds to wait at least. A listener that stops waits as long at most.
LEAST_S = 1.0

#: What a driver hands to who sends or listens, and never tries again.
_ANSWERS = (common.Timeout, amqp.AMQPDestinationNotFound,
            oslo_messaging.MessageUndeliverable)


def tune(transport: oslo_messaging.Transport) -> None:
    """Let the connections of an RPC transport do what they should.

    Those of other drivers, which have no broker, are left as they are.
    """
    driver: Any = transport._driver
    if not isinstance(driver, amqpdriver.AMQPDriverBase):
        return
    get_connection = driver._get_connection

    def tuned(
        purpose: Any = common.PURPOSE_SEND, *args: Any, **kwargs: Any
    ) -> Any:
        connection = get_connection(purpose, *args, **kwargs)
        if purpose == common.PURPOSE_LISTEN:
            _wait_longer(connection)
        _do_less(connection.connection)
        return connection

    def reply_q() -> str:
        with driver._reply_q_lock:
            if driver._reply_q is None:
                name = driver._get_reply_queue_name()
                connection = get_connection(common.PURPOSE_LISTEN)
                _do_less(connection.connection)
                driver._waiter = waiting.Waiter(
                    name, connection, driver._allowed_remote_exmods)
                driver._reply_q_conn = connection
                driver._reply_q = name
            return str(driver._reply_q)

    driver._get_connection = tuned
    driver._get_reply_q = reply_q


def socket_of(listener: Any) -> socket.socket | None:
    """Return the socket from which a driver's listener reads.

    None where there is none now, or where more has been read than was asked
    for, as by TLS.
    """
    if (not isinstance(listener, amqpdriver.AMQPListener)
            or listener.incoming):
        return None
    try:
        found = listener.conn.connection.channel.connection.sock
    except AttributeError:
        # It is not connected, or to nothing that has a socket.
        return None
    return found if type(found) is socket.socket else None


def _wait_longer(connection: Any) -> None:
    """Have a listener wait for messages without waking up in between.

    After each message it waits for the next one for a millisecond, for two,
    for four and so on, to see whether messages are to be acknowledged. Those
    of RPC are when they are received, so that there is nothing to see.
    """
    consume = connection.consume
    connection.consume = lambda timeout=None: consume(
        timeout=timeout and max(timeout, LEAST_S))


def _do_less(connection: Any) -> None:
    """Have a connection do what is needed, if it does not yet."""
    if 'ensure' not in vars(connection):
        _try_first(connection)
        _limit_less(connection)


def _limit_less(connection: Any) -> None:
    """Have a connection keep its timeout for messages that have more time.

    Its socket never waits for longer than for heartbeats, and is told so
    before and after each message that is sent.
    """
    limit = connection._transport_socket_timeout
    longest_s = connection.heartbeat_timeout_threshold

    def limit_less(
        timeout: float | None
    ) -> contextlib.AbstractContextManager[None]:
        if ((timeout is None or timeout >= longest_s)
                and connection._heartbeat_supported_and_enabled()):
            return contextlib.nullcontext()
        return limit(timeout)

    connection._transport_socket_timeout = limit_less


def _try_first(connection: Any) -> None:
    """Have a connection prepare for a failure once there is one.

    For each message that is sent or waited for kombu makes a class, whose
    objects know how to go on after a reconnection.
    """
    ensure = connection.ensure

    def try_first(
        method: Callable[[], Any], *args: Any, **kwargs: Any
    ) -> Any:
        if connection.channel is None:
            return ensure(method, *args, **kwargs)
        try:
            return method()
        except _ANSWERS:
            raise
        except Exception as exc:
            failures = [exc]

        def fail_first() -> Any:
            # For it is the first of the tries that it counts.
            if failures:
                raise failures.pop()
            return method()

        return ensure(fail_first, *args, **kwargs)

    connection.ensure = try_first
