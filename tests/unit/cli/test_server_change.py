# SPDX-License-Identifier: Apache-2.0

from cellsched.standalone import deployment
from tests.unit.cli import test_server

UNKNOWN = '4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e'


class TestSet(test_server.ServerTestCase):

    def made(self, *argv):
        [found] = self.create('web', '--flavor', 'small', '--wait', *argv).data
        return found['ID']

    def shown(self, uuid):
        return self.server('show', uuid, '-f', 'json').data

    def test_server_is_created_with_its_tags(self):
        self.assertEqual(['a', 'b'], self.shown(
            self.made('--tag', 'b', '--tag', 'a', '--tag', 'b'))['tags'])

    def test_server_is_renamed_and_keeps_its_tags(self):
        uuid = self.made('--tag', 'a')

        ran = self.server('set', uuid, '--name', 'other', '-f', 'json')

        self.assertEqual((0, ''), (ran.code, ran.err))
        found = self.shown(uuid)
        self.assertEqual(found, ran.data)
        self.assertEqual(('other', ['a']), (found['name'], found['tags']))

    def test_tags_are_added_replaced_and_removed(self):
        uuid = self.made('--tag', 'a')
        for argv, tags in (
                (['--tag', 'b'], ['a', 'b']),
                (['--no-tag', '--tag', 'c'], ['c']), (['--no-tag'], [])):
            self.assertEqual(0, self.server('set', uuid, *argv).code)
            self.assertEqual(tags, self.shown(uuid)['tags'])

    def test_what_cannot_be_set_is_refused(self):
        uuid = self.made()
        self.assertEnds(1, self.server('set', uuid), '--no-tag')
        self.assertEnds(
            1, self.server('set', uuid, '--tag', 'a,b'), 'tags', 'comma')
        self.assertEnds(
            1, self.server('set', uuid, '--name', 'x' * 256), 'name', '255')
        self.assertEnds(
            1, self.server('set', UNKNOWN, '--name', 'x'), UNKNOWN)


class TestRetry(test_server.ServerTestCase):

    def test_server_in_cell0_is_built_after_all(self):
        ran = self.create('big', '--flavor', 'huge', '--wait')
        self.assertEqual(2, ran.code)
        [found] = ran.data
        ran = self.server('retry', found['ID'], '--wait')
        self.assertEqual(2, ran.code)

        self.cloud.start_host(
            'cell1', deployment.DeployedHost('host3', vcpus=2000))
        ran = self.server('retry', found['ID'], '--wait')

        self.assertEqual(
            (0, f'Retrying server {found["ID"]}\n'), (ran.code, ran.out))
        ran = self.server('show', found['ID'], '-f', 'json')
        self.assertEqual(('ACTIVE', 'host3'),
                         (ran.data['status'], ran.data['host']))

    def test_server_that_is_not_there_is_refused_with_its_state(self):
        [found] = self.create('web', '--flavor', 'small', '--wait').data

        self.assertEnds(
            1, self.server('retry', found['ID']), 'ACTIVE in cell1')
        self.assertEnds(
            1, self.server('retry', UNKNOWN), f'no server {UNKNOWN}')
