# SPDX-License-Identifier: Apache-2.0
"""The modules that the process of a service imports."""

import ast

from tests.unit.cmd import services

#: Runs a service, and prints what it has imported when it has started.
CODE = """
from cellsched.cmd import launch
from cellsched.cmd import {service}


def settle():
    print('imported', sorted(
        name for name in sys.modules if name.startswith('cellsched.')))


launch.settle = settle
{service}.main()
"""


class TestImports(services.ServiceTestCase):

    def imported(self, service, **options):
        """Return the modules of ours that a service has at its end."""
        path = self.configure(**options)
        process = self.start_code(
            CODE.format(service=service), '--config-file', str(path))
        process.until('has started as host1')
        [names] = process.until(r'imported (.*)\n')
        self.assertEqual(0, process.stop(), process.output)
        return ast.literal_eval(names)

    def assertNone(self, packages, names):
        """Check that nothing of these packages was imported."""
        self.assertEqual([], [
            name for name in names if any(
                f'{name}.'.startswith(f'cellsched.{package}.')
                for package in packages)])

    def test_agent_has_nothing_of_what_is_above_its_cell(self):
        names = self.imported('compute', cell=True)

        self.assertIn('cellsched.compute.agent', names)
        self.assertIn('cellsched.virt.fake', names)
        self.assertNone(
            ['api', 'audit', 'cells', 'conductor', 'db.api', 'embedding',
             'filters', 'hosts', 'inventory', 'quota', 'scheduler',
             'weighers'], names)

    def test_agent_of_a_shared_file_has_no_more(self):
        names = self.imported(
            'compute', cell=True,
            filter_scheduler={'enabled_filters': 'ComputeFilter',
                              'cpu_weight_multiplier': 2.0},
            scheduler={'driver': 'chance_scheduler'})

        self.assertNone(['filters', 'scheduler', 'weighers'], names)

    def test_conductor_has_nothing_of_other_services(self):
        names = self.imported(
            'conductor', api=True, cell=True, conductor={'workers': 1})

        self.assertIn('cellsched.quota.db', names)
        self.assertNone(
            ['api', 'compute', 'filters', 'hosts', 'inventory', 'scheduler',
             'virt', 'weighers'], names)

    def test_scheduler_has_nothing_of_other_services(self):
        names = self.imported('scheduler', api=True, scheduler={'workers': 1})

        self.assertIn('cellsched.filters.compute', names)
        self.assertNone(
            ['api', 'audit', 'compute', 'conductor', 'embedding', 'quota',
             'virt'], names)
