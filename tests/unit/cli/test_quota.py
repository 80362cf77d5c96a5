# SPDX-License-Identifier: Apache-2.0

from tests.unit.cli import base


class TestQuota(base.CommandTestCase):

    def setUp(self):
        super().setUp()
        self.write_api_conf(quota={'instances': 3})

    def quota(self, command, *argv):
        return self.shell('quota', command, *argv)

    def shown(self, *argv):
        ran = self.quota('show', '-f', 'json', *argv)
        self.assertEqual((0, ''), (ran.code, ran.err))
        return {row['Resource']: (row['Limit'], row['Used'], row['Pending'])
                for row in ran.data}

    def test_limits_and_usage_are_shown(self):
        self.shell('flavor', 'create', 'm1', '--ram', '512', '--vcpus', '2')
        self.shell('--os-project-id', 'web', 'server', 'create', 'one',
                   '--flavor', 'm1')

        self.assertEqual(
            {'instances': (3, 0, 1), 'cores': (20, 0, 2),
             'ram': (51200, 0, 512)}, self.shown('--project', 'web'))
        self.assertEqual((3, 0, 0), self.shown()['instances'])
        for form in 'yaml', 'csv', 'table':
            self.assertIn('51200', self.quota('show', '-f', form).out)

    def test_exceeded_quota_is_refused_in_a_single_line(self):
        self.shell('flavor', 'create', 'm1', '--ram', '512', '--vcpus', '2')

        ran = self.shell('server', 'create', 'one', '--flavor', 'm1',
                         '--min', '4')

        self.assertEnds(1, ran, 'Quota exceeded for instances: requested 4, '
                        'but already used 0 of 3 instances')

    def test_limits_are_set_and_unset(self):
        for user, limits in (((), ('--instances', '-1', '--ram', '0')),
                             (('--user', 'alice'), ('--cores', '4'))):
            whose = ('--project', 'web', *user, '-f', 'json')
            ran = self.quota('set', *whose, *limits)
            self.assertEqual((0, ''), (ran.code, ran.err))
            self.assertEqual(self.quota('show', *whose).data, ran.data)

        self.assertEqual([-1, 20, 0], [
            limit for limit, *_ in self.shown('--project', 'web').values()])
        self.assertEqual([-1, 4, -1], [
            limit for limit, *_ in self.shown(
                '--project', 'web', '--user', 'alice').values()])

        self.assertIn('51200', self.quota('unset', '--project', 'web').out)
        self.assertEqual([3, 20, 51200], [
            limit for limit, *_ in self.shown('--project', 'web').values()])

    def test_wrong_arguments_are_named(self):
        for argv, text in (
                (['set', '--project', 'web'], 'instances, cores, ram'),
                (['set', '--cores', '1'], '--project'),
                (['set', '--project', 'web', '--cores', '-2'], 'cores'),
                (['set', '--project', '', '--cores', '2'], 'project'),
                (['unset'], '--project'),
                (['show', '--user', 'u', '--by-cell'], '--by-cell'),
                (['show', '--by-cell', '-c', 'Limit'], '--column'),
                (['show', '-c', 'Cell'], '--column')):
            self.assertEnds(1, self.quota(*argv), text)

    def test_unreachable_cells_are_marked(self):
        for name in 'east', 'west':
            self.write(f'{name}.conf', DEFAULT={
                'transport_url': self.local(name)},
                database={'connection': self.sqlite(name)})
            self.manage('cell_v2', 'create_cell', '--name', name,
                        conf=('api.conf', f'{name}.conf'))
        self.manage('db', 'sync', conf=('west.conf',))

        ran = self.quota('show', '--by-cell', '-f', 'json')

        self.assertEnds(0, ran, 'cell east did not answer')
        self.assertEqual(
            [{'Cell': name, 'Answers': answers, 'Instances': 0, 'Cores': 0,
              'RAM': 0, 'Unsized': 0}
             for name, answers in (('east', False), ('west', True))],
            ran.data)
        self.assertEqual('west\n', self.quota(
            'show', '--by-cell', '-f', 'value', '-c', 'Cell').out[5:])
