# SPDX-License-Identifier: Apache-2.0
"""One run of a seed: a deployment, its workload and its faults."""

from __future__ import annotations
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
import dataclasses
import functools
import math
import random
from typing import Any

from oslo_log import log

from cellsched.conf import loader
from cellsched import exception
from cellsched.simulator import engine
from cellsched.simulator.promises import faults
from cellsched.simulator.promises.harness import CELLS
from cellsched.simulator.promises.harness import database
from cellsched.simulator.promises.harness import Harness
from cellsched.simulator.promises.harness import NEVER_S
from cellsched.simulator.promises import invariants
from cellsched.simulator.promises import machines
from cellsched.simulator.promises import network
from cellsched.simulator.promises import operator
from cellsched.simulator.promises import processes
from cellsched.simulator.promises import stores
from cellsched.simulator.promises import workload
from cellsched.simulator import servers
from cellsched.wiring import services

LOG = log.getLogger(__name__)


@dataclasses.dataclass
class Outcome:
    """The outcome of a run.

    :param failure: the violated invariant, or None
    :param trace: time, activity and text of each step, in order
    """

    seed: int
    kinds: tuple[str, ...]
    steps: int
    failure: str | None
    trace: list[tuple[float, str, str]]

    def text(self, last: int | None = None) -> str:
        """Return the outcome as text, with the last steps of the trace."""
        first = max(len(self.trace) - last, 0) if last else 0
        lines = [f'{number + 1:5} {now:9.3f} {who}: {what}'
                 for number, (now, who, what) in enumerate(self.trace)][first:]
        return '\n'.join([
            *lines, f'seed {self.seed}, faults {", ".join(self.kinds)}, step '
            f'{self.steps}: {self.failure or "all promises were kept"}'])


#: A run with more steps counts as endless.
STEPS_MAX = 20_000

#: Steps after which the faults of a run end: with many outages, an agent could
#: otherwise try to start for ever.
FAULTY_STEPS_MAX = STEPS_MAX // 2

#: Seconds between the last runs of the recoverers. They are enough for all
#: leases to expire, including those of a clock that was far ahead.
ROUNDS = (61.0, 61.0, 61.0, 700.0, 61.0, 61.0, 3600.0, 61.0, 61.0, 61.0)


