# SPDX-License-Identifier: Apache-2.0
"""Configurations of services, and the databases that they name."""

import threading
import uuid

from cellsched import clock
from cellsched.conf import loader
from cellsched.testing import databases
from cellsched.wiring import services
from tests.unit import base
from tests.unit.db import samples

DEADLINE_S = 600


SERVICES = (services.scheduler, services.conductor, services.compute)


class WiringTestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.world = uuid.uuid4().hex
        self.directory = self.temporary_directory()
        self.api = self.useFixture(databases.APIDatabase())
        self.cell = self.useFixture(databases.CellDatabase())
        self.claims_url = self.useFixture(databases.ClaimsDatabase()).url

    def conf(self, api=False, cell=False, **groups):
        """Return a configuration, with these databases."""
        wanted = {
            'DEFAULT': {'host': 'host1',
                        'transport_url': f'local://{self.world}/x'},
            'api_database': {'connection': self.api.url if api else ''},
            'database': {'connection': self.cell.url if cell else ''},
            'claims': {'connection': self.claims_url}}
        for group, options in groups.items():
            wanted[group] = {**wanted.get(group, {}), **options}
        lines = []
        for group, options in wanted.items():
            lines.append(f'[{group}]')
            lines += [f'{name} = {value}' for name, value in options.items()
                      if value != '']
        path = self.directory / 'conf'
        path.write_text('\n'.join(lines))
        return loader.load(files=[str(path)], dirs=[])

    def conf_for(self, make, **groups):
        """Return what a service needs, and no more."""
        api = make in (services.scheduler, services.api)
        return self.conf(api=api, cell=not api, **groups)

    def make(self, make, conf, **parts):
        """Make a service of parts that the test may look at."""
        parts = services.Components(conf, **parts)
        self.addCleanup(parts.close)
        return make(conf, parts)

    def run_service(self, service):
        service.start()
        self.addCleanup(service.stop)
        return service

    def until_threads_are(self, wanted):
        time = clock.Clock()
        deadline = time.monotonic() + DEADLINE_S
        while set(threading.enumerate()) - set(wanted):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def map_cell(self, name='cell1', **fields):
        return samples.map_cell(self.api.database, samples.cell(
            name, **{'database_connection': self.cell.url,
                     'transport_url': f'local://{self.world}/x', **fields}))
