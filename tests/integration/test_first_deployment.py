# SPDX-License-Identifier: Apache-2.0
"""The page "A first deployment by hand", followed to the letter.

The pages "Hosts" and "Several cells" go on where it ends.
"""

from tests.integration import base
from tests.integration import pages
from tests import profile

PAGE = 'admin/first-deployment.rst'
HOSTS = 'admin/hosts.rst'
CELLS = 'admin/several-cells.rst'


class TestFirstDeployment(pages.Following):

    @profile.full_only('a real clock: services see new cells after a while')
    def test_page_leads_to_an_active_server(self):
        for block in pages.blocks(PAGE):
            self.follow(block)

        # The page has been read, and not some other one.
        for word in ('api_db sync', 'discover_hosts', 'ACTIVE', 'cell0',
                     'delete'):
            self.assertIn(word, ' '.join(self.followed))
        self.assertEqual([], self.servers())

        for block in pages.blocks(HOSTS):
            self.follow(block)

        for word in ('discover_hosts', 'east', 'disabled', '--enable'):
            self.assertIn(word, ' '.join(self.followed))

        for block in pages.blocks(CELLS):
            self.follow(block)

        for word in ('UNKNOWN', 'moved', 'update_cell', 'delete_cell',
                     'audit'):
            self.assertIn(word, ' '.join(self.followed))

    def servers(self):
        return self.run_command(
            'cellsched', '--config-file', 'etc/api.conf', 'server', 'list',
            '-f', 'value', '-c', 'ID').split()


class TestPage(base.TestCase):

    def test_page_prepares_each_used_database_and_virtual_host(self):
        blocks = pages.blocks(PAGE)
        made = {name for block in blocks if block.caption == 'prepare'
                for _, name in pages.MADE.findall(block.text)}
        used = {name for block in blocks if block.language == 'ini'
                for _, name in pages.URL.findall(block.text)}

        # cell0 is found beside the API's database, by its name.
        self.assertEqual(made, used | {'cellsched_api_cell0'})

    def test_every_url_of_the_page_is_replaced(self):
        self.assertEqual([], pages.unknown_urls(PAGE))

    def test_page_uses_only_commands_of_the_package(self):
        for block in pages.blocks(PAGE):
            if block.language == 'console' and block.caption != 'prepare':
                for command, _ in block.commands():
                    self.assertRegex(
                        command, r'^(cellsched|mkdir -p etc$|umask 077$)')
