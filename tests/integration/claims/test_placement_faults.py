# SPDX-License-Identifier: Apache-2.0
"""Claims in a Placement that dies, stops, or answers nonsense."""

from concurrent import futures
import contextlib
from http import server as http_server
import itertools
import random
import threading
import urllib.error
import urllib.request
import uuid

from cellsched.audit import checks
from cellsched.claims import base as claims
from cellsched.claims import placement
from cellsched import clock
from cellsched import exception
from tests.integration import base
from tests.integration.claims import test_placement
from tests.integration import placement as placement_server
from tests.integration import servers
from tests import profile

#: Processes' worth of stores that claim at a time, and calls of each.
CLIENTS, CALLS = 3, 5

#: Of each provider so much can be taken.
ROOM = 6

TIMEOUT_S = 5


class Proxy(http_server.ThreadingHTTPServer):
    """A proxy of a server with faults.

    An attempt to claim on several providers takes more than seven requests.
    So chance decides which request has a fault: if each seventh had one, no
    attempt would succeed.

    :param faults: names of faults; one in seven requests has the next one
    """

    daemon_threads = True

    def __init__(self, url, faults):
        super().__init__(('127.0.0.1', 0), _Handler)
        self.target = url
        self.random = random.Random(3)
        self.following = itertools.cycle(faults)
        self.counts = dict.fromkeys(faults, 0)

    def fault(self):
        if self.random.random() > 1 / 7:
            return ''
        fault = next(self.following)
        self.counts[fault] += 1
        return fault


