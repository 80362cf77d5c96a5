# SPDX-License-Identifier: Apache-2.0
"""The page "A first deployment by hand", followed to the letter."""

from concurrent import futures
import dataclasses
import pathlib
import re
import textwrap

from tests.integration import base
from tests.integration import servers

PAGE = (pathlib.Path(__file__).parents[2]
        / 'doc/source/admin/first-deployment.rst')

_BLOCK = re.compile(
    r'^\.\. code-block:: (\w+)\n((?:   :\w+: .*\n)*)\n((?:   .*\n|\n)+)',
    re.MULTILINE)
_CAPTION = re.compile(r':caption: (.*)')

#: A database or a virtual host, as the page makes it and as its files name it.
_MADE = re.compile(r'^\$ (createdb|rabbitmqctl add_vhost) .*?(\w+)$',
                   re.MULTILINE)
_URL = re.compile(r'(postgresql|rabbit)\S*://\S+/(\w+)$', re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Block:
    """A literal block of the page."""

    language: str
    caption: str
    text: str

    def commands(self):
        """Yield each command with the output that stands below it."""
        for part in re.split(r'^\$ ', self.text, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition('\n')
            yield command, output


class TestFirstDeployment(base.TestCase):

    def setUp(self):
        super().setUp()
        self.parts = {'createdb': self.part_of(servers.PostgreSQL),
                      'rabbitmqctl add_vhost': self.part_of(servers.RabbitMQ)}
        self.urls = {}
        self.followed = []

    def test_page_leads_to_an_active_server(self):
        for block in blocks():
            if block.language == 'ini':
                self.write(block)
            elif block.caption == 'prepare':
                self.prepare(block)
            elif block.caption == 'services':
                self.start(block)
            else:
                self.type(block)

        # The page has been read, and not some other one.
        for word in ('api_db sync', 'discover_hosts', 'ACTIVE', 'cell0',
                     'delete'):
            self.assertIn(word, ' '.join(self.followed))
        self.assertEqual([], self.servers())

    def prepare(self, block):
        """Make what the page tells the servers' administrators to make."""
        for command, name in _MADE.findall(block.text):
            self.urls[command, name] = self.parts[command].url(name)

    def write(self, block):
        """Write a file, with the URLs that lead to our servers."""
        def replace(match):
            command = {'postgresql': 'createdb',
                       'rabbit': 'rabbitmqctl add_vhost'}[match[1]]
            # A name that the page did not make is not there.
            return self.urls[command, match[2]]

        path = self.directory / block.caption
        path.write_text(_URL.sub(replace, block.text))

    def start(self, block):
        """Start each service as in a terminal of its own."""
        started = [
            self.process(command.split(), name=f'service-{number}')
            for number, (command, _) in enumerate(block.commands())]
        self.addCleanup(stop, started)
        for process in started:
            process.wait_for(r'has started as .*\n')

    def type(self, block):
        """Run commands, which print what the page says that they print."""
        for command, output in block.commands():
            printed = self.run_command('sh', '-c', command)

            self.followed += [command, printed]
            if output.strip():
                self.assertEqual(output.strip(), printed.strip(), command)

    def servers(self):
        return self.run_command(
            'cellsched', '--config-file', 'etc/api.conf', 'server', 'list',
            '-f', 'value', '-c', 'ID').split()


class TestPage(base.TestCase):

    def test_page_prepares_every_database_and_virtual_host_it_uses(self):
        made = {name for block in blocks() if block.caption == 'prepare'
                for _, name in _MADE.findall(block.text)}
        used = {name for block in blocks() if block.language == 'ini'
                for _, name in _URL.findall(block.text)}

        # cell0 is found beside the API's database, by its name.
        self.assertEqual(made, used | {'cellsched_api_cell0'})

    def test_every_url_of_the_page_is_replaced(self):
        for block in blocks():
            if block.language == 'ini':
                self.assertEqual(
                    block.text.count('://'), len(_URL.findall(block.text)))

    def test_page_uses_nothing_but_our_commands(self):
        for block in blocks():
            if block.language == 'console' and block.caption != 'prepare':
                for command, _ in block.commands():
                    self.assertRegex(
                        command, r'^(cellsched|mkdir -p etc$|umask 077$)')


def stop(started):
    """Stop processes at once: one that is idle takes seconds to notice."""
    with futures.ThreadPoolExecutor(len(started)) as pool:
        list(pool.map(lambda process: process.stop(), started))


def blocks():
    """Return the literal blocks of the page."""
    return [
        Block(language, ''.join(_CAPTION.findall(options)),
              textwrap.dedent(text).strip() + '\n')
        for language, options, text in _BLOCK.findall(PAGE.read_text())]
