# SPDX-License-Identifier: Apache-2.0
"""Failures to deliver a message.

oslo.messaging translates most errors of a broker, but not those of a
connection that the broker refuses.
"""

from amqp import exceptions as amqp_exc
from kombu import exceptions as kombu_exc
import oslo_messaging

from cellsched import urls

#: Errors of the libraries below oslo.messaging: the broker cannot be reached,
#: or refuses the connection or the message.
BROKER_ERRORS = (kombu_exc.KombuError, amqp_exc.AMQPError)

#: What sending a message may raise when it was not delivered.
ERRORS = (oslo_messaging.MessagingException, *BROKER_ERRORS, OSError)

#: Characters of an error's text that are logged.
_TEXT_MAX = 500


def describe(error: Exception) -> str:
    """Return an error in one line, without passwords of URLs in its text."""
    text = ' '.join(urls.mask_text(str(error)).split())[:_TEXT_MAX]
    return f'{type(error).__name__}: {text}'
