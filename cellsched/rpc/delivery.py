# SPDX-License-Identifier: Apache-2.0
"""Errors of message delivery.

oslo.messaging translates most errors of a broker, but not the errors of a
connection that the broker refuses.
"""

from amqp import exceptions as amqp_exc
from kombu import exceptions as kombu_exc
import oslo_messaging

from cellsched import exception
from cellsched import urls

#: Errors of the libraries below oslo.messaging: the broker is unreachable, or
#: refuses the connection or the message.
BROKER_ERRORS = (kombu_exc.KombuError, amqp_exc.AMQPError)

#: Errors that sending raises if the message was not delivered.
ERRORS = (oslo_messaging.MessagingException, *BROKER_ERRORS, OSError)

#: Maximum length of an error text in the log.
_TEXT_MAX = 500


def describe(error: Exception) -> str:
    """Return an error as one line, without the passwords of URLs in it.

    The text of an error of another service ends with its traceback, which is
    left out.
    """
    text = (error.format_message()
            if isinstance(error, exception.CellschedException)
            else str(error).partition('\nTraceback ')[0])
    text = ' '.join(urls.mask_text(text).split())[:_TEXT_MAX]
    return f'{exception.kind_of(error)}: {text}'
