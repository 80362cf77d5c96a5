# SPDX-License-Identifier: Apache-2.0
"""One run: a deployment, its users and its faults, by a seed."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
import functools
import random
from typing import Any

from oslo_log import log

from cellsched.claims import base as claims_base
from cellsched.claims import memory
from cellsched import exception
from cellsched.simulator.arena import Arena
from cellsched.simulator.arena import CELLS
from cellsched.simulator.arena import NEVER_S
from cellsched.simulator import baton
from cellsched.simulator import claim_servers
from cellsched.simulator import faults
from cellsched.simulator import network
from cellsched.simulator import outcome
from cellsched.simulator import processes
from cellsched.simulator import promises
from cellsched.simulator import stores
from cellsched.simulator import users
from cellsched.simulator import worlds
from cellsched.wiring import services

LOG = log.getLogger(__name__)

#: Steps after which a run is one that does not end.
STEPS_MAX = 20_000

#: Times to let the recoverers run before everything has to be settled, and
#: the seconds between them: leases have run out then, and in the end even
#: those of a clock that was far ahead.
ROUNDS = (61.0, 61.0, 61.0, 700.0, 61.0, 61.0, 3600.0, 61.0, 61.0, 61.0)


class Simulation(worlds.World):
    """A run of one seed.

    :param kinds: what may go wrong; drawn from the seed by default
    :param rate: how often something does, likewise
    :param claims: the kind of claim store, if it is one with a server; else
        claims are in memory or in a database, likewise
    """

    def __init__(
        self, arena: Arena, seed: int,
        kinds: Collection[str] | None = None, rate: float | None = None,
        claims: claim_servers.ClaimServerKind | None = None,
    ) -> None:
        super().__init__(arena.stores, seed)
        self._arena = arena
        self._random = random.Random(seed)
        drawn = faults.draw(
            self._random, () if claims is None else faults.SERVER_KINDS)
        self.faults = faults.Faults(
            self._random, drawn if kinds is None else kinds, rate)
        self._kinds = tuple(sorted(self.faults.kinds))
        self._switch = self._random.choice((0.1, 0.4, 0.8))
        self.users = users.Users(self._random)
        in_memory = self._random.random() < 0.5
        self._claims: claims_base.ClaimStore | None = None
        self._server: claim_servers.ClaimServer | None = None
        if claims is not None:
            self._server = claim_servers.ClaimServer(
                claims, random.Random(f'{seed} claims'))
            self._claims = self._server.direct()
        elif in_memory:
            self._claims = memory.MemoryClaims()
        self._drivers: dict[str, Any] = {}
        self.baton = baton.Baton(arena.crew, self._decide)
        self.trace: list[tuple[float, str, str]] = []
        self.promises = promises.Promises(
            arena.stores, self._claims, self._drivers, arena.hosts,
            self.users, self._note, claims is None or claims.is_exact)
        self._ready: list[baton.Activity] = []
        self._dead: dict[str, float] = {}
        self._frozen: dict[str, float] = {}
        self._wishes = list(self.users.wishes)
        self._failure: str | None = None

    def run(self) -> outcome.SimulationOutcome:
        """Run it to its end."""
        self._arena.reset()
        try:
            self._begin()
            self._go_on()
            self._come_to_rest()
        except promises.Broken as exc:
            self._failure = self._failure or str(exc)
        return outcome.SimulationOutcome(
            self.seed, self._kinds, len(self.trace), self._failure,
            self.trace)

    def _begin(self) -> None:
        confs = self._arena.confs
        for cell, hosts in CELLS.items():
            for host in hosts:
                made = self.add(host, services.compute, confs[host])
                made.start()
                self._drivers[host] = made.driver
                if 'build' in self.faults.kinds:
                    made.driver.fail_builds(self._random.choice((0, 1, 3)))
            name = f'conductor-{cell}'
            self.add(name, services.conductor, confs[name]).start()
        for name in ('conductor1', 'conductor2'):
            self.add(name, services.conductor, confs[name]).start()
        self.add('scheduler', services.scheduler, confs['scheduler']).start()
        self.add('api', services.api, confs['api']).start()
        for store in self.stores.values():
            store.is_changed()

    def _come_to_rest(self) -> None:
        """Let nothing go wrong any more, and everything come to its end."""
        self.faults.stop()
        if self._server is not None:
            self._server.settle()
        self._frozen.clear()
        for process in self.processes.values():
            process.clock.ahead_s = 0.0
        for passing_s in ROUNDS:
            self._wishes = self.users.again()
            self._go_on()
            self.now += passing_s
            for process in self.processes.values():
                for each in process.periodic:
                    if each.spacing_s < NEVER_S:
                        each.due = min(each.due, self.now)
            self._go_on()
            try:
                if not self.users.again():
                    return self.promises.check_end()
            except promises.Broken as exc:
                LOG.info('After %d seconds: %s', self.now, exc)
        self.promises.check_end()

    def _go_on(self) -> None:
        """Go on until nothing is left to do."""
        self.baton.run()
        if self._failure is None and self._ready:
            self._fail('L1: these wait for each other: ' + ', '.join(
                activity.name for activity in self._ready))
            self.baton.run()
        if self._failure is not None:
            raise promises.Broken('', self._failure)

    # What processes ask of their world.

    def claims_of(self, process: processes.Process) -> Any:
        if self._server is not None:
            return self._server.store_of(process, self.seed)
        return self._claims and stores.Claims(self._claims, process)

    def pause(self, what: str) -> None:
        mine = self.baton.mine()
        if mine is None:
            return
        if mine.doomed:
            raise baton.Killed
        self.trace.append((self.now, mine.name, what))
        if mine.owner.depth:
            return
        self._happen(mine)
        self.baton.pause()

    def wait(
        self, awaited: Callable[[], bool], patience_s: float | None
    ) -> bool:
        mine = self.baton.mine()
        if mine is not None and mine.owner.depth and patience_s is not None:
            # With a transaction open nobody else goes on.
            self.now += patience_s
            return awaited()
        return self.baton.wait(
            awaited, None if patience_s is None else self.now + patience_s)

    def post(self, letter: network.Letter) -> None:
        arriving = self.faults.deliver(letter, self.now)
        if len(arriving) != 1:
            self._note(f'{letter} arrives {len(arriving)} times')
        self.network.letters += arriving

    def strike(
        self, process: processes.Process, store: stores.Store, writes: bool
    ) -> str | None:
        if self.baton.mine() is None:
            return None
        try:
            how = self.faults.strike(store, writes, self.now)
        except exception.DatabaseUnreachable as exc:
            self._note(f'fails: {exc}')
            raise
        if how:
            self._note(f'goes wrong: {how}')
        return how

    def strike_server(self) -> stores.Fate:
        if self.baton.mine() is None:
            return stores.Fate.ANSWERED
        fate = self.faults.send(self.now)
        if fate is not stores.Fate.ANSWERED:
            self._note(f'goes wrong: {fate.value}')
        return fate

    def look_at(self, store: stores.Store | None) -> None:
        try:
            self.promises.look_at(store)
        except promises.Broken as exc:
            self._fail(str(exc))
            if self.baton.mine() is None:
                raise
            raise baton.Killed from None

    # What happens.

    def _note(self, what: str) -> None:
        mine = self.baton.mine()
        self.trace.append((self.now, mine.name if mine else '-', what))

    def _fail(self, why: str) -> None:
        self._failure = self._failure or why
        for activity in self._ready:
            activity.doomed = True

    def _happen(self, mine: baton.Activity) -> None:
        """Let something go wrong, perhaps, in place of what was to be done."""
        self.now += self._random.random() * 0.01
        if len(self.trace) > STEPS_MAX:
            self._fail(f'L1: not at an end after {STEPS_MAX} steps')
        if not self.faults.kinds:
            return
        if self.faults.death():
            self._kill(mine.owner)
        freeze_s = self.faults.freeze_s()
        if freeze_s:
            self._note(f'{mine.owner.name} stands still for {freeze_s} s')
            self._frozen[mine.owner.name] = self.now + freeze_s
        stall_s = self.faults.stall_s()
        if stall_s:
            self._note(f'{stall_s} seconds pass')
            self.now += stall_s
        jump_s = self.faults.jump_s()
        if jump_s is not None:
            name = self._random.choice(list(self.processes))
            self._note(f'the clock of {name} is {jump_s} ahead')
            self.processes[name].clock.ahead_s = jump_s

    def _kill(self, process: processes.Process) -> None:
        self._note(f'{process.name} is killed')
        process.die()
        self._dead[process.name] = self.now + self._random.choice(
            (0.0, 1.0, 40.0))

    def _activity(
        self, process: processes.Process, name: str,
        function: Callable[[], None],
    ) -> baton.Activity:
        def guarded() -> None:
            try:
                function()
            except (exception.CellschedException, AssertionError) as exc:
                if isinstance(exc, AssertionError):
                    self._fail(f'crash: {exc!r}')
                self._note(f'ends: {type(exc).__name__}: {exc}')
            except Exception as exc:
                self._fail(f'crash: {name}: {exc!r}')
            else:
                self._note('ends')

        made = baton.Activity(process, name, guarded)
        process.activities.append(made)
        self._ready.append(made)
        return made

    # Who is next.

    def _decide(
        self, current: baton.Activity | None
    ) -> baton.Activity | None:
        if current is None or current.doomed:
            self._bury()
        for activity in self._ready:
            if activity.doomed:
                return activity
        if self._failure is not None:
            return None
        if (current is not None and self._is_ready(current)
                and self._random.random() >= self._switch):
            return current
        while True:
            choices = self._choices()
            if choices:
                return self._random.choice(choices)()
            if not self._advance():
                return None

    def _bury(self) -> None:
        """Forget activities that are at their end, or never began."""
        for activity in self._ready:
            if activity.doomed and activity.worker is None:
                activity.done = True
            if activity.done:
                activity.owner.activities.remove(activity)
        self._ready = [each for each in self._ready if not each.done]

    def _is_ready(self, activity: baton.Activity) -> bool:
        return (self._frozen.get(activity.owner.name, 0.0) <= self.now
                and activity.is_ready(self.now))

    def _choices(self) -> list[Callable[[], baton.Activity]]:
        """Return what may happen next."""
        choices: list[Callable[[], baton.Activity]] = [
            functools.partial(_same, activity) for activity in self._ready
            if self._is_ready(activity)]
        choices += [
            functools.partial(self._receive, letter, listener)
            for letter, listener in self.network.deliverable(self.now)]
        choices += [
            functools.partial(self._periodic, process, each)
            for process in self.processes.values()
            for each in process.periodic
            if each.due <= self.now and not each.running]
        if self.processes['api'].service is not None:
            choices += [
                functools.partial(self._wish, wish) for wish in self._wishes
                if wish.not_before <= self.now and wish.possible()]
        choices += [
            functools.partial(self._restart, name)
            for name, when in self._dead.items() if when <= self.now]
        return choices

    def _advance(self) -> bool:
        """Let time pass until something can happen; return whether it can."""
        times = [activity.until for activity in self._ready
                 if activity.until is not None]
        times += [letter.not_before for letter in self.network.letters
                  if letter.not_before > self.now]
        times += self._dead.values()
        times += [wish.not_before for wish in self._wishes
                  if wish.not_before > self.now and wish.possible()]
        times += self._frozen.values()
        if self.now < self.faults.until and self.promises.unsettled():
            times += [each.due for process in self.processes.values()
                      for each in process.periodic if not each.running]
        later = [time for time in times if time > self.now]
        if later:
            self.now = min(later)
        return bool(later)

    def _receive(
        self, letter: network.Letter, listener: network.Listener
    ) -> baton.Activity:
        self.network.letters.remove(letter)
        process = listener.process
        return self._activity(
            process, f'{process.name} {letter.method}',
            lambda: listener.receive(letter, process))

    def _periodic(
        self, process: processes.Process, each: processes.Periodic
    ) -> baton.Activity:
        def run() -> None:
            try:
                each.function()
            finally:
                each.running = False
                each.due = self.now + each.spacing_s

        each.running = True
        return self._activity(process, each.name, run)

    def _wish(self, wish: users.Wish) -> baton.Activity:
        self._wishes.remove(wish)
        api = self.processes['api']
        servers = api.service.servers
        return self._activity(
            api, wish.name, lambda: wish.function(servers))

    def _restart(self, name: str) -> baton.Activity:
        del self._dead[name]
        process = self.processes[name]

        def start() -> None:
            try:
                process.start()
            except exception.CellschedException:
                # A supervisor starts it once more.
                self._dead[name] = self.now + 1.0
                raise

        return self._activity(process, f'{name} starts', start)


def _same(activity: baton.Activity) -> baton.Activity:
    """Return an activity that goes on."""
    return activity
