# SPDX-License-Identifier: Apache-2.0

import logging
import threading

from cellsched.conf import loader
from cellsched import context
from cellsched import exception
from cellsched.policies import enforcer
from cellsched.testing import clock
from tests.unit import base

CREATE = 'os_compute_api:servers:create'
SHOW = 'os_compute_api:servers:show'
DRAIN = 'cellsched:hosts:drain'

ADMIN = context.RequestContext(
    user_id='admin', project_id='admin',
    roles=['admin', 'manager', 'member', 'reader'])
MEMBER = context.member('user', 'project')
READER = context.RequestContext(
    user_id='user', project_id='project', roles=['reader'])


class TestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.directory = self.temporary_directory()
        self.file = self.directory / 'policy.yaml'
        self.clock = clock.FakeClock()

    def conf(self, text=''):
        path = self.directory / 'api.conf'
        path.write_text(text)
        return loader.load(files=[str(path)], dirs=[])

    def make(self, text=''):
        return enforcer.PolicyAuthorizer(self.conf(text), self.clock)

    def allows(self, authorizer, context, rule, project_id=None):
        try:
            authorizer.authorize(context, rule, project_id)
        except exception.PolicyNotAuthorized as exc:
            self.assertEqual(rule, exc.action)
            return False
        return True


class TestDefaults(TestCase):

    def setUp(self):
        super().setUp()
        self.file.write_text('{}')
        self.rules = self.make()

    def test_administrator_has_the_role_or_the_flag(self):
        given = self.rules.authorize(ADMIN, DRAIN)

        self.assertTrue(given.is_admin)
        # The caller's own is left as it was.
        self.assertFalse(ADMIN.is_admin)
        self.assertEqual(ADMIN.request_id, given.request_id)
        self.assertTrue(self.allows(self.rules, context.admin(), DRAIN))
        self.assertTrue(self.allows(self.rules, context.of_owner(MEMBER),
                                    DRAIN))

    def test_member_may_create_by_default(self):
        self.assertIs(MEMBER, self.rules.authorize(MEMBER, CREATE))

    def test_rule_applies_to_the_own_project(self):
        for user, rule, expected in (
                (MEMBER, CREATE, True), (READER, CREATE, False),
                (READER, SHOW, True)):
            self.assertEqual(expected, self.allows(self.rules, user, rule))
            self.assertEqual(expected, self.allows(
                self.rules, user, rule, 'project'))
            self.assertFalse(self.allows(self.rules, user, rule, 'other'))

    def test_administrator_is_allowed_in_all_projects(self):
        self.assertTrue(self.allows(self.rules, ADMIN, CREATE, 'other'))

    def test_context_without_a_project_owns_no_project(self):
        for project_id in (None, ''):
            nobody = context.RequestContext(
                project_id=project_id, roles=['member', 'reader'])
            for asked in (None, '', 'None'):
                self.assertFalse(
                    self.allows(self.rules, nobody, SHOW, asked))

    def test_many_projects_and_long_names_get_the_same_answers(self):
        for project in (*map(str, range(1100)), 'x' * 300, '0'):
            user = context.member('user', project)
            self.assertTrue(self.allows(self.rules, user, CREATE))
            self.assertFalse(self.allows(self.rules, user, CREATE, 'y'))

    def test_token_of_the_system_or_a_domain_is_of_no_project(self):
        for scope in ({'system_scope': 'all'}, {'domain_id': 'domain'}):
            user = context.RequestContext(
                roles=['member', 'reader'], project_id='project', **scope)
            self.assertFalse(self.allows(self.rules, user, CREATE))


