# SPDX-License-Identifier: Apache-2.0

from tests.unit.cli import base


class TestServerGroup(base.CommandTestCase):

    def setUp(self):
        super().setUp()
        self.write_api_conf(api={'max_limit': 3})

    def group(self, command, *argv):
        return self.shell('server', 'group', command, *argv)

    def create(self, *argv):
        return self.group('create', '-f', 'json', *argv)

    def test_group_is_created_with_its_options(self):
        ran = self.create(
            'web', '--policy', 'anti-affinity', '--rule',
            'max_server_per_host=2', '--rule', 'spread=az')

        self.assertEqual((0, ''), (ran.code, ran.err))
        uuid = ran.data['id']
        self.assertEqual(
            {'id': uuid, 'name': 'web', 'policy': 'anti-affinity',
             'rules': {'max_server_per_host': 2, 'spread': 'az'},
             'members': [], 'project_id': 'admin', 'user_id': 'admin'},
            ran.data)
        self.assertEqual(
            ran.data, self.group('show', uuid, '-f', 'json').data)
        self.assertIn('max_server_per_host=2, spread=az',
                      self.group('show', uuid).out)

    def test_servers_join_by_the_hint(self):
        self.shell('flavor', 'create', 'm1', '--ram', '1', '--vcpus', '1')
        uuid = self.create('web', '--policy', 'affinity').data['id']

        ran = self.shell('server', 'create', 'one', '--flavor', 'm1',
                         '--hint', f'group={uuid}', '-f', 'json')

        self.assertEqual(
            [server['ID'] for server in ran.data],
            self.group('show', uuid, '-f', 'json').data['members'])

    def test_list_has_the_newest_first(self):
        for name in 'abcd':
            self.create(name, '--rule', 'spread=cell')

        ran = self.group('list', '-f', 'json')

        self.assertEqual(['d', 'c', 'b'], [each['Name'] for each in ran.data])
        self.assertEqual({'ID', 'Name', 'Policy', 'Rules'}, {*ran.data[0]})
        self.assertEqual({'spread': 'cell'}, ran.data[0]['Rules'])
        self.assertEqual(1, len(
            self.group('list', '--limit', '1', '-f', 'json').data))
        self.assertEnds(1, self.group('list', '--limit', '4'), 'limit')

    def test_groups_are_deleted_beside_an_unknown_group(self):
        uuids = [self.create(name, '--policy', 'affinity').data['id']
                 for name in 'ab']

        self.assertEnds(1, self.group(
            'delete', uuids[0], 'unknown', uuids[1]), 'unknown')

        self.assertEqual([], self.group('list', '-f', 'json').data)
        self.assertEnds(1, self.group('show', uuids[0]), uuids[0])

    def test_bad_input_is_refused_with_the_problem(self):
        for argv, *texts in (
                ([], 'policy:', 'anti-affinity'),
                (['--policy', 'near'], 'policy:', 'near'),
                (['--rule', 'spread'], '--rule:', 'spread'),
                (['--rule', 'spread=az', '--rule', 'spread=az'], '--rule:'),
                (['--rule', 'spread=rack'], 'rules.spread:', 'rack'),
                (['--rule', 'color=red'], 'rules:', 'color'),
                (['--rule', 'spread=az', '--rule', 'max_skew=-1'],
                 'rules.max_skew:', '1000'),
                (['--rule', 'spread=az', '--rule', f'max_skew={"9" * 5000}'],
                 'rules.max_skew:', '1000'),
                (['--policy', 'affinity', '--rule', 'max_server_per_host=1'],
                 'rules.max_server_per_host:', 'anti-affinity')):
            self.assertEnds(1, self.create('web', *argv), *texts)
        self.assertEqual([], self.group('list', '-f', 'json').data)
