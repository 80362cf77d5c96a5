# SPDX-License-Identifier: Apache-2.0
"""Errors of message delivery.

oslo.messaging translates most errors of a broker, but not the errors of a
connection that the broker refuses.
"""

from amqp import exceptions as amqp_exc
from kombu import exceptions as kombu_exc
import oslo_messaging

#: Errors of the libraries below oslo.messaging: the broker is unreachable, or
#: refuses the connection or the message.
BROKER_ERRORS = (kombu_exc.KombuError, amqp_exc.AMQPError)

#: Errors that sending raises if the message was not delivered.
ERRORS = (oslo_messaging.MessagingException, *BROKER_ERRORS, OSError)
