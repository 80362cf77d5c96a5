# SPDX-License-Identifier: Apache-2.0
"""Running a service as a process, whenever it is told to stop."""

from tests.unit.cmd import services

#: A service that sends itself a message, which is not done with before it is
#: told to stop; and one that is told to stop while it starts.
CODE = """
import functools, os, signal, sys, threading
from cellsched.cmd import launch
from cellsched import assembly, context
from cellsched.rpc import client, server


class Endpoint:

    def work(self, context):
        print('begun', flush=True)
        stopping.wait(60)
        print('done', flush=True)


class Service(assembly.Service):

    def start(self):
        super().start()
        client.Client(self.parts.transports.get(), 'topic', '1.0').cast(
            context.admin(), 'work')

    def stop(self):
        stopping.set()
        super().stop()


class Impatient(assembly.Service):

    def start(self):
        os.kill(os.getpid(), signal.SIGTERM)
        stopping.wait(60)


def make(kind, conf):
    parts = assembly.Parts(conf)
    return kind(parts, [server.server(
        parts.transports.get(), 'topic', 'host', [Endpoint()])])


stopping = threading.Event()
kind = globals()[sys.argv.pop()]
count = int(sys.argv.pop())
sys.exit(launch.run(functools.partial(make, kind), lambda conf: count))
"""


class TestLaunch(services.ServiceTestCase):

    def run_code(self, kind, workers):
        return self.start_code(
            CODE, '--config-file', str(self.configure()), str(workers), kind)

    def test_message_that_was_received_is_done_with(self):
        for workers in (1, 2):
            service = self.run_code('Service', workers)
            service.until('begun', workers)

            self.assertEqual(0, service.stop(), service.output)

            self.assertEqual(workers, service.output.count('done'))
            self.assertNotIn('Traceback', service.output)

    def test_signal_while_it_starts_ends_it(self):
        service = self.run_code('Impatient', 1)

        self.assertEqual(0, service.popen.wait(60), service.output)

        self.assertNotIn('Traceback', service.output)
