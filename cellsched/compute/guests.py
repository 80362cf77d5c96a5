# SPDX-License-Identifier: Apache-2.0
"""Comparison of the guests on a host with the records of its cell."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import pathlib
from typing import Any

from oslo_log import log
from oslo_utils import uuidutils

from cellsched.clock import Clock
from cellsched.compute import places
from cellsched.db.cell import instance_children
from cellsched.db.cell import on_host
from cellsched.db.cell import services
from cellsched.db import session
from cellsched import exception
from cellsched.hardware import documents
from cellsched.hardware.instance import numa_topology
from cellsched.hardware.instance import pci_devices
from cellsched import migrations
from cellsched import objects
from cellsched.virt import base

LOG = log.getLogger(__name__)

#: Guests that the log names at a time.
_NAMED_MAX = 10


class GuestFiles:
    """The guests of unfinished builds and moves, as files of the host.

    These are files and not rows: a database restored from a backup shows
    finished builds as unfinished, and the agent would delete their guests.

    :param directory: the value of ``[DEFAULT] state_path``; None for no files
    """

    def __init__(self, directory: str | None = None) -> None:
        self._path = directory and pathlib.Path(directory) / 'unfinished'

    def list_all(self) -> list[str]:
        """Return the uuids of the guests."""
        if not self._path or not self._path.is_dir():
            return []
        return [each.name for each in self._path.iterdir()]

    def add(self, uuid: str) -> None:
        """Add a guest before it is spawned."""
        if self._path and uuidutils.is_uuid_like(uuid):
            # A guest without a file is kept.
            with self._logged_errors(uuid):
                path = self._path / uuid
                try:
                    open(path, 'wb').close()
                except FileNotFoundError:
                    self._path.mkdir(parents=True, exist_ok=True)
                    open(path, 'wb').close()

    def remove(self, uuid: str) -> None:
        """Remove a guest; one that is not there is ignored."""
        if self._path and uuidutils.is_uuid_like(uuid):
            # The row of a server that has arrived outweighs its file.
            with self._logged_errors(uuid):
                (self._path / uuid).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _logged_errors(self, uuid: str) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            LOG.warning('Could not change the file of the guest in %s: %s',
                        self._path, exc.strerror, instance_uuid=uuid)


class Guests:
    """The guests that the driver of a host runs, and their records.

    :param clock: the clock of the host
    :param unfinished: the guests of earlier processes that have not arrived
    :param places_: the NUMA cells and devices of the guests; by default the
        host has none
    :ivar host_id: the uuid that the host keeps; None until it is known
    """

    def __init__(
        self, host: str, database: session.Database,
        driver: base.ComputeDriver, clock: Clock,
        unfinished: GuestFiles | None = None,
        places_: places.Places | None = None,
    ) -> None:
        self._host = host
        self._database = database
        self._driver = driver
        self._clock = clock
        self.host_id: str | None = None
        #: The uuids that the log has named.
        self._logged: set[str] = set()
        self._unfinished = unfinished or GuestFiles()
        #: Whether the build or the move of a guest is finished, as far as this
        #: host knows.
        self._arrived = dict.fromkeys(self._unfinished.list_all(), False)
        self._places = places_ or places.Places()

    def place(
        self, uuid: str, node: str, spec: objects.RequestSpec | None = None,
        consumer: str = '',
    ) -> None:
        """Give a guest the cells and devices that its server asks for.

        A guest that has them on this node keeps them. The cell keeps the
        request for later moves of the server.

        :param spec: the request of the server; None to read it from the cell
        :param consumer: the consumer of its claims, if it is another one
        :raises cellsched.exception.BuildFailed: they do not fit
        """
        if spec is None:
            with self._database.reader() as connection:
                kept = instance_children.get_hardware(connection, uuid)
            request = places.request_of(*kept)
        else:
            request = spec.hardware()
        if request is None:
            return
        # A process that withdraws claims transfers them for a moment.
        self._places.place(uuid, node, request, list(dict.fromkeys(
            [consumer or uuid, *migrations.consumers([uuid])])))
        if spec is not None:
            with self._database.writer() as connection:
                instance_children.set_hardware(
                    connection, uuid,
                    request.topology and documents.written_guest(
                        request.topology),
                    documents.written_requests(request.devices)
                    if request.devices else None)

    def free_place(self, uuid: str) -> None:
        """Free the cells and devices of a build that ends on this host."""
        self._places.remove(uuid)

    def list_unplaced(self) -> list[str]:
        """Return the uuids of guests whose cells or devices are not known.

        Their files are lost.
        """
        if not self._places.has_hardware:
            return []
        unplaced = set(self._driver.list_instances()).difference(
            self._places.list_all())
        with self._database.reader() as connection:
            return instance_children.list_with_hardware(
                connection, sorted(unplaced))

    def list_vanished(self) -> list[str]:
        """Return the uuids that have cells or devices and no guest."""
        placed = self._places.list_all()
        return sorted(set(placed).difference(
            self._driver.list_instances())) if placed else []

    def spawn(
        self, instance: objects.Instance, node: str, consumer: str = ''
    ) -> None:
        """Spawn a guest; remember that its server has not arrived.

        Raises the errors of the driver.

        :param consumer: the consumer of its claims, if it is another one
        """
        if instance.uuid not in self._driver.list_instances():
            self._depart(instance.uuid)
        self._driver.spawn(self._with_place(instance, consumer), node)

    def transfer(
        self, instance: objects.Instance, node: str, disks: Mapping[str, Any],
        progress: Callable[[], None], consumer: str = '',
    ) -> None:
        """Transfer a guest to this host; its server has not arrived yet.

        See :meth:`cellsched.virt.base.ComputeDriver.transfer_disks`.
        """
        self._depart(instance.uuid)
        self._driver.transfer_disks(
            self._with_place(instance, consumer), node, disks, progress)

    def finish_migration(
        self, instance: objects.Instance, node: str, consumer: str = ''
    ) -> None:
        """Start a guest that was transferred to this host.

        Raises the errors of the driver.
        """
        self._driver.finish_migration(
            self._with_place(instance, consumer), node)

    def _with_place(
        self, instance: objects.Instance, consumer: str
    ) -> objects.Instance:
        """Return a server with its cells and devices, for the driver."""
        place = self._places.get(instance.uuid)
        placed: objects.Instance = instance.obj_clone()
        placed.numa_topology = numa_topology(
            place.cells, place.emulator_policy)
        placed.pci_devices = pci_devices(place.devices)
        if self._driver.reads_allocations:
            placed.allocations = {
                provider: {'resources': dict(amounts)} for provider, amounts
                in self._places.claimed(
                    [consumer or instance.uuid]).items()}
        return placed

    def _depart(self, uuid: str) -> None:
        self._unfinished.add(uuid)
        self._arrived[uuid] = False

    def arrive(self, uuid: str) -> None:
        """Remember that the server of a guest has arrived on this host."""
        self._arrived[uuid] = True
        self._unfinished.remove(uuid)

    def destroy(self, instance: objects.Instance) -> None:
        """Destroy a guest."""
        self._driver.destroy(instance)
        self._places.remove(instance.uuid)
        self._arrived.pop(instance.uuid, None)
        self._unfinished.remove(instance.uuid)

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

        It also reports guests that use other CPUs, pages and devices than
        their servers claim.

        An audit reads them from the cell. The log names each of them once.

        :param is_idle: returns whether no message is working on a server
        """
        explained = (on_host.Fate.HERE, on_host.Fate.LOST)
        now = self._database.now()
        with self._database.reader() as connection:
            resting = on_host.list_resting(connection, self._host)
        for uuid in resting.intersection(self._unfinished.list_all()):
            # The agent was killed before it had removed the file.
            self.arrive(uuid)
        guests = self._driver.list_instances()
        records = [record for record in self.explain(guests)
                   if record.fate not in explained]
        missing = resting.difference(guests)
        if records or missing:
            # Read again: guests and rows change while they are read.
            suspects = {uuid for uuid in (
                *(record.uuid for record in records), *missing)
                if is_idle(uuid)}
            guests = self._driver.list_instances()
            records = [record for record in self.explain(
                suspects.intersection(guests))
                if record.fate not in explained]
            with self._database.reader() as connection:
                missing = suspects.difference(guests).intersection(
                    on_host.list_resting(connection, self._host))
        self._log(records, missing)
        misplaced: dict[str, dict[str, int]] = {}
        try:
            misplaced = self._places.misplaced(resting)
        except exception.DATABASE_UNAVAILABLE as exc:
            # The other guests are reported without the claim store.
            LOG.warning('Could not compare the CPUs, pages and devices of '
                        'guests with their claims: %s', exc)
        with self._database.writer() as connection:
            services.set_guests(connection, self._host, on_host.dump(
                records, missing, now, misplaced))

    def _log(
        self, records: Sequence[on_host.GuestRecord], missing: set[str]
    ) -> None:
        new = [record for record in records
               if record.uuid not in self._logged]
        for record in new[:_NAMED_MAX]:
            LOG.error(
                'No record explains guest %s on this host: %s; the agent does '
                'not change it', record.uuid, _reason(record))
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
