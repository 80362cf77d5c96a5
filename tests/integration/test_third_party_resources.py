# SPDX-License-Identifier: Apache-2.0
"""Packages of others say what there is, and servers take it.

``examples/third_party_class`` has a resource class and a column of its own,
``examples/third_party_driver`` a driver with providers of its own, and
``examples/third_party_scheduler`` a scheduler driver.
"""

import json
import shutil

from cellsched.hosts import columns
from cellsched.hosts import document
from cellsched.testing import builders
from tests.integration import test_third_party_filter as packages
from tests import profile

PAGES = 'CUSTOM_HUGE_PAGES_MB'


class Example(packages.TestCase):

    name: str

    @classmethod
    def write(cls, source):
        # To build leaves things beside the source.
        shutil.copytree(packages.ROOT / 'examples' / cls.name, source,
                        ignore=shutil.ignore_patterns(
                            'build', '__pycache__', '*.egg-info'))

    def assertStoriesPass(self, least):
        self.assertTestsPass(self.run_python(
            '-m', 'unittest', f'tests.functional.{self.name}',
            directory=packages.ROOT), least)

    def assertItsTestsPass(self, least):
        self.assertTestsPass(self.run_python(
            '-m', 'unittest', 'discover', '-s',
            f'examples/{self.name}/tests', directory=packages.ROOT), least)

    def listed(self):
        return {(row['Kind'], row['Name']): row['Summary'] for row
                in json.loads(self.cellsched('plugin', 'list'))
                if not row['Problem']}


class TestClass(Example):

    name = 'third_party_class'

    def plan(self, *wishes, most=45, code=0):
        """Return what is printed of a plan on a cool host and a hot one."""
        snapshot = self.temporary_directory() / 'hosts.json'
        heat = columns.Column('inlet_celsius', 'float64', 0.0, 'heat')
        hosts = builders.table(
            columns=[heat], host=['cool', 'hot'], nodename=['cool', 'hot'],
            inlet_celsius=[20.0, 40.0], available={PAGES: [1500, 2048]})
        snapshot.write_text(json.dumps(document.dump(
            document.HostDocument(
                hosts, builders.NOW, {builders.CELL: 'north'}))))
        path = snapshot.with_name('plan.conf')
        path.write_text('[filter_scheduler]\nenabled_filters = CoolHostFilter'
                        f'\n[cooling]\ninlet_celsius_max = {most}\n')
        return self.cellsched(
            '--config-file', str(path), 'plan', '--snapshot', str(snapshot),
            '--vcpus', '1', '--ram', '512', *wishes, code=code)

    def places(self, printed):
        return [each['host'] for each in json.loads(printed)['places']]

    def test_its_own_tests_pass(self):
        self.assertItsTestsPass(25)

    def test_servers_take_whole_pages_of_cool_hosts(self):
        self.assertStoriesPass(5)

    def test_plugins_are_listed(self):
        listed = self.listed()

        for plugin, summary in {
                ('resource_class', PAGES): 'Memory in pages of 1 GB',
                ('columns', 'cooling'): 'Keep hosts whose inlet air is cool',
                ('filter', 'CoolHostFilter'): 'Reject a host whose inlet air',
                }.items():
            self.assertIn(summary, listed[plugin])

    def test_plans_use_the_class(self):
        self.assertEqual(['hot'], self.places(self.plan(
            '--extra-spec', f'resources:{PAGES}=1500')))
        printed = self.plan(
            '--extra-spec', f'resources:{PAGES}=2049', code=2)
        self.assertIn('lack huge pages', printed)

    def test_plans_use_the_column(self):
        self.assertEqual([], self.places(self.plan(
            '--extra-spec', f'resources:{PAGES}=1500', most=35, code=2)))
        self.assertEqual(['cool'], self.places(self.plan(
            '--extra-spec', f'resources:{PAGES}=1000', most=35)))


class TestDriver(Example):

    name = 'third_party_driver'

    def test_its_own_tests_pass(self):
        self.assertItsTestsPass(10)

    def test_servers_take_slots_of_cards(self):
        self.assertStoriesPass(4)

    def test_driver_is_listed_and_shown_with_its_options(self):
        self.assertIn('Reports FPGA cards and their slots',
                      self.listed()['virt', 'fpga'])
        shown = json.loads(self.cellsched('plugin', 'show', 'virt', 'fpga'))
        self.assertEqual(
            [('fpga', 'families'), ('fpga', 'slots')],
            [(each['group'], each['name']) for each in shown['options']])


@profile.full_only('its suite runs by default over the driver of ours')
class TestScheduler(Example):

    name = 'third_party_scheduler'

    def test_its_own_tests_pass(self):
        self.assertItsTestsPass(15)

    def test_driver_is_shown_with_its_option(self):
        shown = json.loads(self.cellsched(
            'plugin', 'show', 'driver', 'packing_scheduler'))
        self.assertEqual([('packing_scheduler', 'servers_max')], [
            (each['group'], each['name']) for each in shown['options']])
