# SPDX-License-Identifier: Apache-2.0
"""Base classes of the measured claim stores."""

import abc
import contextlib
import dataclasses
import pathlib
import tempfile

from cellsched.claims import base as claims
from cellsched.conf import loader
from cellsched import exception
from cellsched.wiring import services

#: Ids with the length of Keystone's.
PROJECT, USER = 'a' * 32, 'b' * 32


@dataclasses.dataclass(frozen=True)
class PlainClaim:
    """The amounts that a new consumer claims from a provider."""

    consumer: str
    provider: str
    resources: dict


class Refused(Exception):
    """There is not enough capacity."""


class Kind(abc.ABC):
    """A kind of claim store with its server.

    The address of a server is a dictionary that can be sent to another
    process. ``options`` is the part of a configuration file that configures
    the store.
    """

    @abc.abstractmethod
    def served(self):
        """Return a context manager that starts a server; gives its address.

        The server waits for the disk before it confirms a write.

        :raises tests.integration.serving.NotInstalled: it is not installed
        """

    @abc.abstractmethod
    def version(self, address):
        """Return the name and version of the server."""

    def settle(self, address):
        """Prepare the server after the hosts were created, if necessary."""

    @abc.abstractmethod
    def counting(self, parts):
        """Return the store of a process as a :class:`CountingClaims`."""

    @abc.abstractmethod
    def plain(self, address):
        """Return the plain writer, a :class:`Plain`."""

    @contextlib.contextmanager
    def observer(self, address):
        """Yield a function that measures the usage above the capacity.

        It returns the number of units in one state that clients can see.
        """
        with opened(address) as parts:
            yield lambda: sum(
                max(used - usage.capacity.get(name, 0), 0)
                for usage in parts.claims.usages().usages
                for name, used in usage.used.items())


class Plain(abc.ABC):
    """The same writes as a store's, without this project.

    :ivar lost: failed attempts because another client was faster
    """

    def __init__(self):
        self.lost = 0

    @abc.abstractmethod
    def claim(self, takes):
        """Claim all of them, in one transaction if the server has these.

        :raises Refused: one does not fit
        """

    @abc.abstractmethod
    def release(self, takes):
        """Release them; this is not timed."""

    def close(self):
        """Close the connections of this writer."""


class CountingClaims:
    """A store that counts its batches and lost attempts.

    A call for several requests is one batch. Each request in it that is
    refused on all its hosts counts as refused, too.

    :ivar outcomes: for each batch, True if it was claimed, False if refused

    :param attempts: returns the number of attempts, if the store makes at
        least one for each batch
    :param lost: returns the number of lost and repeated attempts, if it is
        known
    """

    def __init__(self, store, attempts=None, lost=None):
        self._store = store
        self.outcomes = []
        self.refused = 0
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

    def claim_any(self, batches):
        if is_inherited(self._store, 'claim_any'):
            return claims.ClaimStore.claim_any(self, batches)
        [outcome] = self._noted(self._store.claim_any(batches))
        return outcome

    def claim_each(self, requests):
        if is_inherited(self._store, 'claim_each'):
            return claims.ClaimStore.claim_each(self, requests)
        return self._noted(*self._store.claim_each(requests))

    def _noted(self, *outcomes):
        self.outcomes.append(True)
        self.refused += sum(
            getattr(each, 'chosen', None) is None for each in outcomes)
        return outcomes

    def unsuccessful(self):
        """Return the number of attempts that were lost or refused."""
        return self.lost() + self.outcomes.count(False) + self.refused


def is_inherited(store, name):
    """Return whether a store has the method of the base class."""
    # A proxy of the store has another type, but this class.
    return getattr(store.__class__, name) is getattr(claims.ClaimStore, name)


def watch(client_class, notice):
    """Observe the requests and answers of all clients of a class.

    :param client_class: a class with the method ``send``
    :param notice: is called with each request and its answer
    :returns: a function that ends the observation
    """
    send = client_class.send

    def observed(self, request):
        answer = send(self, request)
        notice(request, answer)
        return answer

    client_class.send = observed

    def end():
        client_class.send = send

    return end


@contextlib.contextmanager
def opened(address):
    """Yield the components of a process that uses a server."""
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory) / 'benchmark.conf'
        file.write_text(address['options'], encoding='utf-8')
        parts = services.Components(loader.load(files=[str(file)], dirs=[]))
        try:
            yield parts
        finally:
            parts.close()