class Simulation(processes.World):
    """A run of one seed.

    :param kinds: kinds of faults; by default drawn from the seed
    :param rate: the rate of faults; by default drawn from the seed
    :param claims: the kind of claim store, if it is one with a server; else
        claims are in a database
    """

    def __init__(
        self, harness: Harness, seed: int,
        kinds: Collection[str] | None = None, rate: float | None = None,
        claims: servers.ClaimServerKind | None = None,
    ) -> None:
        super().__init__(harness.stores, seed)
        self.harness = harness
        self._random = random.Random(seed)
        if kinds is None:
            kinds = faults.draw(
                self._random,
                faults.EVENTS if claims is None else faults.SERVER_KINDS)
        self.faults = faults.Faults(self._random, kinds, rate)
        self._kinds = tuple(sorted(self.faults.kinds))
        self._switch = self._random.choice((0.1, 0.4, 0.8))
        self.workload = workload.Workload(self._random)
        self.server: stores.ClaimServer | None = None
        if claims is not None:
            self.server = stores.ClaimServer(
                claims, random.Random(f'{seed} claims'), self)
            self.claims = self.server.direct()
        self.machines: dict[str, machines.Machine] = {}
        self.operator = operator.Operator(
            self, random.Random(f'{seed} operator'))
        self.trace: list[tuple[float, str, str]] = []
        self.invariants = invariants.Invariants(self)
        self._ready: list[engine.Process] = []
        self._dead: dict[str, float] = {}
        self._frozen: dict[str, float] = {}
        self._requests = list(self.workload.requests)
        self._failure: str | None = None

    def run(self) -> Outcome:
        """Run the simulation, and return the outcome."""
        self.harness.reset()
        try:
            self._begin()
            self._go_on()
            # Events happen when servers are built, too.
            for kind, happens in self._events():
                if kind in self.faults.kinds and self._random.random() < 0.7:
                    happens()
                    self._go_on()
            self._come_to_rest()
        except invariants.Violation as exc:
            self._failure = self._failure or str(exc)
        return Outcome(
            self.seed, self._kinds, len(self.trace), self._failure,
            self.trace)

    def _begin(self) -> None:
        confs = self.harness.confs
        for cell, hosts in CELLS.items():
            for host in hosts:
                made = self.add(host, services.compute, confs[host])
                self.machines[host] = made.driver = machines.Machine(
                    made.conf, made.clock, functools.partial(
                        self._check, self.invariants.look_at_destroyed),
                    functools.partial(
                        self._check, self.invariants.look_at_parts))
                if 'build' in self.faults.kinds:
                    made.driver.fail_builds(self._random.choice((0, 1, 3)))
        if 'node' in self.faults.kinds:
            self.operator.give_node()
        for cell, hosts in CELLS.items():
            for host in hosts:
                self.processes[host].start()
            name = f'conductor-{cell}'
            self.add(name, services.conductor, confs[name]).start()
        for name in ('conductor1', 'conductor2'):
            self.add(name, services.conductor, confs[name]).start()
        # Each scheduler has its configuration call it at changes, and would
        # live as long as that.
        files = confs['scheduler'].default_config_files
        self.add('scheduler', services.scheduler,
                 loader.load(files=files, dirs=[])).start()
        self.add('api', services.api, confs['api']).start()
        for store in self.stores.values():
            store.is_changed()

    def _events(self) -> list[tuple[str, Callable[[], None]]]:
        """Return the kinds of events, with what makes them happen."""
        return [('rename', self.operator.rename),
                ('restore', self.operator.restore),
                ('node', self.operator.move_node), ('stuck', self._stick)]

    def _come_to_rest(self) -> None:
        """Stop all faults, and let all activities end."""
        self.faults.stop()
        if self.server is not None:
            self.server.settle()
        self._frozen.clear()
        for process in self.processes.values():
            process.clock.ahead_s = 0.0
        self.operator.settle()
        for passing_s in ROUNDS:
            self._requests = self.workload.again()
            self._go_on()
            self.now += passing_s
            for process in self.processes.values():
                for each in process.periodic:
                    if each.spacing_s < NEVER_S:
                        each.due = min(each.due, self.now)
            self._go_on()
            try:
                if not self.workload.again():
                    return self.invariants.check_end()
            except invariants.Violation as exc:
                LOG.info('After %d seconds: %s', self.now, exc)
        self.invariants.check_end()

    def _go_on(self) -> None:
        """Run until nothing can happen."""
        self.interleave()
        if self._failure is None and self._ready:
            self._fail('L1: these wait for each other: ' + ', '.join(
                activity.name for activity in self._ready))
            self.interleave()
        if self._failure is not None:
            raise invariants.Violation('', self._failure)

    # Calls of processes.

    def claims_of(self, process: processes.Process) -> Any:
        if self.server is not None:
            return self.server.store_of(
                process.clock, f'{self.seed} {process.name} {process.lives}')
        return None

    def enter(self, what: str) -> None:
        activity = self.calling()
        if activity is None:
            return
        if activity.doomed:
            raise engine.Killed
        self.trace.append((self.now, activity.name, what))
        if self.depth:
            return
        self._happen(activity, what)
        self.pause()

    def park(self, timeout: float | None = None) -> bool:
        if self.depth and timeout is not None:
            # No other activity runs while a transaction is open.
            self.now += timeout
            return False
        return super().park(timeout)

    def post(self, message: network.Message) -> None:
        caller = self.calling()
        if (message.call is not None and caller is not None
                and self.faults.event('callers', 1.0)):
            self.kill(caller.owner)
        arriving = self.faults.deliver(message, self.now)
        if len(arriving) != 1:
            self.note(f'{message} arrives {len(arriving)} times')
        self.messages += arriving

    def ask(self, store: stores.Store, writes: bool) -> str | None:
        verb = 'write' if writes else 'read'
        self.enter(f'{verb} {store.url.rpartition("/")[2]}')
        activity = self.calling()
        if activity is None:
            return None
        stuck_s = self.faults.stuck_s(store, self.now) if writes else 0.0
        if stuck_s:
            limit_s = activity.owner.conf.database.lock_timeout
            self.sleep(min(stuck_s, limit_s))
            if stuck_s > limit_s:
                self.note('goes wrong: the database takes no writes')
                raise exception.DatabaseBusy(
                    schema=store.database.schema, reason='it takes no writes')
        try:
            how = self.faults.strike(store, writes, self.now)
        except exception.DatabaseUnreachable as exc:
            self.note(f'fails: {exc}')
            raise
        if how:
            self.note(f'goes wrong: {how}')
        return how

    def ask_server(self, what: str) -> stores.Fate:
        self.enter(what)
        if self.calling() is None:
            return stores.Fate.ANSWERED
        fate = self.faults.send(self.now)
        if fate is not stores.Fate.ANSWERED:
            self.note(f'goes wrong: {fate.value}')
        return fate

    def finished(self, store: stores.Store | None) -> None:
        self._check(self.invariants.look_at, store)

    def _check(self, check: Callable[[Any], None], of: Any) -> None:
        try:
            check(of)
        except invariants.Violation as exc:
            self._fail(str(exc))
            if self.calling() is None:
                raise
            raise engine.Killed from None

    # Faults and their traces.

    def note(self, what: str) -> None:
        activity = self.calling()
        # The directory has a random name.
        self.trace.append((self.now, activity.name if activity else '-',
                           what.replace(self.harness.state_path, '')))

    def _fail(self, why: str) -> None:
        self._failure = self._failure or why
        for activity in self._ready:
            activity.doomed = True

    def _happen(self, activity: engine.Process, what: str) -> None:
        """Draw a fault, in place of the next operation."""
        self.now += self._random.random() * 0.01
        if len(self.trace) > STEPS_MAX:
            self._fail(f'L1: not at an end after {STEPS_MAX} steps')
        if len(self.trace) > FAULTY_STEPS_MAX:
            self.faults.stop()
        if not self.faults.kinds:
            return
        if self.faults.event('kill', 0.3):
            self.kill(activity.owner)
        for kind, happens in self._events():
            if self.faults.event(kind):
                happens()
        retried = self.invariants.retried()
        if retried and self.faults.event('delete', 1.0):
            self._requests.append(
                self.workload.deletion(self._random.choice(retried)))
        # An agent that withdraws claims is suspended more often.
        withdraws = (what == 'write claims'
                     and activity.owner.name in self.machines)
        freeze_s = self.faults.seconds('freeze', 5.0 if withdraws else 0.2)
        if freeze_s:
            self.note(f'{activity.owner.name} stands still for {freeze_s} s')
            self._frozen[activity.owner.name] = self.now + freeze_s
            if activity.owner.name in self.machines and (
                    self.faults.event('down', 20.0)):
                self.operator.force_down(activity.owner)
        stall_s = self.faults.seconds('stall', 0.15)
        if stall_s:
            self.note(f'{stall_s} seconds pass')
            self.now += stall_s
        jump_s = self.faults.seconds('clock', 0.1)
        if jump_s is not None:
            name = self._random.choice(list(self.processes))
            self.note(f'the clock of {name} is {jump_s} ahead')
            self.processes[name].clock.ahead_s = jump_s

    def _stick(self) -> None:
        """Have a cell take no writes for some time."""
        store = self.stores[database(self._random.choice(list(CELLS)))]
        until = self.faults.stick(store, self.now)
        self.note(f'{store.url} takes no writes until {until:.3f}')

    def kill(self, process: processes.Process) -> None:
        """Kill a process, which restarts."""
        self.note(f'{process.name} is killed')
        process.die()
        self._dead[process.name] = self.now + self._random.choice(
            (0.0, 1.0, 40.0))

    def _activity(
        self, process: processes.Process, name: str,
        function: Callable[[], None],
    ) -> engine.Process:
        def guarded() -> None:
            try:
                function()
            except (exception.CellschedException, AssertionError) as exc:
                if isinstance(exc, AssertionError):
                    self._fail(f'crash: {exc!r}')
                self.note(f'ends: {type(exc).__name__}: {exc}')
            except Exception as exc:
                self._fail(f'crash: {name}: {exc!r}')
            else:
                self.note('ends')

        made = engine.Process(guarded, name, process)
        process.activities.append(made)
        self._ready.append(made)
        return made

    # The choice of the next activity.

    def _decide(
        self, current: engine.Process | None
    ) -> engine.Process | None:
        if current is None or current.doomed:
            # Remove activities that ended, or never started.
            for activity in self._ready:
                if activity.is_over:
                    activity.owner.activities.remove(activity)
            self._ready = [each for each in self._ready if not each.is_over]
        for activity in self._ready:
            if activity.doomed:
                return activity
        if self._failure is not None:
            return None
        if (current is not None and self._ready_at(current) <= self.now
                and self._random.random() >= self._switch):
            return current
        while True:
            pending = [*self._pending()]
            choices = [start for at, start in pending if at <= self.now]
            if choices:
                return self._random.choice(choices)()
            following = min((at for at, _ in pending), default=math.inf)
            if following == math.inf:
                return None
            self.now = following

    def _ready_at(self, activity: engine.Process) -> float:
        return max(activity.ready_at,
                   self._frozen.get(activity.owner.name, 0.0))

    def _pending(self) -> Iterator[tuple[float, Callable[[], engine.Process]]]:
        """Yield what can happen, each with its earliest time.

        It is a function that starts or continues an activity.
        """
        for activity in self._ready:
            yield self._ready_at(activity), functools.partial(
                lambda same: same, activity)
        for message in self.messages:
            for listener in self.listeners:
                if listener.hears(message):
                    yield message.not_before, functools.partial(
                        self._receive, message, listener)
        # A suspended process finds the changes of periodic tasks.
        passes = self.now < max(
            self.faults.until, *self._frozen.values(), 0.0) and (
                self.invariants.unsettled())
        for process in self.processes.values():
            for each in process.periodic:
                if not each.running and (each.due <= self.now or passes):
                    yield each.due, functools.partial(
                        self._periodic, process, each)
        if self.processes['api'].service is not None:
            for request in self._requests:
                if request.is_possible():
                    yield request.not_before, functools.partial(
                        self._request, request)
        for name, when in self._dead.items():
            yield when, functools.partial(self._restart, name)

    def _receive(
        self, message: network.Message, listener: network.Listener
    ) -> engine.Process:
        self.messages.remove(message)
        process = listener.process
        return self._activity(
            process, f'{process.name} {message.method}',
            lambda: listener.receive(message))

    def _periodic(
        self, process: processes.Process, each: processes.Periodic
    ) -> engine.Process:
        def run() -> None:
            try:
                each.function()
            except exception.HostNameTaken:
                self.kill(process)
                raise
            finally:
                each.running = False
                each.due = self.now + each.spacing_s

        each.running = True
        return self._activity(process, each.name, run)

    def _request(self, request: workload.Action) -> engine.Process:
        self._requests.remove(request)
        api = self.processes['api']
        servers = api.service.servers
        return self._activity(
            api, request.name, lambda: request.execute(servers))

    def _restart(self, name: str) -> engine.Process:
        del self._dead[name]
        process = self.processes[name]

        def start() -> None:
            try:
                process.start()
            except exception.CellschedException as exc:
                # A supervisor restarts it.
                self._dead[name] = self.now + 1.0
                self.operator.refused(process, exc)
                raise
            self.operator.started(process)

        return self._activity(process, f'{name} starts', start)
