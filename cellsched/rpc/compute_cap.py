# SPDX-License-Identifier: Apache-2.0
"""RPC versions of compute agents: ``[upgrade_levels] compute``."""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import threading

from oslo_log import log

from cellsched import clock
from cellsched import exception
from cellsched.rpc import compute
from cellsched.rpc import versions

LOG = log.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Lowest:
    """The lowest version of the compute services that could be asked for it.

    :param version: None where no service told
    :param missing: cells that did not answer
    """

    version: int | None = None
    missing: frozenset[str] = frozenset()


class _Known:
    """The versions found since somebody asked for them."""

    lowest = Lowest()


class ComputeCap:
    """The newest version of messages that compute agents may be sent.

    To be called, by any thread. With ``auto`` it is what every agent
    understands, found out by the first call. That waits for cells only as
    long as one of them may take.

    :param pin: as it is in the configuration
    :param ask: finds the lowest version of the services
    :param history: versions of messages by those of services
    :param make_lock: see :meth:`cellsched.clock.Clock.lock`
    """

    def __init__(
        self, pin: str | None, ask: Callable[[], Lowest],
        history: Mapping[int, str] = compute.SERVICE_VERSIONS,
        make_lock: Callable[[], clock.Lock] = threading.Lock,
    ) -> None:
        self._pin = pin if pin in (None, versions.AUTO) else versions.read_pin(
            compute.TOPIC, compute.VERSION, pin, [versions.AUTO])
        self._ask = ask
        self._history = history
        self._lock = make_lock()
        self._known = _Known()

    def __call__(self) -> str | None:
        """Return the version; the newest one while no service is known.

        :raises cellsched.exception.ServiceTooOld: every agent is newer than
            what is known here
        """
        if not self._is_automatic():
            return self._pin
        known = self._known
        if known.lowest.version is None:
            with self._lock:
                if known.lowest.version is None:
                    self._find_out(known)
        return self._message_version(known.lowest.version)

    def periodic(
        self, interval_s: float
    ) -> list[tuple[Callable[[], None], float]]:
        """Return what a service is to do in between, and how often."""
        if not self._is_automatic():
            return []
        return [(self.ask_the_missing, max(interval_s, 1.0))]

    def ask_the_missing(self) -> None:
        """Ask again if some cells did not answer; may lower the version.

        It is not raised, as others may be missing now.
        """
        known = self._known
        if known.lowest.missing:
            with self._lock:
                self._find_out(known)

    def forget(self) -> None:
        """Have the next call find out anew.

        May be called by a signal handler, so it waits for no lock.
        """
        self._known = _Known()

    def _is_automatic(self) -> bool:
        return self._pin == versions.AUTO

    def _find_out(self, known: _Known) -> None:
        found, before = self._ask(), known.lowest.version
        lowest = min(filter(None, (found.version, before)), default=None)
        known.lowest = dataclasses.replace(found, version=lowest)
        if lowest is not None and lowest != before:
            LOG.info('The oldest compute service that answers has version %d; '
                     'the newest that is known here is %d',
                     lowest, max(self._history))

    def _message_version(self, lowest: int | None) -> str:
        newest = max(self._history)
        if lowest is None:
            return self._history[newest]
        if lowest > newest:
            raise exception.ServiceTooOld(known=newest, version=lowest)
        return self._history[max(
            version for version in self._history if version <= lowest)]