class _Handler(http_server.BaseHTTPRequestHandler):

    protocol_version = 'HTTP/1.1'

    def do_GET(self):
        length = int(self.headers.get('content-length', 0))
        body = self.rfile.read(length)
        fault = self.server.fault()
        if fault.endswith(' before'):
            self.fail(fault)
            return
        request = urllib.request.Request(
            self.server.target + self.path, body or None,
            {name: value for name, value in self.headers.items()
             if name.lower() not in ('host', 'connection')},
            method=self.command)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                status, text = answer.status, answer.read()
        except urllib.error.HTTPError as exc:
            status, text = exc.code, exc.read()
        if fault:
            self.fail(fault, text)
            return
        self.answer(status, text)

    do_POST = do_PUT = do_DELETE = do_GET

    def fail(self, fault, text=b''):
        what = fault.split()[0]
        if what.isdigit():
            self.answer(int(what), b'<html>Sorry</html>')
            return
        if what == 'half':
            self.answer(200, text or b'{"errors": []}', half=True)
        self.close_connection = True

    def answer(self, status, text, half=False):
        self.send_response(status)
        self.send_header('content-type', 'application/json')
        if status != 204:
            self.send_header('content-length', str(len(text)))
        self.end_headers()
        self.wfile.write(text[:len(text) // 2] if half else text)

    def log_message(self, *args):
        pass


class Worker:
    """Claims, releases and transfers, and records the expected claims."""

    def __init__(self, store, providers, seed):
        self.store = store
        self.providers = providers
        self.random = random.Random(seed)
        self.expected = {}
        self.unreachable = 0

    def run(self, calls=CALLS):
        for _ in range(calls):
            self.call()

    def call(self):
        held = [each for each, holds in self.expected.items() if holds]
        if held and self.random.random() < 0.3:
            self.release(held[:2])
        elif held and self.random.random() < 0.3:
            self.transfer(held[0])
        else:
            self.claim()

    def claim(self):
        batch = {str(uuid.uuid4()): {
            provider: {'VCPU': self.random.randint(1, 2)} for provider
            in self.random.sample(self.providers, self.random.randint(1, 2))}
            for _ in range(self.random.randint(1, 2))}
        try:
            self.store.claim([
                claims.Claim(consumer, provider, resources)
                for consumer, wants in batch.items()
                for provider, resources in wants.items()])
        except exception.ClaimRefused:
            self.expected |= dict.fromkeys(batch, {})
        except exception.DatabaseUnreachable:
            self.unreachable += 1
            self.release(list(batch))
        else:
            self.expected |= batch

    def release(self, consumers):
        self.until_reachable(lambda: self.store.release(consumers))
        self.expected |= dict.fromkeys(consumers, {})

    def transfer(self, source):
        target = str(uuid.uuid4())
        self.until_reachable(lambda: self.store.transfer(source, target))
        self.expected[target] = self.expected[source]
        self.expected[source] = {}

    def until_reachable(self, call):
        while True:
            with contextlib.suppress(exception.DatabaseUnreachable):
                return call()
            self.unreachable += 1


class FaultCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.server = self.make_server()
        self.store = self.make_store(base.PATIENCE_S)
        self.providers = [str(uuid.uuid4()) for _ in range(3)]
        for provider in self.providers:
            self.store.set_inventory(
                provider, {'VCPU': claims.Inventory(ROOM)})

    def make_server(self):
        server = self.useFixture(base.installed(
            placement_server.Placement, None, self.database()))
        for process in server.processes:
            self.show_output_of(process)
        return server

    def database(self):
        return None

    def make_store(self, retry_timeout_s, url=None):
        return placement.PlacementClaims(
            test_placement.make_client(
                url or self.server.url(), timeout=TIMEOUT_S),
            clock.Clock(), random.Random(), guards=8,
            retry_timeout_s=retry_timeout_s)

    def workers(self, retry_timeout_s, url=None):
        return [Worker(self.make_store(retry_timeout_s, url), self.providers,
                       number) for number in range(CLIENTS)]

    def run_all(self, workers, meanwhile=lambda: None):
        """Run workers, and read usages all the time."""
        ended = threading.Event()
        most = []

        def watch():
            store = self.make_store(base.PATIENCE_S)
            while not ended.is_set():
                with contextlib.suppress(exception.DatabaseUnreachable):
                    most.extend(usage.used.get('VCPU', 0) for usage in
                                store.usages(providers=self.providers).usages)

        with futures.ThreadPoolExecutor(len(workers) + 1) as pool:
            watching = pool.submit(watch)
            working = [pool.submit(worker.run) for worker in workers]
            try:
                meanwhile()
                for each in working:
                    each.result()
            finally:
                ended.set()
            watching.result()
        self.assertLessEqual(max(most), ROOM)

    def check(self, workers):
        """Check that the claims are those of the outcomes."""
        expected = {consumer: holds for worker in workers
                    for consumer, holds in worker.expected.items()}
        held = {consumer: {claim.provider: claim.resources
                           for claim in holds}
                for consumer, holds in self.store.claims_of(expected).items()}
        self.assertEqual(
            {consumer: holds for consumer, holds in expected.items() if holds},
            held)
        for usage in self.store.usages(providers=self.providers).usages:
            self.assertEqual(
                sum(holds.get(usage.provider, {}).get('VCPU', 0)
                    for holds in held.values()), usage.used['VCPU'])
        self.assertEqual([], checks.check_capacity(self.store, 1000))


@profile.full_only('a real server that dies; by default a model does')
class TestFaults(FaultCase):

    def test_killed_placement_loses_and_leaks_no_claims(self):
        workers = self.workers(base.PATIENCE_S)
        first = workers[0]
        self.run_all(workers[1:], lambda: (
            first.run(3), self.server.kill(), self.server.start(),
            first.run(3)))
        self.check(workers)

    def test_stopped_placement_applies_no_late_claims(self):
        worker, other = self.workers(2)[:2]
        worker.run(2)
        self.server.set_running(False)
        with futures.ThreadPoolExecutor(2) as pool:
            working = [pool.submit(each.claim) for each in (worker, other)]
            # Both calls fail, and the workers repeat the release.
            while not (worker.unreachable and other.unreachable):
                threading.Event().wait(0.05)
            self.server.set_running(True)
            for each in working:
                each.result()
        self.check([worker, other])

    def test_broken_answers_of_placement_leak_no_claims(self):
        proxy = Proxy(self.server.url(), (
            '409 before', '500 before', '502 before', '502 after',
            '500 after', 'closed before', 'closed after', 'half after'))
        serving = threading.Thread(target=proxy.serve_forever, daemon=True)
        serving.start()
        self.addCleanup(serving.join)
        self.addCleanup(proxy.server_close)
        self.addCleanup(proxy.shutdown)
        workers = self.workers(
            base.PATIENCE_S, f'http://127.0.0.1:{proxy.server_address[1]}')

        self.run_all(workers)

        self.assertGreater(min(proxy.counts.values()), 0, proxy.counts)
        self.check(workers)


@profile.full_only('a real server that dies; by default a model does')
class TestDatabase(FaultCase):

    def database(self):
        self.postgresql = self.own(servers.PostgreSQL)
        return self.postgresql

    def test_killed_database_of_placement_loses_and_leaks_no_claims(self):
        workers = self.workers(base.PATIENCE_S)
        first = workers[0]
        self.run_all(workers[1:], lambda: (
            first.run(3), self.postgresql.kill(), self.postgresql.start(),
            first.run(3)))
        self.check(workers)
