# SPDX-License-Identifier: Apache-2.0
"""Identity of a host, and ownership of its name by one agent process."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import json
import os
import pathlib
from typing import Any
import uuid

from oslo_config import cfg
from oslo_log import log

from cellsched.claims.base import Memberships
from cellsched.clock import Clock
from cellsched.compute import guests
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import on_host
from cellsched.db.cell import services
from cellsched.db import session
from cellsched import exception
from cellsched.rpc import compute
from cellsched.virt import base

LOG = log.getLogger(__name__)


class HostName:
    """Prevents two running agents with the same host name.

    A starting agent takes the name at once, because the agent before it is
    usually dead. If that one is alive, its next report detects the change and
    takes the name back; the second agent detects that with its own report and
    stops. An agent without a report for ``down_s`` counts as replaced and
    stops.

    :param down_s: seconds without a report after which a host is down
    """

    def __init__(
        self, host: str, database: session.Database, clock: Clock,
        down_s: float,
    ) -> None:
        self._host = host
        self._database = database
        self._clock = clock
        self._down_s = down_s
        #: The uuid that the host keeps; None if it keeps none.
        self.host_id: str | None = None
        self._run: int | None = None
        self._kept_at = 0.0

    def take(self, write: Callable[..., Any]) -> None:
        """Take the name at the first report; later calls do nothing.

        :param write: runs a query in a transaction, with retries after
            conflicts
        """
        if self._run is None:
            self._kept_at = self._clock.monotonic()
            self._run = write(services.begin, self._host)

    def keep(
        self, seen: services.Seen, write: Callable[..., Any]
    ) -> bool:
        """Check that the name is owned; return whether it was retaken.

        If so, another process may have reported its resources meanwhile.

        :param seen: state of the cell before this report
        :raises cellsched.exception.HostNameTaken: another agent owns the name
        """
        if seen.host_id not in (None, self.host_id):
            raise exception.HostNameTaken(
                host=self._host, by='another machine of this cell')
        if self._run is None:
            return False
        if seen.foreign:
            raise exception.HostNameTaken(
                host=self._host, by='a host of another cell')
        now = self._clock.monotonic()
        is_taken = seen.run != self._run
        if is_taken:
            write(self._take_back, now - self._kept_at)
        self._kept_at = now
        return is_taken

    def _take_back(self, connection: Any, silent_s: float) -> None:
        run = services.lock(connection, self._host)
        assert self._run is not None
        if run is not None and run != self._run:
            if run < self._run or silent_s > self._down_s:
                raise exception.HostNameTaken(
                    host=self._host, by='another agent of this cell')
            LOG.warning('Another agent has started as %s, the name of this '
                        'host; it has to end', self._host)
        services.take(connection, self._host, self._run)


class StateFile:
    """The uuids that a host keeps.

    The file ``compute_id`` has that of the host, and ``compute_nodes`` those
    of nodes without a uuid of their driver, as a JSON object by name.

    :param directory: the value of ``[DEFAULT] state_path``
    """

    def __init__(self, directory: str) -> None:
        self.path = pathlib.Path(directory) / 'compute_id'
        self._nodes = self.path.with_name('compute_nodes')

    def read(self) -> str | None:
        """Return the uuid of the host, or None if there is no file.

        :raises cellsched.exception.ConfigurationInvalid: the file has no uuid,
            or cannot be read
        """
        return self._read(self.path, 'the uuid of this host',
                          lambda text: str(uuid.UUID(text.strip())))

    def write(self, host_id: str) -> None:
        """Write the uuid of the host, as a whole or not at all.

        :raises cellsched.exception.ConfigurationInvalid: the directory cannot
            be written
        """
        self._write(self.path, host_id)

    def read_nodes(self) -> dict[str, str]:
        """Return the uuids of nodes by name; none if there is no file.

        :raises cellsched.exception.ConfigurationInvalid: the file has anything
            else, or cannot be read
        """
        return self._read(
            self._nodes, 'a JSON object of the uuids of nodes by name',
            lambda text: {
                name: str(uuid.UUID(value))
                for name, value in json.loads(text).items()}) or {}

    def write_nodes(self, uuids: Mapping[str, str]) -> None:
        """Write the uuids of nodes by name, as :meth:`write` does."""
        self._write(self._nodes, json.dumps(uuids, sort_keys=True))

    def _read(
        self, path: pathlib.Path, content: str, parse: Callable[[str], Any]
    ) -> Any:
        try:
            return parse(path.read_text(encoding='ascii'))
        except FileNotFoundError:
            return None
        except (OSError, AttributeError, RecursionError, TypeError,
                ValueError):
            raise exception.ConfigurationInvalid(
                field='[DEFAULT] state_path',
                problem=f'{path} cannot be read',
                expected=f'a readable file with {content}') from None

    def _write(self, path: pathlib.Path, text: str) -> None:
        new = path.with_name(f'{path.name}.new')
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with new.open('w', encoding='ascii') as file:
                file.write(f'{text}\n')
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
        except OSError as exc:
            raise exception.ConfigurationInvalid(
                field='[DEFAULT] state_path',
                problem=f'{path} cannot be written: {exc.strerror}',
                expected='a writable directory') from None


class HostIdentity:
    """Finds out at the start of an agent which host of the cell it is.

    The uuid in the state file decides, and not the name. A host that only has
    the name of another one gets neither its nodes nor its servers.

    :param guests_: the guests of this machine
    :param new_uuid: makes the uuid of a new host
    """

    def __init__(
        self, conf: cfg.ConfigOpts, database: session.Database,
        claims: Memberships, driver: base.ComputeDriver, state: StateFile,
        guests_: guests.Guests, new_uuid: Callable[[], str],
    ) -> None:
        self._host = conf.host
        self._adopts = conf.compute.adopt_guests
        self._down_s = conf.service_down_time
        self._database = database
        self._claims = claims
        self._driver = driver
        self._state = state
        self._guests = guests_
        self._new_uuid = new_uuid

    def begin(self) -> str:
        """Return the uuid of this host; check the guests of its machine.

        A host that was renamed keeps its nodes and its claims. So does a host
        without a file, if an older release made its rows.

        :raises cellsched.exception.HostIdentityConflict: another machine has
            the name or the uuid, or the machine has guests of another host;
            names the guests, the host and the option that adopts them
        :raises cellsched.exception.ConfigurationInvalid: the state file cannot
            be read or written
        """
        stored = self._state.read()
        with self._database.reader() as connection:
            known = services.is_known(connection, self._host)
            recorded = services.look(connection, self._host).host_id
            held = compute_nodes.list_held(connection, self._host)
            former = stored and services.host_of(connection, stored)
        host_id = stored or self._first_uuid(recorded, held)
        self._check_name(host_id, recorded, held)
        self._guests.host_id = host_id
        records = self._guests.explain()
        placed = [record for record in records
                  if record.fate is on_host.Fate.ELSEWHERE]
        unknown = [record.uuid for record in records
                   if record.fate is on_host.Fate.UNKNOWN]
        if former not in (None, self._host) and not known:
            assert former is not None
            self._check_former(former, placed)
            self._rename(former, host_id)
        elif placed and not self._adopts:
            raise self._refusal(
                [record.uuid for record in placed],
                'the cell places on host '
                + ', '.join(sorted({str(each.host) for each in placed})))
        elif placed:
            host_id = self._adopt(placed, host_id, alone=not known)
        elif unknown and not known and not self._adopts:
            raise self._refusal(unknown, 'its cell does not know')
        if host_id != stored:
            self._state.write(host_id)
        self._take_name(host_id)
        self._guests.host_id = host_id
        return host_id

    def _take_name(self, host_id: str) -> None:
        with self._database.writer() as connection:
            owner = services.identify(
                connection, self._new_uuid(), self._host, compute.TOPIC,
                self._database.now(), compute.SERVICE_VERSION, host_id)
        if owner != host_id:
            raise self._taken()

    def _first_uuid(
        self, recorded: str | None, held: Sequence[compute_nodes.HeldNode]
    ) -> str:
        """Return the uuid of a host that has no state file yet."""
        if recorded is not None:
            raise self._conflict(
                f'the host of this name has the uuid {recorded}, and '
                f'{self._state.path} is missing',
                'another name on another machine; on the same machine, the '
                'file with that uuid; or the old service to be deleted')
        # An older release has kept no uuid.
        return held[0].uuid if len(held) == 1 else self._new_uuid()

    def _check_name(
        self, host_id: str, recorded: str | None,
        held: Sequence[compute_nodes.HeldNode],
    ) -> None:
        uuids = [each.uuid for each in held]
        other = recorded or (
            uuids[0] if len(uuids) == 1 and host_id not in uuids else host_id)
        if other != host_id:
            raise self._conflict(
                f'the host of this name has the uuid {other}, and this '
                f'machine has {host_id} in {self._state.path}',
                'another name, or the service of the other machine to be '
                'deleted')

    def _check_former(
        self, former: str, placed: Sequence[on_host.GuestRecord]
    ) -> None:
        """Check that this machine had another name before."""
        with self._database.reader() as connection:
            servers = on_host.count(connection, former)
            up = services.is_up(
                connection, former, self._database.now(), self._down_s)
        if up:
            raise self._conflict(
                f'host {former} has the same uuid in its state file, and is '
                'up', 'a state file that was not copied, or an agent of host '
                f'{former} that is stopped or forced down')
        if (servers or placed) and not self._adopts:
            raise self._conflict(
                f'this machine was host {former}, which has {servers} servers',
                'the former name, or [compute] adopt_guests = true; guests: '
                + (exception.name_some(each.uuid for each in placed)
                   or 'none'))

    def _adopt(
        self, placed: Sequence[on_host.GuestRecord], host_id: str, alone: bool
    ) -> str:
        """Place guests of other hosts here; return the uuid of this host.

        A new host that has the guests of one host is that host under another
        name, and takes its nodes.
        """
        hosts = sorted({str(each.host) for each in placed})
        with self._database.reader() as connection:
            down = {host for host in hosts if not services.is_up(
                connection, host, self._database.now(), self._down_s)}
            texts = services.list_guests(connection)
            seen = services.look(connection, hosts[0])
            held = compute_nodes.list_held(connection, hosts[0])
        for record in placed:
            missing = on_host.load(texts.get(str(record.host))).missing
            if record.host not in down and record.uuid not in missing:
                raise self._conflict(
                    f'guest {record.uuid} is to be adopted from host '
                    f'{record.host}, which is up and may run it too',
                    f'an agent of host {record.host} that is stopped or '
                    'forced down')
        if alone and len(hosts) == 1 and hosts[0] in down and held:
            taken = seen.host_id or held[0].uuid
            self._rename(hosts[0], taken)
            return taken
        for record in placed:
            node = self._node_of(record)
            LOG.warning('Adopting the server from host %s', record.host,
                        instance_uuid=record.uuid)
            with self._database.writer() as connection:
                on_host.adopt(connection, record, self._host, node,
                              self._database.now())
        return host_id

    def _node_of(self, record: on_host.GuestRecord) -> str:
        nodes = sorted(self._driver.nodes())
        if record.node in nodes:
            return str(record.node)
        if len(nodes) == 1:
            return nodes[0]
        raise self._conflict(
            f'guest {record.uuid} is to be adopted from node {record.node}, '
            'which this host does not have', 'the same node')

    def _rename(self, former: str, host_id: str) -> None:
        """Rename the rows of this host's former name.

        The rules of server groups compare the names of hosts. The claim store
        comes first: after a failure, the cell's rows still have the former
        name, and the next start repeats both.
        """
        with self._database.reader() as connection:
            names = self._names(
                compute_nodes.list_held(connection, former), former, host_id)
            taken = {row.node for row in compute_nodes.list_held(
                connection, self._host)}.intersection(names.values())
        if taken:
            # An older release has reported them.
            raise self._conflict(
                'another machine has taken this name, and has the nodes '
                + ', '.join(sorted(taken)),
                'another name, or that host to be deleted')
        LOG.warning('Host %s of the cell is named %s now', former, self._host)
        self._claims.rename_host(former, self._host)
        with self._database.writer() as connection:
            now = self._database.now()
            rows = compute_nodes.list_held(connection, former)
            try:
                services.rename(
                    connection, former, self._host, now, up=self._adopts)
                for held in rows:
                    compute_nodes.take(connection, held, self._host,
                                       names.get(held.uuid, held.node), now)
            except exception.HostNameTaken:
                raise self._taken() from None

    def _names(
        self, rows: Sequence[compute_nodes.HeldNode], former: str,
        host_id: str,
    ) -> dict[str, str]:
        """Return the present names of a host's nodes, by uuid.

        A node without a uuid of its driver can have the host's name.
        """
        nodes = self._driver.nodes()
        new = [name for name in nodes.keys() - {row.node for row in rows}
               if nodes[name].uuid is None]
        names = {row.uuid: row.node for row in rows}
        for row in rows:
            if row.node not in nodes and len(new) == 1 and (
                    row.uuid == host_id or row.node == former):
                [names[row.uuid]] = new
        return names

    def _taken(self) -> exception.HostIdentityConflict:
        return self._conflict(
            'another machine has taken this name meanwhile', 'another name')

    def _refusal(
        self, uuids: Sequence[str], problem: str
    ) -> exception.HostIdentityConflict:
        return self._conflict(
            f'this machine has guests that {problem}: '
            f'{exception.name_some(uuids)}',
            'the former name of the host, a machine without guests, or '
            '[compute] adopt_guests = true')

    def _conflict(
        self, problem: str, expected: str
    ) -> exception.HostIdentityConflict:
        return exception.HostIdentityConflict(
            host=self._host, problem=problem, expected=expected)
