# SPDX-License-Identifier: Apache-2.0
"""Running a service as a process, whenever it is told to stop."""

import signal

from cellsched.db.cell.services import COMPUTE
from cellsched.db.cell.services import report
from tests.unit.cmd import services
from tests.unit.db import samples

#: A service that sends itself a message, which is not done with before it is
#: told to stop; and one that is told to stop while it starts.
CODE = """
import functools, os, signal, sys, threading
from amqp import exceptions
from cellsched.wiring.components import Components
from cellsched.wiring import service
from cellsched import context, plugins
from cellsched.cmd import launch
from cellsched.rpc import client, server


class Endpoint:

    def work(self, context):
        print('begun', flush=True)
        stopping.wait(600)
        print('done', flush=True)


class Service(service.Service):

    def start(self):
        super().start()
        client.Client(self.parts.transports.get(), 'topic', '1.0').cast(
            context.admin(), 'work')

    def stop(self):
        stopping.set()
        super().stop()


class Asking(service.Service):

    def start(self):
        self._periodic = [(self.parts.compute_cap, 0.05)]
        super().start()


class Impatient(service.Service):

    def start(self):
        os.kill(os.getpid(), signal.SIGTERM)
        stopping.wait(600)


class Refused(service.Service):

    def start(self):
        raise exceptions.AccessRefused('wrong password')


def make(kind, conf):
    parts = Components(conf)
    return kind(parts, [server.server(
        parts.transports.get(), 'topic', 'host', [Endpoint()])])


stopping = threading.Event()
kind = globals()[sys.argv.pop()]
count = int(sys.argv.pop())
sys.exit(launch.run(functools.partial(make, kind), lambda conf: count,
                    [plugins.CLAIMS]))
"""


class TestLaunch(services.ServiceTestCase):

    def run_code(self, kind, workers, **options):
        return self.start_code(
            CODE, '--config-file', str(self.configure(**options)),
            str(workers), kind)

    def test_message_that_was_received_is_done_with(self):
        for workers in (1, 2):
            service = self.run_code('Service', workers)
            service.until('begun', workers)
            # Until then a signal ends it without stopping it.
            service.until('has started', workers)

            self.assertEqual(0, service.stop(), service.output)

            self.assertEqual(workers, service.output.count('done'))
            self.assertNotIn('Traceback', service.output)

    def test_signal_while_it_starts_ends_it(self):
        service = self.run_code('Impatient', 1)

        self.assertEqual(0, service.popen.wait(600), service.output)

        self.assertNotIn('Traceback', service.output)

    def test_broker_that_refuses_while_it_starts_costs_a_line(self):
        service = self.run_code('Refused', 1)

        self.assertEqual(1, service.popen.wait(600), service.output)

        self.assertEqual(
            1, service.output.count('service: AccessRefused: '))
        self.assertNotIn('Traceback', service.output)

    def test_workers_whose_broker_refuses_leave_no_tracebacks(self):
        service = self.run_code('Refused', 2)

        service.until('service: AccessRefused: ', 2)
        service.stop()

        self.assertNotIn('Traceback', service.output)

    def test_hangup_has_versions_found_out_anew(self):
        with self.cell.database.writer() as connection:
            report(
                connection, samples.uuids(1)[0], 'host', COMPUTE,
                'compute', samples.NOW, 1)
        for workers in (1, 2):
            service = self.run_code(
                'Asking', workers, cell=True,
                upgrade_levels={'compute': 'auto'})
            service.until('The oldest compute service', workers)

            service.signal(signal.SIGHUP)

            service.until('The oldest compute service', 2 * workers)
            self.assertEqual(0, service.stop(), service.output)
