# SPDX-License-Identifier: Apache-2.0

import signal

from cellsched import interrupts
from tests.unit import base


class TestInterrupts(base.TestCase):

    def setUp(self):
        super().setUp()
        self.addCleanup(
            signal.signal, signal.SIGINT, signal.getsignal(signal.SIGINT))

    def during(self, handler):
        """Return the handlers in the context and after it."""
        signal.signal(signal.SIGINT, handler)
        with interrupts.ended_by_interrupts():
            inside = signal.getsignal(signal.SIGINT)
        return inside, signal.getsignal(signal.SIGINT)

    def test_interrupt_ends_the_process_until_the_context_ends(self):
        default = signal.default_int_handler

        self.assertEqual((signal.SIG_DFL, default), self.during(default))

    def test_other_handlers_stay(self):
        for handler in signal.SIG_IGN, lambda *received: None:
            self.assertEqual((handler, handler), self.during(handler))
