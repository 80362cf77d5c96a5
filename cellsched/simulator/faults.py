# SPDX-License-Identifier: Apache-2.0
"""Faults, drawn from a seed."""

from collections.abc import Collection
import copy
import random

import oslo_messaging

from cellsched.simulator import network
from cellsched.simulator import stores

#: Everything that may go wrong. A run has some of it.
KINDS = (
    # Processes: one dies and comes back; one stands still for minutes, as do
    # all that it does; all of them are slow.
    'kill', 'freeze', 'stall',
    # Messages: lost, said again, late.
    'lose', 'repeat', 'delay',
    # Brokers take nothing for a while.
    'broker',
    # Databases are down for a while, or go when a transaction is committed,
    # or let it lose to another one.
    'cell', 'cell0', 'api', 'commit', 'commit_api', 'commit_claims', 'lost',
    # Clocks jump.
    'clock',
    # Builds fail on their hosts.
    'build',
)

#: What may go wrong beside it where claims are on a server of their own: it is
#: down for a while; a request to it is lost, or its answer; it comes late, or
#: twice.
SERVER_KINDS = ('claims', 'request', 'answer', 'late', 'twice')

#: Processes that die in one run.
_DEATHS_MAX = 3

_JUMPS_S = (-600.0, 600.0)
_STALLS_S = (5.0, 31.0, 61.0, 130.0)
_FREEZES_S = (1.0, 100.0, 150.0, 200.0)

#: How long faults may go on, as long as there is something to be done.
_LENGTHS_S = (0.0, 0.0, 70.0, 200.0)


class Faults:
    """The faults of one run, as often as chance has it.

    :param kinds: of :data:`KINDS`
    :param rate: how often, between 0 and 1; left to chance by default
    """

    def __init__(
        self, chance: random.Random, kinds: Collection[str],
        rate: float | None = None,
    ) -> None:
        self._random = chance
        self.kinds = frozenset(kinds)
        drawn = chance.choice((0.03, 0.1, 0.25))
        self._rate = drawn if rate is None else rate
        self._deaths = 0
        #: When nothing goes wrong any more.
        self.until = chance.choice(_LENGTHS_S)
        if 'freeze' in self.kinds:
            # Who stood still is to find what others did meanwhile.
            self.until = max(_LENGTHS_S)
        #: What is down, and until when.
        self._down: dict[str, float] = {}

    def happens(self, kind: str, factor: float = 1.0) -> bool:
        """Return whether something goes wrong now."""
        return kind in self.kinds and (
            self._random.random() < self._rate * factor)

    def stop(self) -> None:
        """Let nothing go wrong from now on."""
        self.kinds = frozenset()
        self.until = 0.0
        self._down.clear()

    def death(self) -> bool:
        """Return whether the process that goes on is to die instead."""
        if self._deaths >= _DEATHS_MAX or not self.happens('kill', 0.3):
            return False
        self._deaths += 1
        return True

    def freeze_s(self) -> float:
        """Return how long the process that goes on stands still."""
        return (self._random.choice(_FREEZES_S)
                if self.happens('freeze', 0.2) else 0.0)

    def stall_s(self) -> float:
        """Return how long nothing goes on."""
        return (self._random.choice(_STALLS_S)
                if self.happens('stall', 0.15) else 0.0)

    def jump_s(self) -> float | None:
        """Return by how much a clock is ahead from now on, if it jumps."""
        return (self._random.choice((0.0, *_JUMPS_S))
                if self.happens('clock', 0.1) else None)

    def strike(
        self, store: stores.Store, writes: bool, now: float
    ) -> str | None:
        """Return how a transaction goes wrong; see ``stores.Gate.ask``."""
        name = store.url.rpartition('/')[2]
        kind = 'cell' if name.startswith('cell') and name != 'cell0' else name
        if self._is_down(name, kind, now):
            raise stores.unreachable(store, 'down')
        if not writes:
            return None
        commit = 'commit' if kind in ('cell', 'cell0') else f'commit_{kind}'
        if self.happens(commit):
            # Where it is gone before the commit, nothing is written.
            if self._random.random() < 0.5:
                return 'unknown'
            raise stores.unreachable(store, 'gone')
        return 'lost' if self.happens('lost') else None

    def send(self, now: float) -> stores.Fate:
        """Return what becomes of a request to the claim store's server."""
        if self._is_down('claims', 'claims', now):
            return stores.Fate.NOT_SENT
        for kind, fate in (('request', stores.Fate.LOST),
                           ('answer', stores.Fate.UNANSWERED),
                           ('late', stores.Fate.LATE),
                           ('twice', stores.Fate.TWICE)):
            if self.happens(kind, 0.5):
                return fate
        return stores.Fate.ANSWERED

    def deliver(
        self, message: network.Message, now: float
    ) -> list[network.Message]:
        """Return what arrives of a message.

        :raises oslo_messaging.MessageDeliveryFailure: the broker is down
        """
        if self._is_down(message.broker, 'broker', now):
            raise oslo_messaging.MessageDeliveryFailure('The broker is down')
        if self.happens('lose', 2):
            return []
        copies = [message]
        if self.happens('repeat', 3):
            copies += [copy.copy(message) for _ in range(
                self._random.choice((1, 4)))]
        for each in copies:
            if self.happens('delay', 3) or (
                    each is not message and self._random.random() < 0.5):
                each.not_before = now + self._random.choice((1.0, 40.0, 90.0))
        return copies

    def _is_down(self, name: str, kind: str, now: float) -> bool:
        if self.happens(kind, 0.5):
            self._down[name] = now + self._random.choice((0.05, 1.0, 70.0))
        return self._down.get(name, 0.0) > now


def draw(
    chance: random.Random, more: Collection[str] = ()
) -> list[str]:
    """Return what may go wrong in a run: little, some or a lot of it.

    :param more: kinds beside :data:`KINDS`
    """
    share = chance.choice((0.15, 0.4, 0.7))
    return [kind for kind in (*KINDS, *more) if chance.random() < share]
