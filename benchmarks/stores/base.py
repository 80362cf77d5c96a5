# SPDX-License-Identifier: Apache-2.0
"""The kinds of claim stores as they are measured."""

import abc
import contextlib
import dataclasses
import pathlib
import tempfile

from cellsched.conf import loader
from cellsched import exception
from cellsched.wiring import services as assembly

#: Whom all is for; ids of the length that Keystone's have.
PROJECT, USER = 'a' * 32, 'b' * 32


@dataclasses.dataclass(frozen=True)
class Take:
    """The amounts that a new consumer takes of a provider."""

    consumer: str
    provider: str
    resources: dict


class Refused(Exception):
    """There is no room."""


class Kind(abc.ABC):
    """A kind of claim store, and its server.

    What a server's processes are told by is its address: a dictionary that
    can be sent to another process, with ``options``, the part of a
    configuration file that a store is made from.
    """

    #: How the same writes are done without this project.
    plain_by: str

    @abc.abstractmethod
    def served(self):
        """Return a context manager that starts a server; gives its address.

        It waits for the disk before it says that something is done.

        :raises tests.integration.serving.NotInstalled: it is not there
        """

    @abc.abstractmethod
    def version(self, address):
        """Return the name and the version of the server."""

    def settle(self, address):
        """Do what is to be done once hosts are known, if anything."""

    @abc.abstractmethod
    def counting(self, parts):
        """Return the store of a process, as a :class:`CountingClaims`."""

    @abc.abstractmethod
    def plain(self, address):
        """Return what does the same writes without this project."""

    @contextlib.contextmanager
    def observer(self, address):
        """Yield a function that looks at what is taken above what there is.

        It returns how many units that is, in one state that others can see.
        """
        with opened(address) as parts:
            yield lambda: sum(
                max(used - usage.capacity.get(name, 0), 0)
                for usage in parts.claims.usages().usages
                for name, used in usage.used.items())


class Plain(abc.ABC):
    """The same writes as a store's, without this project.

    :ivar lost: how many attempts were in vain, because others were faster
    """

    def __init__(self):
        self.lost = 0

    @abc.abstractmethod
    def take(self, takes):
        """Take all of them, in one transaction where there are such.

        :raises Refused: one has no room
        """

    @abc.abstractmethod
    def give_back(self, takes):
        """Give back what was taken, which is not timed."""

    def close(self):
        """Close what it has opened."""


class CountingClaims:
    """A store that counts what it was asked to take.

    :ivar outcomes: whether each batch was taken; the others were refused

    :param attempts: returns how often it has asked its server, where that is
        once for each batch at least
    :param lost: returns how many attempts were in vain and made again, where
        that is known
    """

    def __init__(self, store, attempts=None, lost=None):
        self._store = store
        self.outcomes = []
        self.lost = lost or (lambda: attempts() - len(self.outcomes))

    def __getattr__(self, name):
        return getattr(self._store, name)

    def claim(self, batch):
        try:
            new = self._store.claim(batch)
        except exception.ClaimRefused:
            self.outcomes.append(False)
            raise
        self.outcomes.append(True)
        return new

    def vain(self):
        """Return how many attempts were in vain, or refused."""
        return self.lost() + self.outcomes.count(False)


def watch(client_class, notice):
    """Have all clients of a class tell what they send, and the answer.

    What is returned ends that.

    :param client_class: has the method ``send``
    :param notice: is called with both
    """
    send = client_class.send

    def told(self, request):
        answer = send(self, request)
        notice(request, answer)
        return answer

    client_class.send = told

    def end():
        client_class.send = send

    return end


@contextlib.contextmanager
def opened(address):
    """Yield the parts of a process, configured for a server."""
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory) / 'benchmark.conf'
        file.write_text(address['options'], encoding='utf-8')
        parts = assembly.Parts(loader.load(files=[str(file)], dirs=[]))
        try:
            yield parts
        finally:
            parts.close()