class TestFile(TestCase):

    def test_rule_of_the_file_is_in_place_of_the_default(self):
        self.file.write_text(f'"{DRAIN}": "role:fireman"\n'
                             '"context_is_admin": "role:root"\n')
        rules = self.make()

        for role, expected in (('fireman', True), ('admin', False),
                               ('root', False)):
            user = context.RequestContext(project_id='p', roles=[role])
            self.assertEqual(expected, self.allows(rules, user, DRAIN), role)
        self.assertTrue(rules.authorize(context.RequestContext(
            project_id='p', roles=['root']), SHOW).is_admin)

    def test_directory_adds_to_the_file(self):
        more = self.directory / 'policy.d'
        more.mkdir()
        self.file.write_text(f'"{DRAIN}": "!"\n"{CREATE}": "!"\n')
        (more / 'hosts.yaml').write_text(f'"{DRAIN}": "@"\n')
        rules = self.make()

        self.assertTrue(self.allows(rules, READER, DRAIN))
        self.assertFalse(self.allows(rules, MEMBER, CREATE))

        (more / 'more.yaml').write_text(f'"{CREATE}": "@"\n')
        self.clock.advance(enforcer.LOOK_S)

        self.assertTrue(self.allows(rules, READER, CREATE))

    def test_rule_on_the_user_domain_is_checked_each_time(self):
        self.file.write_text(f'"{CREATE}": "user_domain_id:here"\n')
        rules = self.make()

        for domain, expected in (('here', True), ('there', False)):
            user = context.RequestContext(
                user_id='user', project_id='project', user_domain_id=domain)
            self.assertEqual(expected, self.allows(rules, user, CREATE))

    def test_rules_of_other_services_are_ignored(self):
        self.file.write_text(
            '"os_compute_api:os-keypairs:create": "role:member"\n'
            '"os_compute_api:os-keypairs:show": "rule:project_manager_api"\n')

        self.assertTrue(self.allows(self.make(), MEMBER, CREATE))

    def refused(self, text='', option='policy_file'):
        error = self.assertRaises(
            exception.ConfigurationInvalid, self.make, text)
        self.assertEqual(f'[oslo_policy] {option}', error.field)
        self.assertNotIn('\n', str(error))
        return str(error)

    def test_invalid_file_is_refused_in_a_single_line(self):
        for text, said in (
                ('"a": [', 'expected a mapping of names to rules'),
                ('- a\n', 'expected a mapping of names to rules'),
                ('just words\n', 'expected a mapping of names to rules'),
                ('"a": 5\n', 'expected a mapping of names to rules'),
                ('"a": ' + '[' * 3000 + ']' * 3000, 'cannot be read'),
                (f'"{CREATE}": "rule:nix"\n', CREATE),
                (f'"{CREATE}": "rule:{CREATE}"\n', CREATE),
                (f'"{CREATE}": "member"\n', CREATE),
                (f'"{CREATE}": "role:a or member"\n', CREATE),
                ('"cellsched:hosts:drian": "@"\n', 'drian')):
            with self.subTest(text=text):
                self.file.write_text(text)
                self.assertIn(said, self.refused())

    def test_named_file_must_exist(self):
        found = self.refused('[oslo_policy]\npolicy_file = rules.yaml\n')

        self.assertIn('rules.yaml', found)

    def test_path_of_another_kind_is_refused(self):
        self.file.mkdir()
        self.assertIn('is not a file', self.refused(
            f'[oslo_policy]\npolicy_file = {self.file}\n'))
        self.file.rmdir()
        self.file.write_text('{}')
        for name, expected in ((self.file, 'Not a directory'),
                               ('rules.d', 'rules.d does not exist')):
            self.assertIn(expected, self.refused(
                f'[oslo_policy]\npolicy_dirs = {name}\n', 'policy_dirs'))

    def test_file_of_bytes_is_refused(self):
        self.file.write_bytes(b'\xff\xfe\x00')

        self.refused()


class TestReload(TestCase):

    def setUp(self):
        super().setUp()
        self.file.write_text('{}')
        self.rules = self.make()

    def test_change_of_the_file_applies_within_a_second(self):
        self.file.write_text(f'"{CREATE}": "role:reader"\n')
        self.assertFalse(self.allows(self.rules, READER, CREATE))

        self.clock.advance(enforcer.LOOK_S)

        self.assertTrue(self.allows(self.rules, READER, CREATE))
        self.file.unlink()
        self.clock.advance(enforcer.LOOK_S)
        self.assertFalse(self.allows(self.rules, READER, CREATE))

    def test_invalid_file_is_logged_once_and_ignored(self):
        logs = self.logs
        for text in (f'"{CREATE}": "role:reader"\n"{SHOW}": "rule:nix"\n',
                     '"a": [', '"a": ' + '[' * 3000,
                     f'"{CREATE}": "role:reader or x"\n'):
            before = logs.output.count('not reloaded')
            self.file.write_text(text)
            for _ in range(3):
                self.clock.advance(enforcer.LOOK_S)
                self.assertFalse(self.allows(self.rules, READER, CREATE))
                self.assertTrue(self.allows(self.rules, READER, SHOW))
            self.assertEqual(
                before + 1, logs.output.count('not reloaded'))

    def test_directory_in_place_of_the_file_is_logged_and_ignored(self):
        self.file.write_text(f'"{CREATE}": "!"\n')
        rules = self.make()
        self.file.unlink()
        self.file.mkdir()

        self.clock.advance(enforcer.LOOK_S)

        self.assertFalse(self.allows(rules, MEMBER, CREATE))
        self.assertEqual(1, self.logs.output.count('not reloaded'))

    def test_threads_see_whole_rules_while_a_file_is_read(self):
        root = logging.getLogger()
        self.addCleanup(root.setLevel, root.level)
        root.setLevel(logging.ERROR)
        wrong = []

        def ask():
            for _ in range(200):
                self.clock.advance(enforcer.LOOK_S)
                if not (self.allows(self.rules, MEMBER, CREATE)
                        and not self.allows(self.rules, MEMBER, DRAIN)):
                    wrong.append('other rules')

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for number in range(100):
            self.file.write_text(f'# {number}\n"{CREATE}": "role:member"\n')
        for thread in threads:
            thread.join()

        self.assertEqual([], wrong)
