# SPDX-License-Identifier: Apache-2.0
"""Pages of the documentation, followed to the letter."""

from concurrent import futures
import dataclasses
import pathlib
import re
import shlex
import textwrap
from urllib import parse

from tests.integration import base
from tests.integration import commands
from tests.integration import servers

SOURCE = pathlib.Path(__file__).parents[2] / 'doc/source'

_BLOCK = re.compile(
    r'^\.\. code-block:: (\w+)\n((?:   :\w+: .*\n)*)\n((?:   .*\n|\n)+)',
    re.MULTILINE)
_CAPTION = re.compile(r':caption: (.*)')

#: A database or a virtual host, as a page makes it and as its files name it.
MADE = re.compile(r'^\$ (createdb|rabbitmqctl add_vhost) .*?(\w+)$',
                  re.MULTILINE)
URL = re.compile(r'(postgresql|rabbit)\S*://\S+/(\w+)$', re.MULTILINE)

#: An account of a virtual host that is made later than the others, and its
#: password.
ACCOUNT = re.compile(r"^\$ rabbitmqctl add_user (\w+) '(.*)'\n"
                     r'\$ rabbitmqctl set_permissions -p (\w+) \1 ',
                     re.MULTILINE)

#: A statement of the administrator of PostgreSQL.
_STATEMENT = re.compile(r"""^\$ psql -c (['"])(.*)\1$""", re.MULTILINE)

#: A command of ours and no other, and one whose output is an argument of it.
_OWN = re.compile(r'cellsched(-manage)? [^|$&;<>`*\\]*')
_INNER = re.compile(r'\$\((cellsched [^()]*)\)')

#: What makes the part of a server that such a URL leads to.
_MAKER = {'postgresql': 'createdb', 'rabbit': 'rabbitmqctl add_vhost'}


@dataclasses.dataclass(frozen=True)
class Block:
    """A literal block of a page."""

    language: str
    caption: str
    text: str

    def commands(self):
        """Yield each command with the output that stands below it."""
        for part in re.split(r'^\$ ', self.text, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition('\n')
            yield command, output


def blocks(name: str, section: str = '') -> list[Block]:
    """Return the literal blocks of a page, which is named from the top.

    :param section: the heading of the only section whose blocks are returned
    """
    text = (SOURCE / name).read_text()
    if section:
        # The line below a heading is as long as the heading.
        headings = re.split(r'^(\S.*)\n(=+)$', text, flags=re.MULTILINE)
        text = headings[headings.index(section) + 2]
    return [
        Block(language, ''.join(_CAPTION.findall(options)),
              textwrap.dedent(text).strip() + '\n')
        for language, options, text in _BLOCK.findall(text)]


def unknown_urls(name: str) -> list[str]:
    """Return the lines of a page's files whose URL would not be replaced."""
    return [line for block in blocks(name) if block.language == 'ini'
            for line in block.text.splitlines()
            if '://' in line and not URL.search(line)]


class Following(base.TestCase):
    """Does what blocks say, in a directory of the test.

    Databases and virtual hosts are parts of our own servers, where everybody
    is let in.
    """

    def setUp(self):
        super().setUp()
        self._parts = {
            'createdb': self.part_of(servers.PostgreSQL),
            'rabbitmqctl add_vhost': self.part_of(servers.RabbitMQ)}
        self._urls = {}
        self._commands = self.useFixture(commands.Commands())
        #: What was typed, and what that printed.
        self.followed = []
        #: What was started, by what was typed.
        self.services = {}
        self._started = 0
        self.addCleanup(self._stop_all)

    def make(self, maker: str, name: str) -> str:
        """Return the URL of a database or virtual host, which is made."""
        url = self._parts[maker].url(name)
        self._urls[maker, name] = url
        return url

    def follow(self, block: Block) -> None:
        """Do what a block says."""
        if block.language == 'ini':
            self.write(block)
        elif block.caption == 'prepare':
            self.prepare(block)
        elif block.caption == 'administrator':
            self.administer(block)
        elif block.caption == 'services':
            self.start(block)
        elif block.caption == 'stop':
            _stop([self.services.pop(command)
                   for command, _ in block.commands()])
        else:
            self.type(block)

    def prepare(self, block: Block) -> None:
        """Make what the page tells the servers' administrators to make."""
        for maker, name in MADE.findall(block.text):
            self.make(maker, name)
        for user, password, host in ACCOUNT.findall(block.text):
            made = 'rabbitmqctl add_vhost', host
            place = self._urls[made].rpartition('@')[2]
            # Accounts are the whole broker's, which other tests use too.
            user = f'{user}_{self.id()}'
            servers.shared(servers.RabbitMQ).add_user(
                user, password, parse.unquote(place.partition('/')[2]))
            self._urls[made] = (
                f'rabbit://{user}:{parse.quote(password, safe="")}@{place}')

    def administer(self, block: Block) -> None:
        """Do to databases what the page tells their administrator to do."""
        for _, statement in _STATEMENT.findall(block.text):
            for (maker, name), url in self._urls.items():
                if maker == 'createdb':
                    statement = re.sub(
                        rf'\b{name}\b', url.rpartition('/')[2], statement)
            servers.shared(servers.PostgreSQL).execute(statement)

    def write(self, block: Block) -> None:
        """Write a file, with the URLs that lead to our servers."""
        def replace(match):
            # A name that the page did not make is not there. The driver is
            # the page's.
            url = self._urls[_MAKER[match[1]], match[2]]
            scheme, _, _ = match[0].partition(':')
            return scheme + url[url.index(':'):]

        path = self.directory / block.caption
        path.write_text(URL.sub(replace, block.text))

    def start(self, block: Block) -> None:
        """Start each service as in a terminal of its own."""
        commands = [command for command, _ in block.commands()]
        for command in commands:
            self._started += 1
            self.services[command] = self.process(
                command.split(), name=f'service-{self._started}')
        for command in commands:
            self.services[command].wait_for(r'has started as .*\n')

    def _run(self, command: str, environment: dict[str, str]) -> str:
        """Run a command as a shell does; return what it prints.

        One of our own is run by a process that has imported it already, with
        the output of another one in its place.
        """
        inner = _INNER.search(command)
        if environment or not _OWN.fullmatch(
                _INNER.sub('', command)):
            return self.run_command('sh', '-c', command, env=environment)
        if inner:
            words = self._run(inner[1], {}).split()
            command = _INNER.sub(shlex.join(words), command)
        return self._commands.run(shlex.split(command), self.directory)

    def _stop_all(self) -> None:
        if self.services:
            _stop(list(self.services.values()))

    def type(self, block: Block, **environment: str) -> None:
        """Run commands, which print what the page says that they print."""
        for command, output in block.commands():
            printed = self._run(command, environment)

            self.followed += [command, printed]
            if output.strip():
                self.assertEqual(output.strip(), printed.strip(), command)


def _stop(started):
    """Stop processes at once: one that is idle takes seconds to notice."""
    with futures.ThreadPoolExecutor(len(started)) as pool:
        list(pool.map(lambda process: process.stop(), started))
