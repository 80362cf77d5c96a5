# SPDX-License-Identifier: Apache-2.0
import sys

from amqp import exceptions as amqp_exc
from kombu import exceptions as kombu_exc
import oslo_messaging
from oslo_messaging._drivers import common

from cellsched import exception
from cellsched.rpc import delivery
from tests.unit import base


class TestErrors(base.TestCase):

    def test_errors_of_every_layer_are_known(self):
        for error in (oslo_messaging.MessageDeliveryFailure(),
                      oslo_messaging.MessagingTimeout(),
                      kombu_exc.OperationalError(), amqp_exc.AccessRefused(),
                      amqp_exc.NotAllowed(), ConnectionResetError(),
                      TimeoutError()):
            self.assertIsInstance(error, delivery.ERRORS)

    def test_an_error_is_one_line_without_passwords(self):
        self.assertEqual(
            'ValueError: to amqp://user:****@broker',
            exception.describe(ValueError('to\n amqp://user:s3cret@broker')))

    def test_long_text_is_cut(self):
        self.assertLess(len(exception.describe(ValueError('x' * 9999))), 600)

    def test_traceback_of_another_service_is_left_out(self):
        error = common.deserialize_remote_exception(
            common.serialize_remote_exception(sent(
                exception.NoValidHost(reason='there is none'))),
            ['cellsched.exception'])

        self.assertIn('Traceback', str(error))
        self.assertEqual('NoValidHost: No valid host was found. there is none',
                         exception.describe(error))


def sent(error):
    """Return an error as a server sends it."""
    try:
        raise error
    except Exception:
        return sys.exc_info()
