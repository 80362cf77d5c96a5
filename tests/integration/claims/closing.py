# SPDX-License-Identifier: Apache-2.0
"""Stores that are closed together with their process parts."""

import os
import uuid

from cellsched.claims import base as claims
from cellsched.conf import loader
from cellsched.wiring import services
from tests.integration import processes


class ClosedWithItsParts:
    """Runs with a ``url`` of a store that exists."""

    def configured(self):
        path = self.directory / 'closing.conf'
        scheme, _, _ = self.url.partition(':')
        path.write_text(
            f'[claims]\nstore = {scheme}\nconnection = {self.url}\n',
            encoding='utf-8')
        return loader.load(files=[str(path)], dirs=[])

    def test_closed_parts_leave_no_connection_and_the_store_works_on(self):
        parts = services.Components(self.configured())
        before = open_files()
        for _ in range(2):
            parts.claims.set_inventory(
                str(uuid.uuid4()), {'VCPU': claims.Inventory(total=8)})
            self.assertGreater(open_files(), before)

            parts.close()

            # The driver of Cassandra closes its sockets by a thread.
            processes.wait_until(
                lambda: open_files() == before, 'connections to end')


def open_files():
    """Return the number of open files and sockets of this process."""
    return len(os.listdir('/proc/self/fd'))
