# SPDX-License-Identifier: Apache-2.0
"""Faults, drawn from a seed."""

import collections
from collections.abc import Collection
import copy
import random

import oslo_messaging

from cellsched.simulator.promises import network
from cellsched.simulator.promises import stores

#: All kinds of faults. A run has some of them.
KINDS = (
    # Processes: one is killed and restarts; one is suspended for minutes; all
    # are slow.
    'kill', 'freeze', 'stall',
    # Messages: lost, repeated, delayed.
    'lose', 'repeat', 'delay',
    # Brokers are down for a while.
    'broker',
    # Databases are down for a while, fail at a commit, or roll back a
    # transaction for a concurrent one.
    'cell', 'cell0', 'api', 'commit', 'commit_api', 'commit_claims', 'lost',
    # Clocks jump.
    'clock',
    # Builds fail on their hosts; a user deletes a server meanwhile.
    'build', 'delete',
)

#: Kinds of events of the world, in runs whose claim store has no server.
EVENTS = (
    # Hosts get other names, also those of other hosts; cells get an older
    # backup of their database; a node leaves its host, and another one reports
    # it; a cell takes no writes; callers die before they are answered. An
    # operator forces down hosts with suspended agents.
    'rename', 'restore', 'node', 'stuck', 'callers', 'down',
)

#: The most events of a kind in a run. A restored database has had a backup.
_EVENTS_MAX = {'rename': 2, 'restore': 3, 'node': 3, 'stuck': 2, 'callers': 3,
               'down': 3, 'kill': 3, 'delete': 3}

#: Kinds of faults of a claim store with a server: the server is down for a
#: while; a request or its answer is lost; a request is delayed or repeated.
SERVER_KINDS = ('claims', 'request', 'answer', 'late', 'twice')

#: The seconds of a fault, of which one is drawn: of a suspension, of one
#: process or of all; the error of a clock; the time without writes.
_SECONDS = {
    'freeze': (1.0, 100.0, 150.0, 200.0), 'stall': (5.0, 31.0, 61.0, 130.0),
    'clock': (0.0, -600.0, 600.0), 'stuck': (3.0, 40.0, 150.0)}

#: Seconds during which faults happen, while builds are unfinished.
_LENGTHS_S = (0.0, 0.0, 70.0, 200.0)


class Faults:
    """The faults of one run, drawn at random.

    :param kinds: of :data:`KINDS`
    :param rate: probability between 0 and 1; random by default
    """

    def __init__(
        self, chance: random.Random, kinds: Collection[str],
        rate: float | None = None,
    ) -> None:
        self._random = chance
        self.kinds = frozenset(kinds)
        self._rate = (
            chance.choice((0.03, 0.1, 0.25)) if rate is None else rate)
        #: The time after which no fault happens.
        self.until = chance.choice(_LENGTHS_S)
        if 'freeze' in self.kinds:
            # A suspended process must find the changes of other processes.
            self.until = max(_LENGTHS_S)
        #: The ends of outages: of databases and brokers that are down, and by
        #: URL those of databases that take no writes.
        self._down: dict[str, float] = {}
        #: How often a kind of event has happened.
        self._events: collections.Counter[str] = collections.Counter()

    def happens(self, kind: str, factor: float = 1.0) -> bool:
        """Return whether a fault of this kind happens now."""
        return kind in self.kinds and (
            self._random.random() < self._rate * factor)

    def stop(self) -> None:
        """Stop all faults."""
        self.kinds = frozenset()
        self.until = 0.0
        self._down.clear()

    def event(self, kind: str, factor: float = 0.1) -> bool:
        """Return whether an event of a kind happens now."""
        if self._events[kind] >= _EVENTS_MAX[kind] or not self.happens(
                kind, factor):
            return False
        self._events[kind] += 1
        return True

    def stuck_s(self, store: stores.Store, now: float) -> float:
        """Return the seconds for which a database takes no writes."""
        return max(self._down.get(store.url, 0.0) - now, 0.0)

    def stick(self, store: stores.Store, now: float) -> float:
        """Have a database take no writes; return until when."""
        self._down[store.url] = now + self._random.choice(_SECONDS['stuck'])
        return self._down[store.url]

    def seconds(self, kind: str, factor: float) -> float | None:
        """Return the seconds of a fault; None if it does not happen now."""
        return (self._random.choice(_SECONDS[kind])
                if self.happens(kind, factor) else None)

    def strike(
        self, store: stores.Store, writes: bool, now: float
    ) -> str | None:
        """Return the failure of a transaction; see ``processes.World.ask``."""
        name = store.url.rpartition('/')[2]
        kind = 'cell' if name.startswith('cell') and name != 'cell0' else name
        if self._is_down(name, kind, now):
            raise stores.unreachable(store, 'down')
        if not writes:
            return None
        commit = 'commit' if kind in ('cell', 'cell0') else f'commit_{kind}'
        if self.happens(commit):
            # A database that fails before the commit writes nothing.
            if self._random.random() < 0.5:
                return 'unknown'
            raise stores.unreachable(store, 'gone')
        return 'lost' if self.happens('lost') else None

    def send(self, now: float) -> stores.Fate:
        """Return the fate of a request to the server of a claim store."""
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
        """Return the copies of a message that arrive.

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


def draw(chance: random.Random, more: Collection[str]) -> list[str]:
    """Return the kinds of faults of a run: few, some or many.

    :param more: kinds beside :data:`KINDS`
    """
    share = chance.choice((0.15, 0.4, 0.7))
    return [kind for kind in (*KINDS, *more) if chance.random() < share]
