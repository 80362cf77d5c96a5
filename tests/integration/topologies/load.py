# SPDX-License-Identifier: Apache-2.0
"""Builds and claims that go on while servers fail, and what they measure."""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from concurrent import futures
import contextlib
import random
import threading
import time
from typing import Any
import uuid

from cellsched.claims import base
from cellsched import context
from cellsched import exception
from cellsched.objects import resources
from cellsched.wiring import api as interface
from tests.integration import processes

USER = context.member('user', 'project')

#: Threads that request servers.
CALLERS = 16

#: Threads that claim, the hosts that they claim, and places of each host.
CLAIMANTS, HOSTS, PLACES = 4, 4, 6

#: Seconds between two requests of a caller that was refused, between two
#: looks at the servers, and between two claims of a claimant.
RETRY_S, LOOK_S, PAUSE_S = 0.1, 0.2, 0.02

#: Seconds after which a node has applied what other nodes have committed.
SETTLE_S = 15.0

#: Seconds until everything that was accepted must have ended.
TIMEOUT_S = 600.0


class Builds:
    """Servers that are requested at a steady rate.

    A caller that gets an error requests its server again.

    :param api: that of a front end
    :param name: begins the names of the servers
    :ivar accepted: the time of acceptance of each server
    :ivar errors: errors that callers got
    """

    def __init__(self, api: interface.API, name: str) -> None:
        self._api = api
        self._name = name
        self.accepted: dict[str, float] = {}
        self.errors: list[Exception] = []
        self._active: dict[str, float] = {}
        self._waited: list[float] = []

    def run(
        self, count: int, seconds: float, fault: Callable[[], object]
    ) -> None:
        """Request servers, cause a fault, and wait until all have ended.

        :param fault: is called when a third of the servers are requested
        """
        ended = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(ended,))
        watcher.start()
        try:
            with futures.ThreadPoolExecutor(CALLERS + 1) as pool:
                calls, begin = [], time.monotonic()
                for number in range(count):
                    wait = begin + seconds * number / count - time.monotonic()
                    time.sleep(max(wait, 0))
                    if number == count // 3:
                        calls.append(pool.submit(fault))
                    calls.append(pool.submit(self._create, number))
                for call in calls:
                    call.result(TIMEOUT_S)
            processes.wait_until(
                lambda: all(each.status != 'BUILD' for each in self.servers())
                and self.accepted.keys() <= {
                    each.uuid for each in self.servers()},
                f'the builds of {self._name} to end', TIMEOUT_S)
        finally:
            ended.set()
            watcher.join()
            self._look()

    def servers(self) -> list[Any]:
        """Return all servers, those of unanswered requests included.

        Servers of a cell that does not answer are left out.
        """
        return [each for each in repeat(lambda: self._api.servers.list(USER)
                                        ).servers
                if each.name and each.name.startswith(self._name)]

    def delete(self) -> None:
        """Delete all servers, and wait until none is there."""
        for each in self.servers():
            with contextlib.suppress(exception.InstanceNotFound):
                repeat(lambda each=each: self._api.servers.delete(
                    USER, each.uuid))
        processes.wait_until(lambda: not self.servers(),
                             f'the servers of {self._name} to be gone')

    def figures(self) -> dict[str, Any]:
        """Return the times, in seconds, and the number of errors."""
        times = sorted(self._active[uuid] - self.accepted[uuid]
                       for uuid in self.accepted if uuid in self._active)
        return {'builds': len(self.accepted),
                'p50 s': round(times[len(times) // 2], 2),
                'p99 s': round(times[-1 - len(times) // 100], 2),
                'call s': round(max(self._waited), 2),
                'errors': names(self.errors)}

    def _create(self, number: int) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            begin = time.monotonic()
            try:
                [uuid] = self._api.servers.create(
                    USER, f'{self._name}{number}', 'small')
                self.accepted[uuid] = time.monotonic()
                return
            except Exception as exc:
                self.errors.append(exc)
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_S)
            finally:
                self._waited.append(time.monotonic() - begin)

    def _watch(self, ended: threading.Event) -> None:
        """Note the time at which each server is first seen as ACTIVE."""
        while not ended.wait(LOOK_S):
            self._look()

    def _look(self) -> None:
        for each in self.servers():
            if each.status == 'ACTIVE':
                self._active.setdefault(each.uuid, time.monotonic())


class Claims:
    """Claimants of the last places of a few hosts of their own.

    :ivar errors: errors that claimants got
    """

    def __init__(self, store: base.ClaimStore) -> None:
        self._store = store
        self._ended = threading.Event()
        self.errors: list[Exception] = []
        #: Consumers whose claim is confirmed, and whose release is confirmed.
        self.held: set[str] = set()
        self.released: set[str] = set()
        #: All others, except those whose claim was refused.
        self._unknown: set[str] = set()
        #: The times of confirmations.
        self._times: list[float] = []

    def __enter__(self) -> 'Claims':
        self._hosts = [str(uuid.uuid4()) for _ in range(HOSTS)]
        for host in self._hosts:
            self._store.set_inventory(host, {'VCPU': resources.Inventory(
                total=PLACES)})
        self._threads = [threading.Thread(target=self._claim_until_ended)
                         for _ in range(CLAIMANTS)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def consumers(self) -> dict[str, set[str]]:
        """Return the consumers of each host, from their claims."""
        found: dict[str, set[str]] = {host: set() for host in self._hosts}
        every = sorted(self.held | self.released | self._unknown)
        for begin in range(0, len(every), 500):
            claims = repeat(lambda: self._store.claims_of(
                every[begin:begin + 500]))
            for consumer, own in claims.items():
                for claim in own:
                    found[claim.provider].add(consumer)
        return found

    def judge(self) -> dict[str, int]:
        """Return the number of wrong claims, by kind, that stay wrong.

        A node that connections have just moved to may have yet to apply the
        last commits. Nothing else corrects these claims.

        ``lost`` are confirmed claims that are not there, ``came back`` are
        claims that are there after a confirmed release, ``over`` are claims
        above the capacity, and ``miscounted`` is the difference between the
        store's totals and the claims.
        """
        found: dict[str, int] = {}
        with contextlib.suppress(TimeoutError):
            processes.wait_until(
                lambda: found.update(self._wrong()) or not any(
                    found.values()), 'all claims to be right', SETTLE_S)
        return found

    def _wrong(self) -> dict[str, int]:
        found = self.consumers()
        usages = {each.provider: each.used.get('VCPU', 0)
                  for each in repeat(lambda: self._store.usages(
                      providers=self._hosts)).usages}
        every = set().union(*found.values())
        return {
            'lost': len(self.held - every),
            'came back': len(self.released & every),
            'over': sum(max(len(each) - PLACES, 0)
                        for each in found.values()),
            'miscounted': sum(abs(usages[host] - len(each))
                              for host, each in found.items())}

    def remove(self) -> None:
        """Release all claims, and remove the capacity."""
        every = set().union(*self.consumers().values())
        repeat(lambda: self._store.release(every))
        for host in self._hosts:
            repeat(lambda host=host: self._store.set_inventory(host, {}))

    def figures(self) -> dict[str, Any]:
        """Return the number of claims, the longest gap, and the errors."""
        times = sorted(self._times)
        return {'claims': len(self.held | self.released),
                'gap s': round(max(map(
                    lambda pair: pair[1] - pair[0],
                    zip(times, times[1:]))), 2),
                'claim errors': names(self.errors)}

    def _claim_until_ended(self) -> None:
        own: list[str] = []
        while not self._ended.wait(PAUSE_S):
            claim = plain(random.choice(self._hosts))
            self._unknown.add(claim.consumer)
            try:
                self._store.claim([claim])
                self.held.add(claim.consumer)
                own.append(claim.consumer)
            except exception.ClaimRefused:
                self._unknown.discard(claim.consumer)
                if own:
                    self._release(own.pop(random.randrange(len(own))))
                continue
            except Exception as exc:
                self.errors.append(exc)
                continue
            self._times.append(time.monotonic())

    def _release(self, consumer: str) -> None:
        self.held.discard(consumer)
        self._unknown.add(consumer)
        try:
            self._store.release([consumer])
        except Exception as exc:
            self.errors.append(exc)
        else:
            self.released.add(consumer)
            self._times.append(time.monotonic())


def names(errors: Iterable[Exception]) -> dict[str, int]:
    """Return the number of errors by class."""
    return dict(collections.Counter(type(each).__name__ for each in errors))


def plain(host: str) -> base.Claim:
    """Return a claim of one place by a new consumer."""
    return base.Claim(str(uuid.uuid4()), host, {'VCPU': 1},
                      project_id='project', user_id='user')


def repeat(function: Callable[[], Any]) -> Any:
    """Return what a function returns once what it uses answers."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return function()
        except exception.CellschedException:
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_S)


def rate(store: base.ClaimStore, seconds: float, clients: int = 8) -> float:
    """Return the claims a second of threads that claim as fast as they can."""
    hosts = [str(uuid.uuid4()) for _ in range(50)]
    for host in hosts:
        store.set_inventory(host, {'VCPU': resources.Inventory(total=10 ** 6)})
    consumers: list[str] = []
    begin = time.monotonic()

    def claim(_: int) -> None:
        while time.monotonic() < begin + seconds:
            each = plain(random.choice(hosts))
            store.claim([each])
            consumers.append(each.consumer)

    with futures.ThreadPoolExecutor(clients) as pool:
        list(pool.map(claim, range(clients)))
    spent = time.monotonic() - begin
    for batch in batches(consumers, 500):
        store.release(batch)
    for host in hosts:
        store.set_inventory(host, {})
    return len(consumers) / spent


def batches(every: list[str], size: int) -> Iterable[list[str]]:
    """Yield parts of a list."""
    for begin in range(0, len(every), size):
        yield every[begin:begin + size]
