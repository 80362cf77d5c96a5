# SPDX-License-Identifier: Apache-2.0
"""Limits of Keystone."""

import logging
import subprocess
import sys

import fixtures

from cellsched.api import authorization
from cellsched.api import quotas as quotas_api
from cellsched.conf import enabled
from cellsched.conf import loader
from cellsched import context
from cellsched import exception
from cellsched import plugins
from cellsched.quota import base as quota
from cellsched.testing import clock as clocks
from cellsched.testing import databases
from tests.unit import base
from tests.unit.db import samples
from tests.unit.quota import keystone
from tests.unit.quota import projects


class UnifiedTestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        keystone.forget()
        self.addCleanup(keystone.forget)
        self.keystone = keystone.shared()
        self.addCleanup(self.keystone.reset)
        self.clock = clocks.FakeClock()

    def make(self, text='', **replaced):
        """Return the driver that a file configures."""
        lines = keystone.options(self.keystone.url)
        for old, new in replaced.items():
            lines = '\n'.join(
                line for line in lines.splitlines()
                if not line.startswith(f'{old} =')) + f'\n{new}\n'
        path = self.temporary_directory() / 'api.conf'
        path.write_text(lines + text)
        conf = loader.load(files=[str(path)], dirs=[])
        return enabled.make(
            conf, plugins.QUOTA, quota.QuotaDriver, conf, self.clock)

    def limits(self, driver, project=projects.PROJECT, user=None):
        return driver.limits(None, project, user)


class TestLimits(UnifiedTestCase):

    def test_project_has_its_own_or_the_registered_limit(self):
        self.keystone.registered = {
            'servers': 5, 'class:VCPU': 8, 'class:MEMORY_MB': -1, 'other': 1}
        self.keystone.limits = {projects.PROJECT: {'servers': 7}}
        driver = self.make()

        self.assertEqual({'instances': 7, 'cores': 8}, self.limits(driver))
        self.assertEqual({'instances': 5, 'cores': 8},
                         self.limits(driver, 'another'))
        self.assertEqual({}, self.limits(driver, user=projects.USER))

    def test_options_determine_unregistered_limits(self):
        names = 'unified_limits_resource_list = servers,class:VCPU'
        ignore = 'unified_limits_resource_strategy = ignore'
        for text, expected in (
                ('', {'instances': 0}),
                (f'[quota]\n{names}', {'instances': 0, 'cores': 0}),
                (f'[quota]\n{names}\n{ignore}', {'ram': 0})):
            self.assertEqual(expected, self.limits(self.make(text)))

    def test_keystone_is_queried_again_after_the_interval(self):
        self.keystone.registered = {'servers': 5}
        driver = self.make()
        self.limits(driver)
        self.keystone.registered = {'servers': 6}
        self.clock.advance(9)
        self.assertEqual({'instances': 5}, self.limits(driver))
        self.assertEqual(['registered_limits', 'limits'], self.keystone.asked)

        self.clock.advance(1)

        self.assertEqual({'instances': 6}, self.limits(driver))

    def test_last_limits_hold_while_keystone_does_not_answer(self):
        log = self.useFixture(fixtures.FakeLogger(level=logging.WARNING))
        self.keystone.registered = {'servers': 5}
        driver = self.make()
        self.limits(driver)
        self.keystone.broken = True
        self.clock.advance(10)

        self.assertEqual({'instances': 5}, self.limits(driver))

        self.assertIn('Known limits stay in force', log.output)
        self.assertNotIn(keystone.PASSWORD, log.output)
        self.keystone.broken = False
        self.keystone.registered = {'servers': 6}
        self.clock.advance(10)
        self.assertEqual({'instances': 6}, self.limits(driver))

    def test_requests_are_refused_before_keystone_answers(self):
        # oslo.limit keeps one connection, which the first request opens.
        self.limits(self.make())
        keystone.forget()
        self.keystone.broken = True
        driver = self.make()

        refused = self.assertRaises(
            exception.LimitsUnavailable, self.limits, driver)

        self.assertEqual(503, refused.code)
        self.assertIn('oslo.limit cannot read the answer', str(refused))
        self.assertEqual('the quota limits of its project are unavailable',
                         exception.user_text(refused))
        self.keystone.broken = False
        # Later requests do not wait for Keystone.
        self.assertRaises(
            exception.LimitsUnavailable, self.limits, driver)
        self.clock.advance(10)
        self.assertEqual({'instances': 0}, self.limits(driver))


