# SPDX-License-Identifier: Apache-2.0
"""Moves whose message cannot be sent change nothing."""

from amqp import exceptions as amqp_exc
import fixtures
from kombu import exceptions as kombu_exc
import oslo_messaging

from cellsched import exception
from tests.functional import base
from tests.functional import moving

#: What sending a message may raise.
FAILURES = (
    oslo_messaging.MessageDeliveryFailure('away'),
    kombu_exc.OperationalError('away'),
    amqp_exc.AccessRefused('wrong password'),
    ConnectionResetError('reset'),
)


class TestUnsendableMoves(moving.TestCase):

    def setUp(self):
        super().setUp()
        self.start()
        self.uuid = self.active()
        self.host = self.row(self.uuid).host

    def ask(self, ask, failure, expected=exception.CellUnreachable):
        """Ask for a move while every message fails; return the error."""
        def fail(*args, **kwargs):
            raise failure

        with fixtures.MonkeyPatch(
                'oslo_messaging.rpc.client._BaseCallContext.cast', fail):
            return self.assertRaises(expected, ask, base.ADMIN, self.uuid)

    def assert_no_move_begun(self, asked=1):
        self.assertEqual(['error'] * asked, self.statuses(self.uuid))
        self.assertRests('active', self.host, self.uuid)

    def test_server_does_not_change(self):
        moves = self.moves
        wishes = [(ask, failure) for failure in FAILURES
                  for ask in (moves.migrate, moves.rebuild, moves.shelve)]
        for asked, (ask, failure) in enumerate(wishes, 1):
            error = self.ask(ask, failure)

            self.assertIn('was not begun', str(error))
            self.assert_no_move_begun(asked)

    def test_error_of_a_foreign_driver_changes_no_server(self):
        self.ask(self.moves.migrate, RuntimeError('a driver of somebody'),
                 RuntimeError)

        self.assert_no_move_begun()
