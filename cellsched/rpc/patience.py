# SPDX-License-Identifier: Apache-2.0
"""Connections that wait for messages without waking up in between.

After each message oslo.messaging's drivers for brokers wait for the next one
for a millisecond, for two, for four and so on, to see whether messages are to
be acknowledged. Those of RPC are when they are received, so that there is
nothing to see, and each look takes longer than to read a message.
"""

from typing import Any

import oslo_messaging
from oslo_messaging._drivers import amqpdriver
from oslo_messaging._drivers import common

#: Seconds to wait at least. A listener that stops waits as long at most.
LEAST_S = 1.0


def teach(transport: oslo_messaging.Transport) -> None:
    """Have all who listen to an RPC transport wait longer.

    Those of other drivers, which have no broker, are left as they are.
    """
    driver: Any = transport._driver
    if not isinstance(driver, amqpdriver.AMQPDriverBase):
        return
    get_connection = driver._get_connection

    def patient(
        purpose: Any = common.PURPOSE_SEND, *args: Any, **kwargs: Any
    ) -> Any:
        connection = get_connection(purpose, *args, **kwargs)
        if purpose == common.PURPOSE_LISTEN:
            consume = connection.consume
            connection.consume = lambda timeout=None: consume(
                timeout=timeout and max(timeout, LEAST_S))
        return connection

    driver._get_connection = patient