class TestUsage(UnifiedTestCase):

    def test_builds_are_admitted_up_to_the_limits_of_keystone(self):
        self.keystone.registered = {'servers': 3, 'class:VCPU': 4,
                                    'class:MEMORY_MB': 8192}
        project = projects.Project(self.useFixture(
            databases.APIDatabase()).database)
        driver = self.make()
        builds = project.accept(5)

        refused = project.admit(driver, builds)

        self.assertEqual(2, len(refused))
        self.assertEqual((3, 3, 1536), project.usage())
        with project.database.reader() as connection:
            over = self.assertRaises(
                exception.OverQuota, driver.check, connection,
                projects.PROJECT, projects.USER, samples.flavor(), 1, 1)
        self.assertEqual(403, over.code)

    def test_limits_of_keystone_cannot_be_set(self):
        database = self.useFixture(databases.APIDatabase()).database
        api = quotas_api.Quotas(
            authorization.LocalOperator(), database, None, None, self.make(),
            self.clock)

        refused = self.assertRaises(
            exception.ConfigurationInvalid, api.set, context.admin(),
            'project', {'cores': 1})

        self.assertIn('[quota] driver', str(refused))


class TestConfiguration(UnifiedTestCase):

    def test_missing_option_is_named(self):
        for option, new, named in (
                ('endpoint_id', '', '[oslo_limit] endpoint_id'),
                ('auth_type', '', '[oslo_limit] auth_type'),
                ('auth_url', '', 'auth_url'),
                ('auth_type', 'auth_type = nonsense', 'nonsense')):
            keystone.forget()

            refused = self.assertRaises(
                exception.ConfigurationInvalid, self.make, **{option: new})

            # keystoneauth1 writes the names of options with hyphens.
            self.assertIn(named, str(refused).replace('-', '_'))
            self.assertNotIn(keystone.PASSWORD, str(refused))

    def test_unknown_option_is_refused(self):
        refused = self.assertRaises(
            exception.ConfigurationInvalid, self.make, 'pasword = secret\n')

        self.assertIn('did you mean password?', str(refused))

    def test_configuration_read_earlier_is_unchanged(self):
        path = self.temporary_directory() / 'host.conf'
        path.write_text(keystone.options(self.keystone.url))
        files = keystone.read(path)
        self.keystone.registered = {'servers': 2}

        driver = self.make(auth_url='auth_url = http://127.0.0.1:1/v3')

        self.assertEqual({'instances': 2}, self.limits(driver))
        self.assertEqual([str(path)], files())

    def test_error_for_a_missing_library_names_its_extra(self):
        program = (
            'import sys\n'
            'sys.modules["oslo_limit"] = None\n'
            'from cellsched import exception, plugins\n'
            'from cellsched.conf import enabled, loader, opts\n'
            'from cellsched.quota import base\n'
            'assert "oslo_limit" not in dict(opts.list_opts())\n'
            'conf = loader.load(files=[sys.argv[1]], dirs=[])\n'
            'try:\n'
            '    enabled.make(conf, plugins.QUOTA, base.QuotaDriver, conf)\n'
            'except exception.ConfigurationInvalid as exc:\n'
            '    print(exc)\n')
        path = self.temporary_directory() / 'api.conf'
        path.write_text(keystone.options(self.keystone.url))

        printed = subprocess.run(
            [sys.executable, '-c', program, path], check=True, text=True,
            capture_output=True).stdout

        self.assertIn('cellsched[limit]', printed)
