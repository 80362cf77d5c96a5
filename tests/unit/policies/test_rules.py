# SPDX-License-Identifier: Apache-2.0

import pathlib
import subprocess
import sys

import yaml

from cellsched.conf import loader
from cellsched import context
from cellsched import exception
from cellsched.policies import enforcer
from cellsched.policies import rules
from cellsched.testing import clock
from tests.unit import base

ANYBODY = {'cellsched:flavors:show'}

READERS = {
    'os_compute_api:servers:show', 'os_compute_api:servers:index',
    'os_compute_api:servers:migrations:index',
    'os_compute_api:os-instance-actions:list',
    'os_compute_api:os-quota-sets:show',
    'os_compute_api:os-server-groups:show',
    'os_compute_api:os-server-groups:index'}

MEMBERS = {
    'cellsched:servers:retry', 'os_compute_api:servers:create',
    'os_compute_api:servers:delete', 'os_compute_api:servers:update',
    'os_compute_api:servers:rebuild', 'os_compute_api:os-shelve:shelve',
    'os_compute_api:os-shelve:unshelve',
    'os_compute_api:os-server-tags:update_all',
    'os_compute_api:os-server-groups:create',
    'os_compute_api:os-server-groups:delete'}

ADMINISTRATORS = {
    'compute:servers:create:requested_destination',
    'os_compute_api:servers:create:forced_host',
    'cellsched:cells:index', 'cellsched:cells:show', 'cellsched:hosts:drain',
    'cellsched:hosts:evacuate', 'cellsched:quotas:by_cell',
    'cellsched:resource_providers:create',
    'cellsched:resource_providers:delete',
    'cellsched:resource_providers:index',
    'cellsched:resource_providers:show',
    'cellsched:resource_providers:update',
    'os_compute_api:os-admin-actions:reset_state',
    'os_compute_api:os-aggregates:add_host',
    'os_compute_api:os-aggregates:create',
    'os_compute_api:os-aggregates:delete',
    'os_compute_api:os-aggregates:index',
    'os_compute_api:os-aggregates:remove_host',
    'os_compute_api:os-aggregates:set_metadata',
    'os_compute_api:os-aggregates:show', 'os_compute_api:os-evacuate',
    'os_compute_api:os-flavor-extra-specs:update',
    'os_compute_api:os-flavor-manage:create',
    'os_compute_api:os-flavor-manage:delete',
    'os_compute_api:os-migrate-server:migrate',
    'os_compute_api:os-migrate-server:migrate:host',
    'os_compute_api:os-migrations:index:all_projects',
    'os_compute_api:os-quota-sets:delete',
    'os_compute_api:os-quota-sets:update',
    'os_compute_api:os-services:delete', 'os_compute_api:os-services:list',
    'os_compute_api:os-services:update'}


class TestRules(base.TestCase):

    def setUp(self):
        super().setUp()
        self.directory = self.temporary_directory()
        (self.directory / 'policy.yaml').write_text('{}')
        conf_file = self.directory / 'api.conf'
        conf_file.write_text('')
        self.authorizer = enforcer.PolicyAuthorizer(
            loader.load(files=[str(conf_file)], dirs=[]), clock.FakeClock())

    def allowed(self, project_id, *roles):
        """Return the rules that roles in a project go by."""
        user = context.RequestContext(
            user_id='user', project_id='project', roles=roles)
        found = set()
        for rule in rules.list_rules():
            try:
                self.authorizer.authorize(user, rule.name, project_id)
            except exception.PolicyNotAuthorized:
                continue
            if rule.scope_types:
                found.add(rule.name)
        return found

    def test_roles_have_the_permissions_of_nova(self):
        everything = ANYBODY | READERS | MEMBERS | ADMINISTRATORS
        for roles, expected in (
                (('admin',), everything),
                (('manager', 'member', 'reader'), everything - ADMINISTRATORS),
                (('member', 'reader'), everything - ADMINISTRATORS),
                (('member',), ANYBODY | MEMBERS),
                (('reader',), ANYBODY | READERS),
                (('fireman',), ANYBODY),
                ((), ANYBODY)):
            self.assertEqual(expected, self.allowed('project', *roles), roles)
        self.assertEqual(everything, self.allowed('other', 'admin'))
        self.assertEqual(ANYBODY, self.allowed('other', 'member', 'reader'))

    def test_rules_are_named_once_and_described(self):
        found = rules.list_rules()

        self.assertEqual(len(found), len({each.name for each in found}))
        for each in found:
            self.assertTrue(each.description.endswith('.'), each.name)

    def run_tool(self, name, *args):
        """Return what a command of oslo.policy writes."""
        done = subprocess.run(
            [pathlib.Path(sys.executable).parent / name, *args],
            capture_output=True, text=True)
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout

    def test_sample_has_every_rule_commented_out(self):
        sample = self.run_tool(
            'oslopolicy-sample-generator', '--namespace', 'cellsched')

        self.assertIsNone(yaml.safe_load(sample))
        shown = yaml.safe_load('\n'.join(
            line[1:] for line in sample.splitlines()
            if line.startswith('#"')))
        self.assertEqual(
            {each.name: each.check_str for each in rules.list_rules()}, shown)

    def test_sample_is_made_by_the_file_in_etc(self):
        path = self.directory / 'sample.yaml'
        self.run_tool(
            'oslopolicy-sample-generator', '--config-file',
            'etc/cellsched/policy-generator.conf', '--output-file', str(path))

        self.assertIn('#"cellsched:hosts:drain"', path.read_text())

    def test_rules_in_force_are_written_by_a_command(self):
        (self.directory / 'policy.yaml').write_text(
            '"cellsched:hosts:drain": "role:fireman"\n')
        written = yaml.safe_load(self.run_tool(
            'oslopolicy-policy-generator', '--namespace', 'cellsched',
            '--config-file', str(self.directory / 'api.conf')))

        self.assertEqual('role:fireman', written['cellsched:hosts:drain'])
        self.assertEqual('rule:admin_api', written['cellsched:cells:show'])

    def test_file_is_validated_by_a_command(self):
        path = self.directory / 'policy.yaml'
        path.write_text('"cellsched:hosts:drain": "role:fireman"\n')
        (self.directory / 'api.conf').write_text(
            f'[oslo_policy]\npolicy_file = {path}\n')

        self.run_tool(
            'oslopolicy-validator', '--namespace', 'cellsched',
            '--config-file', str(self.directory / 'api.conf'))
