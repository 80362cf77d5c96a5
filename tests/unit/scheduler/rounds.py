# SPDX-License-Identifier: Apache-2.0
"""A claim store that has schedulers race, in the same way each time."""

import random
import threading

from cellsched.claims import base
from cellsched.claims import memory
from cellsched import exception

#: Until threads that wait for each other are given up.
DEADLINE_S = 600


class Rounds(memory.MemoryClaims):
    """Claims are made when all who race have one to make.

    So each of them chooses on what the others' last claims left, and knows of
    none of the next ones. In a round they claim in an order by chance.
    """

    def __init__(self, seed):
        super().__init__()
        self._random = random.Random(seed)
        self._turn = threading.Condition()
        #: Who races, by thread.
        self._racers = {}
        self._racing = 0
        self._claims, self._answers = {}, {}
        #: Claims that were refused.
        self.refused = 0

    def race(self, *functions):
        """Call functions, each of which claims; return what they return."""
        self._racing = len(functions)
        returned = {}

        def run(number, function):
            self._racers[threading.get_ident()] = number
            try:
                returned[number] = function()
            finally:
                with self._turn:
                    self._racing -= 1
                    self._settle()

        threads = [threading.Thread(target=run, args=each, daemon=True)
                   for each in enumerate(functions)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(DEADLINE_S)
        self._racers.clear()
        return [returned[number] for number in range(len(functions))]

    # Each alternative takes a round.
    claim_any = base.ClaimStore.claim_any

    def claim(self, claims):
        number = self._racers.get(threading.get_ident())
        if number is None:
            return super().claim(claims)
        with self._turn:
            self._claims[number] = claims
            self._settle()
            if not self._turn.wait_for(
                    lambda: number in self._answers, DEADLINE_S):
                raise AssertionError('others neither claim nor end')
            answer = self._answers.pop(number)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _settle(self):
        if not self._claims or len(self._claims) < self._racing:
            return
        numbers = sorted(self._claims)
        self._random.shuffle(numbers)
        for number in numbers:
            try:
                self._answers[number] = super().claim(self._claims[number])
            except exception.ClaimRefused as exc:
                self.refused += 1
                self._answers[number] = exc
        self._claims.clear()
        self._turn.notify_all()
