# SPDX-License-Identifier: Apache-2.0
"""What a service does when it stops, or shares a file with another."""

import threading

from cellsched.claims import sql
from cellsched import clock
from cellsched.conductor import service as conductor_service
from cellsched.db import session
from cellsched.wiring import services as assembly
from tests.unit import assembling


class Stopping(threading.Event):
    """Says when somebody asks."""

    def __init__(self):
        super().__init__()
        self.asked = threading.Semaphore(0)

    def is_set(self):
        self.asked.release()
        return super().is_set()


class TestStopping(assembling.AssemblyTestCase):

    def test_no_periodic_work_is_begun_any_more(self):
        done = []
        service = assembly.Service(
            assembly.Parts(self.conf()), [],
            [(lambda: done.append('periodic'), 0.01)],
            [(lambda: done.append('at once'), 0.01)])
        service._stopping = Stopping()
        service._stopping.set()

        service.start()
        for _ in range(4):
            self.assertTrue(service._stopping.asked.acquire(
                timeout=assembling.DEADLINE_S))
        service.stop()

        self.assertEqual([], done)


class TestSharedFile(assembling.AssemblyTestCase):
    """SQLite has one writer for a file: nobody releases in a transaction."""

    def is_fenced(self, **groups):
        service = self.make(
            assembly.conductor, self.conf(api=True, **groups))
        [server] = service.servers
        [conductor] = [
            each for each in server.dispatcher.endpoints
            if isinstance(each, conductor_service.SuperConductor)]
        return conductor._task._limits.fenced

    def test_claims_are_released_in_the_transaction_of_another_file(self):
        self.assertTrue(self.is_fenced())

    def test_claims_of_the_same_file_are_released_after_it(self):
        claims = session.Database(
            self.api.url, 'claims', clock=clock.Clock())
        self.addCleanup(claims.close)
        sql.SQLClaims(claims).sync()
        for connection in ('', self.api.url):
            self.assertFalse(self.is_fenced(
                claims={'connection': connection}))
