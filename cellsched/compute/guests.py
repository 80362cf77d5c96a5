# SPDX-License-Identifier: Apache-2.0
"""Comparison of the guests on a host with the records of its cell."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from oslo_log import log

from cellsched.clock import Clock
from cellsched.db.cell import on_host
from cellsched.db.cell import services
from cellsched.db import session
from cellsched import exception
from cellsched import objects
from cellsched.virt import base

LOG = log.getLogger(__name__)

#: Guests that the log names at a time.
_NAMED_MAX = 10


class Guests:
    """The guests that the driver of a host runs, and their records.

    :param clock: the clock of the host; without it, that of the database
    :ivar host_id: the uuid that the host keeps; None until it is known
    """

    def __init__(
        self, host: str, database: session.Database,
        driver: base.ComputeDriver, clock: Clock | None = None,
    ) -> None:
        self._host = host
        self._database = database
        self._driver = driver
        self._clock: Clock | session.Database = clock or database
        self.host_id: str | None = None
        #: The uuids that the log has named.
        self._logged: set[str] = set()
        #: Whether the build or the move of a guest is finished, as far as this
        #: process has done them.
        self._arrived: dict[str, bool] = {}

    def spawn(self, instance: objects.Instance, node: str) -> None:
        """Spawn a guest; remember that its server has not arrived.

        Raises the errors of the driver.
        """
        if instance.uuid not in self._driver.list_instances():
            self._arrived[instance.uuid] = False
        self._driver.spawn(instance, node)

    def transfer(
        self, instance: objects.Instance, node: str, disks: Mapping[str, Any],
        progress: Callable[[], None],
    ) -> None:
        """Transfer a guest, as :meth:`spawn` does with another one.

        See :meth:`cellsched.virt.base.ComputeDriver.transfer_disks`.
        """
        self._arrived[instance.uuid] = False
        self._driver.transfer_disks(instance, node, disks, progress)

    def arrive(self, uuid: str) -> None:
        """Remember that the server of a guest has arrived on this host."""
        self._arrived[uuid] = True

    def destroy(self, instance: objects.Instance) -> None:
        """Destroy a guest."""
        self._driver.destroy(instance)
        self._arrived.pop(instance.uuid, None)

    def explain(
        self, uuids: Iterable[str] | None = None
    ) -> list[on_host.GuestRecord]:
        """Return the records of guests.

        :param uuids: by default all guests of this host
        """
        if uuids is None:
            uuids = self._driver.list_instances()
        # The driver has the time of the host's clock, which can be wrong.
        ahead = self._database.now() - self._clock.now()
        times = {uuid: self._driver.spawned_at(uuid) for uuid in uuids}
        with self._database.reader() as connection:
            return on_host.explain(connection, self._host, self.host_id, {
                uuid: time and time + ahead for uuid, time in times.items()},
                dict(self._arrived))

    def fate(self, uuid: str) -> on_host.Fate:
        """Return the relation of the records to one guest."""
        [record] = self.explain([uuid])
        return record.fate

    def is_lost(self, uuid: str) -> bool:
        """Return whether a record says that this host must lose a guest."""
        return self.fate(uuid) is on_host.Fate.LOST

    def report(self, is_idle: Callable[[str], bool]) -> None:
        """Report the guests that no row explains, and rows without a guest.

        An audit reads them from the cell. The log names each of them once.

        :param is_idle: returns whether nothing is done with a server now
        """
        kept = (on_host.Fate.HERE, on_host.Fate.LOST)
        now = self._database.now()
        with self._database.reader() as connection:
            resting = on_host.list_resting(connection, self._host)
        guests = self._driver.list_instances()
        records = [record for record in self.explain(guests)
                   if record.fate not in kept]
        missing = resting.difference(guests)
        if records or missing:
            # Look again: guests and rows change while they are read.
            suspects = {uuid for uuid in (
                *(record.uuid for record in records), *missing)
                if is_idle(uuid)}
            guests = self._driver.list_instances()
            records = [record for record in self.explain(
                suspects.intersection(guests)) if record.fate not in kept]
            with self._database.reader() as connection:
                missing = suspects.difference(guests).intersection(
                    on_host.list_resting(connection, self._host))
        self._log(records, missing)
        with self._database.writer() as connection:
            services.set_guests(
                connection, self._host, on_host.dump(records, missing, now))

    def _log(
        self, records: Sequence[on_host.GuestRecord], missing: set[str]
    ) -> None:
        new = [record for record in records
               if record.uuid not in self._logged]
        for record in new[:_NAMED_MAX]:
            LOG.error(
                'Guest %s runs on this host, and no record explains it: %s; '
                'it is left alone', record.uuid, _reason(record))
        lost = sorted(missing - self._logged)
        if len(new) > _NAMED_MAX:
            LOG.error('%d more guests run on this host without a record; the '
                      'audit lists them', len(new) - _NAMED_MAX)
        if lost:
            LOG.error('Servers of host %s have no guest there: %s',
                      self._host, exception.name_some(lost))
        self._logged = {record.uuid for record in records} | missing


def _reason(record: on_host.GuestRecord) -> str:
    return {
        on_host.Fate.ELSEWHERE: f'its server is on host {record.host}',
        on_host.Fate.UNPLACED: 'its server is on no host',
        on_host.Fate.UNKNOWN: 'the cell does not know its server',
    }[record.fate]
