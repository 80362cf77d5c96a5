# SPDX-License-Identifier: Apache-2.0
from amqp import exceptions as amqp_exc
from kombu import exceptions as kombu_exc
import oslo_messaging

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
            delivery.describe(ValueError('to\n amqp://user:s3cret@broker')))

    def test_long_text_is_cut(self):
        self.assertLess(len(delivery.describe(ValueError('x' * 9999))), 600)
