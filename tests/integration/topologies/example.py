# SPDX-License-Identifier: Apache-2.0
"""A section of the page, with machines on the loopback interface."""

import configparser
import contextlib
import os
import pathlib
import random
import re
import shutil
import socket

import fixtures

from tests.integration import pages
from tests.integration import processes
from tests.integration import serving

PAGE = 'admin/highly-available.rst'

#: The network of the machines on the page. Its place is taken by a network of
#: the loopback interface, so that all ports are the usual ones.
_NETWORK = '10.0.0.'

_ADDRESS = re.compile(r'\b10\.0\.0\.\d+')

#: Directories of a machine, each below one that has the machine's address.
_PATH = re.compile(r'(?<![\w/.])/(?=(etc|run|usr/local|var)/)')


class Example(fixtures.Fixture):
    """The blocks of sections, written as the files of their machines.

    :param sections: their headings on the page; the first section that has a
        block with a caption goes first
    """

    def __init__(self, *sections: str) -> None:
        self.blocks = [block for section in sections
                       for block in pages.blocks(PAGE, section)]

    def _setUp(self) -> None:
        self.directory = processes.make_directory(serving.ROOT)
        self.addCleanup(processes.remove_directory, self.directory)
        # The accounts of the servers look for their files below.
        self.directory.chmod(0o755)
        self._network = self._reserve()

    def address(self, machine: str) -> str:
        """Return the address of a machine, by that on the page."""
        return machine.replace(_NETWORK, self._network)

    def block(self, caption: str) -> pages.Block:
        """Return the first block with a caption."""
        return next(each for each in self.blocks if each.caption == caption)

    def path(self, path: str, machine: str) -> pathlib.Path:
        """Return where a file of a machine is."""
        return self.directory / machine / path.removeprefix('/')

    def write(
        self, path: str, machine: str, first: str = '',
    ) -> pathlib.Path:
        """Write a file of the page on a machine; return where it is.

        :param first: the machine whose file the page shows. A line that has
            its address alone has that of each machine itself
        """
        text = ''.join(
            line.replace(first, machine)
            if {*_ADDRESS.findall(line)} == {first} else line
            for line in self.block(path).text.splitlines(keepends=True))
        found = self.path(path, machine)
        found.parent.mkdir(parents=True, exist_ok=True)
        found.write_text(self.localize(text, machine))
        return found

    def certify(self) -> None:
        """Make the certificates of the page."""
        machine = 'authority'
        here = self.directory / machine
        here.mkdir()
        (here / 'names.ext').write_text(
            self.localize(self.block('names.ext').text, machine))
        for command, _ in self.block('certificates').commands():
            processes.run(['sh', '-c', command], here)

    def copy_certificates(
        self, directory: str, machine: str, user: str = '',
    ) -> None:
        """Copy the certificates into a directory of a machine.

        :param user: the owner of the copies, if the tests are root
        """
        copied = self.path(directory, machine)
        shutil.copytree(self.directory / 'authority', copied)
        if user and os.geteuid() == 0:
            for path in copied.iterdir():
                shutil.chown(path, user)

    def localize(self, text: str, machine: str) -> str:
        """Return a text with the addresses and directories of this network."""
        return _PATH.sub(f'{self.directory / machine}/',
                         text.replace(_NETWORK, self._network))

    def options(self, caption: str) -> dict[str, dict[str, str]]:
        """Return the options of a configuration file of ours, by group."""
        parser = configparser.ConfigParser(
            interpolation=None, default_section='')
        parser.read_string(self.localize(self.block(caption).text, 'control'))
        return {group: dict(parser[group]) for group in parser.sections()}

    def statements(self, caption: str) -> list[str]:
        """Return the statements of a block."""
        return [each for each in self.block(caption).text.split(';\n') if each]

    def _reserve(self) -> str:
        """Return a network that no other test uses until the end."""
        for _ in range(1000):
            second, third = random.SystemRandom().sample(range(1, 255), 2)
            reserved = socket.socket(socket.AF_UNIX)
            with contextlib.suppress(OSError):
                # An abstract name goes with its process.
                reserved.bind(f'\0cellsched-network-{second}-{third}')
                self.addCleanup(reserved.close)
                return f'127.{second}.{third}.'
            reserved.close()
        raise OSError('no network is free')
