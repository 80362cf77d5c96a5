# SPDX-License-Identifier: Apache-2.0

from tests.unit import base
from tests.unit.cmd import processes


class TestManage(base.TestCase):

    def test_schema_is_made(self):
        directory = self.temporary_directory()
        conf = directory / 'api.conf'
        conf.write_text(
            f'[api_database]\nconnection = sqlite:///{directory}/x.sqlite\n')

        ended = processes.run(
            'manage', '--config-file', str(conf), 'api_db', 'sync')

        self.assertEqual((0, ''), (ended.returncode, ended.stderr))
        self.assertIn('schema version', ended.stdout)
        self.assertTrue((directory / 'x.sqlite').exists())

    def test_exit_code_is_the_code_of_the_command(self):
        ended = processes.run('manage', 'cell_v2', 'create_cell', '--nonsense')

        self.assertEqual(1, ended.returncode)
        self.assertIn('--nonsense', ended.stderr)
        self.assertNotIn('Traceback', ended.stderr)
