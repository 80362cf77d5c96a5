# SPDX-License-Identifier: Apache-2.0
"""Recordings of decisions, which ``cellsched replay`` decides again.

A recording has the requests, the hosts that each decision read, and the
answers. Each process writes files of its own: ``FILE.0.000001`` is the first
one of the first process. The oldest file is removed if all together are too
large.

A file has lines of JSON, compressed by gzip. Its first line has the version of
the format and the configuration. The key ``hosts`` begins a line with a change
of the host table (see :mod:`~cellsched.scheduler.recorded_table`). Any other
line is a decision. The first changes of a file add all hosts, so that each
file can be read alone. Each write is a member of the gzip file, with its own
checksum.

Neither the tokens of requests nor their networks and security groups are
recorded. Values whose names look secret are masked.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import fcntl
import functools
import gzip
import heapq
import inspect
import itertools
import json
import logging
import math
import operator
import os
import pathlib
import re
import threading
from typing import Any
from typing import NamedTuple
import zlib

from oslo_log import log
from oslo_serialization import jsonutils

from cellsched import exception
from cellsched.hosts import columns
from cellsched.hosts.snapshot import Changes
from cellsched.hosts.snapshot import Snapshot
from cellsched.hosts.table import HostTable
from cellsched.hosts import view
from cellsched import objects
from cellsched.observability.conditions import Conditions
from cellsched.observability import metrics
from cellsched.observability.metrics import Metrics
from cellsched.scheduler.recorded_table import changes_of
from cellsched.scheduler.recorded_table import StateDecoder
from cellsched.scheduler.recorded_table import StateEncoder

LOG = log.getLogger(__name__)

#: The name and the version of the format. A reader reads this version only.
FORMAT, VERSION = 'cellsched-recording', 2

#: The beginning of a compressed file, and of a line with a change of hosts.
_MAGIC = b'\x1f\x8b'
_HOSTS = b'{"hosts":'

#: Seconds between two writes.
SPACING_S = 0.5

#: Bounds of what waits for a write: decisions, and versions of the host table,
#: which hold memory.
WAITING_MAX = 2000
VERSIONS_MAX = 32

#: The files of one process, of which the oldest is removed.
_FILES = 4

#: Bytes of the longest line that is read.
_LINE_MAX = 2 ** 28

#: The numbers in the names of files: of the process, and of the file.
_NUMBERS = re.compile(r'\.(\d{1,6})\.(\d{6,12})')


class Basis(NamedTuple):
    """The input of the last selection for a request.

    :param position: the number of overlay entries
    :param discounted: the overlay entries that the selection ignored
    :param request: the request, with the known members of its group
    :param asked: the instances whose locations were asked for
    :param nodes: the nodes of instances that have one
    :param kept: the nodes of instances that keep their claims
    :param held: for these, the amounts by provider
    :param refusals: earlier refusals; see :class:`.ClaimRefusals`
    :param seed: the seed of random selections, if there were any
    :param start: see :class:`.SelectionPolicy`
    :param closed: cells that take no servers, beyond those of the table
    """

    snapshot: Snapshot
    position: int
    now: float
    request: objects.RequestSpec
    discounted: Sequence[tuple[int, Changes]] | None = None
    asked: Iterable[str] = ()
    nodes: Mapping[str, str] = {}
    kept: Mapping[str, str] = {}
    held: Mapping[str, Sequence[tuple[str, Mapping[str, int]]]] = {}
    refusals: Mapping[str, Any] | None = None
    seed: int | None = None
    start: float = 0.0
    closed: Sequence[str] = ()

    @classmethod
    def of(
        cls, hosts: view.Hosts, request: objects.RequestSpec, **more: Any
    ) -> 'Basis':
        """Return the basis of a selection among hosts.

        :param more: the other fields
        """
        read = hosts.columns
        return cls(read.snapshot, read.position, hosts.now, request,
                   read.discounted, **more)

    @classmethod
    def now_of(
        cls, table: HostTable, now: float, request: objects.RequestSpec
    ) -> 'Basis':
        """Return the basis of a request that is refused before a selection."""
        snapshot = table.snapshot
        return cls(snapshot, len(snapshot.overlay), now, request)


class MadeDecision(NamedTuple):
    """A decision that is to be recorded; its objects must not change.

    A recording leaves out what is empty, zero or false.

    :param places: the selections for each instance; empty after a failure
    :param passed: the nodes whose claims were refused after the selection
    :param full: names of hosts that are full for the group of the request
    :param silent: names of cells that did not answer
    :param left_out: why known hosts were not evaluated, as plain data
    :param way: how the scheduler decided; empty if it can be replayed
    """

    basis: Basis
    request_id: str | None
    uuids: Sequence[str]
    alternates: int = 0
    claims: bool = False
    places: Sequence[Sequence[Any]] = ()
    error: exception.CellschedException | None = None
    passed: Sequence[str] = ()
    full: Sequence[str] = ()
    silent: Sequence[str] = ()
    left_out: Sequence[Sequence[Any]] = ()
    way: str = ''


class Place(NamedTuple):
    """The host of a server, with the uuids of nodes, and of the cell."""

    node: str
    host: str
    nodename: str
    cell: str
    alternates: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Answer:
    """The answer to a request.

    :param places: the host of each server; empty if the request failed
    :param error: the class of the error; empty if there was none
    :param reason: the text of the error
    :param rejections: hosts by reason, as :class:`.NoValidHost` has them
    """

    places: Sequence[Place]
    error: str = ''
    reason: str = ''
    rejections: Sequence[Mapping[str, Any]] = ()

    @classmethod
    def of(
        cls, places: Iterable[Sequence[objects.Selection]],
        error: exception.CellschedException | None = None,
    ) -> 'Answer':
        """Return the answer with these selections, or with this error."""
        if error is not None:
            return cls(
                [], exception.kind_of(error),
                str(error.kwargs.get('reason') or error.format_message()),
                [*(error.kwargs.get('rejections') or ())])
        return cls([
            Place(first.compute_node_uuid, first.service_host, first.nodename,
                  first.cell_uuid, [each.compute_node_uuid for each in rest])
            for first, *rest in places])

    @property
    def hosts(self) -> list[str]:
        """The name of the host of each server."""
        return [place.host for place in self.places]


@dataclasses.dataclass(eq=False)
class Entry:
    """A recorded decision.

    :param header: the configuration, and what wrote the file
    :param data: the fields of :class:`Basis` and :class:`MadeDecision`
    :param table: the hosts at that time, until the next entry is read; None
        if they are not read
    :param process: the number of the process that decided
    """

    header: Mapping[str, Any]
    data: Mapping[str, Any]
    table: HostTable | None = None
    process: int = 0

    def __post_init__(self) -> None:
        data = self.data
        #: The time of the decision, in seconds since the epoch.
        self.at: float = data['at']
        #: The servers of the request.
        self.uuids: Sequence[str] = data['uuids']
        self.answer = Answer(
            [Place(*each) for each in data['places']],
            *(data['error'] or ()))

    @functools.cached_property
    def request(self) -> objects.RequestSpec:
        """The request, as the scheduler decided on it."""
        return objects.RequestSpec.obj_from_primitive(self.data['request'])

    def hosts(
        self, moved: Iterable[tuple[int, Changes]] = ()
    ) -> view.Hosts:
        """Return the hosts as the decision read them.

        :param moved: changes of rows to apply besides
        """
        assert self.table is not None, 'read with tables'
        hosts = self.table.view(self.at, self.data['nodes'])
        hosts.columns.discount([
            *changes_of(self.data['discounted'] or ()),
            *((row, view.inverse(changed)) for row, changed in moved)])
        return hosts


#: The recorded fields of objects, by name; all fields of other objects.
_FIELDS: Mapping[str | None, frozenset[str]] = {
    name: frozenset(fields.split()) for name, fields in (
        ('ComputeNode', 'host hypervisor_hostname uuid'),
        ('CellMapping', 'id uuid name disabled'),
        ('Flavor', 'id name flavorid vcpus memory_mb root_gb ephemeral_gb '
         'swap extra_specs is_public disabled'),
        ('ImageMeta', 'id name container_format disk_format min_ram min_disk '
         'size properties'),
        ('RequestSpec', 'availability_zone flavor force_hosts force_nodes '
         'ignore_hosts image instance_group instance_uuid is_bfv limits '
         'migration_uuid num_instances numa_topology pci_requests project_id '
         'request_level_params requested_destination requested_resources '
         'retry scheduler_hints user_id'))}

_NAME, _DATA = 'nova_object.name', 'nova_object.data'

_SECRET = re.compile(
    r'passw|passphrase|secret|token|credential|private_?key|user_?data|'
    r'injected|admin_?pass|api_?key', re.IGNORECASE)

_MASK = '***'

#: The fields that a decision without them has.
_EMPTY = {
    each.name: each.default for kind in (Basis, MadeDecision)
    for each in inspect.signature(kind).parameters.values()
    if each.default is not each.empty}

#: Fields that are recorded under another name, or as changes of the hosts.
_UNRECORDED = frozenset({'basis', 'snapshot', 'position', 'now', 'closed'})


@functools.lru_cache(4096)
def _is_secret(name: str) -> bool:
    return _SECRET.search(name) is not None


def _without_secrets(value: Any) -> Any:
    """Return plain data with the recorded fields of objects only."""
    if isinstance(value, dict):
        fields = _FIELDS.get(value.get(_NAME))
        if fields is not None:
            value = {**value, _DATA: {
                name: each for name, each in value[_DATA].items()
                if name in fields}}
        return {name: _MASK if _is_secret(name) else _without_secrets(each)
                for name, each in value.items()
                if name != 'nova_object.changes'}
    if isinstance(value, (list, tuple)):
        return [_without_secrets(each) for each in value]
    return value


def _entry(decided: MadeDecision) -> dict[str, Any]:
    """Return a decision as plain data."""
    basis, answer = decided.basis, Answer.of(decided.places, decided.error)
    found = {
        **basis._asdict(), **decided._asdict(), 'at': basis.now,
        'request': _without_secrets(basis.request.obj_to_primitive()),
        'asked': sorted(basis.asked),
        'places': answer.places,
        'error': answer.error and (
            answer.error, answer.reason, answer.rejections)}
    return {name: value for name, value in found.items()
            if value and name not in _UNRECORDED}


@dataclasses.dataclass(eq=False)
class Recorder:
    """Writes decisions to files, in a thread that calls :meth:`flush`.

    :param path: the beginning of the names of the files
    :param bytes_max: the most bytes of the files of this process
    :param header: returns the configuration, as plain data
    """

    path: pathlib.Path
    bytes_max: int
    header: Callable[[], Mapping[str, Any]]
    monotonic: Callable[[], float]
    metrics: Metrics = dataclasses.field(default_factory=Metrics)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._waiting = collections.deque[MadeDecision]()
        self._dropped = 0
        self._conditions = Conditions(LOG, self.monotonic)
        self._overloaded = f'Decisions are not recorded to {self.path}'
        self._failing = f'Decisions cannot be recorded to {self.path}'
        self._files: _Files | None = None
        self._encoder = StateEncoder()

    def check(self) -> None:
        """Check that files can be written.

        :raises cellsched.exception.ConfigurationInvalid: the directory does
            not exist, or cannot be written
        """
        directory = self.path.parent
        if not directory.is_dir():
            problem = f'{directory} is not a directory'
        elif not os.access(directory, os.W_OK | os.X_OK):
            problem = f'the directory {directory} cannot be written'
        elif self.path.is_dir():
            problem = f'{self.path} is a directory'
        else:
            return
        raise exception.ConfigurationInvalid(
            field='[scheduler] record', problem=problem,
            expected='the name of a file in a directory that the scheduler '
                     'can write')

    def add(self, decided: MadeDecision) -> None:
        """Queue a decision for the next write; never blocks."""
        version = decided.basis.snapshot.version
        with self._lock:
            waiting = self._waiting
            if waiting and (
                    len(waiting) >= WAITING_MAX or version
                    - waiting[0].basis.snapshot.version > VERSIONS_MAX):
                self._dropped += 1
                return
            waiting.append(decided)

    def flush(self) -> None:
        """Write the waiting decisions; never raises."""
        with self._flushing:
            with self._lock:
                batch, self._waiting = self._waiting, collections.deque()
                dropped, self._dropped = self._dropped, 0
            if dropped:
                self._conditions.occur(
                    self._overloaded,
                    f'{dropped} came faster than they can be written')
                self.metrics.add(metrics.RECORDED, ('dropped',), dropped)
            else:
                self._conditions.end(self._overloaded)
            if batch:
                self._write(batch)

    def follow_options(self) -> None:
        """Begin a new file, because options have changed.

        The waiting decisions, which had the earlier options, are written.
        """
        self.flush()
        with self._flushing:
            if self._files is not None:
                self._files.is_full = True

    def close(self) -> None:
        """Write the waiting decisions a last time."""
        self.flush()
        with self._flushing:
            if self._files is not None:
                self._files.close()
                self._files = None

    def _write(self, batch: Iterable[MadeDecision]) -> None:
        # Decisions end in another order than they began. The states of the
        # table change least in this order.
        ordered = sorted(batch, key=lambda each: (
            each.basis.snapshot.version, each.basis.position))
        result = 'written'
        try:
            if self._files is None:
                self._files = _Files(self.path, self.bytes_max)
            documents: Iterable[Mapping[str, Any]] = self._documents(ordered)
            if self._files.is_full:
                self._encoder = StateEncoder()
                documents = itertools.chain([{
                    'format': FORMAT, 'version': VERSION, **self.header(),
                }], documents)
                self._files.begin()
            self._files.append(documents)
            self._conditions.end(self._failing)
        except Exception as exc:
            # Go on with a new file. An error of the file system needs no
            # traceback.
            if self._files is not None:
                self._files.is_full = True
            self._conditions.occur(self._failing, exc, logging.ERROR,
                                   not isinstance(exc, OSError))
            result = 'dropped'
        self.metrics.add(metrics.RECORDED, (result,), len(ordered))

    def _documents(
        self, batch: Iterable[MadeDecision]
    ) -> Iterator[dict[str, Any]]:
        for each in batch:
            basis = each.basis
            for change in self._encoder.encode(
                    basis.snapshot, basis.position, basis.closed):
                yield {'hosts': change}
            yield _entry(each)


class _Files:
    """The files that one process writes.

    A process locks its number, which no other process has then. After its end
    the next process continues with this number, and removes its old files.
    """

    def __init__(self, path: pathlib.Path, bytes_max: int) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._last = ''
        self._first = 0
        for number in itertools.count():
            self._number = number
            self._lock = os.open(f'{path}.{number}.lock',
                                 os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                os.close(self._lock)
        #: Whether a new file must begin.
        self.is_full = True

    def begin(self) -> None:
        """Begin a file, and remove the oldest ones."""
        present = [(number, file) for process, number, file
                   in _files_of(self._path) if process == self._number]
        size = sum(file.stat().st_size for _, file in present)
        for _, oldest in present:
            if size > self._bytes_max * (_FILES - 1) // _FILES:
                size -= oldest.stat().st_size
                oldest.unlink()
        last = max((number for number, _ in present), default=0)
        self._last = f'{self._path}.{self._number}.{last + 1:06}'
        os.close(os.open(
            self._last, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        self._first = 0

    def append(self, documents: Iterable[Mapping[str, Any]]) -> None:
        """Write a line for each document, all as a member."""
        with open(self._last, 'r+b') as file:
            file.seek(0, os.SEEK_END)
            with gzip.GzipFile('', 'wb', 1, file, 0) as member:
                for each in documents:
                    member.write(jsonutils.dumps(
                        each, separators=(',', ':')).encode() + b'\n')
            size = file.tell()
        # If the hosts alone take most of a file, it becomes larger.
        self._first = self._first or size
        self.is_full = size > max(self._bytes_max // _FILES, 2 * self._first)

    def close(self) -> None:
        """Leave the number to another process."""
        os.close(self._lock)


def _files_of(path: pathlib.Path) -> list[tuple[int, int, pathlib.Path]]:
    """Return the files of a recording by process and number, in order."""
    return sorted(
        (int(numbers[1]), int(numbers[2]), each)
        for each in path.parent.iterdir() if each.name.startswith(path.name)
        and (numbers := _NUMBERS.fullmatch(each.name[len(path.name):])))


def read(
    path: str | os.PathLike[str], since: float = -math.inf,
    until: float = math.inf, tables: bool = False,
    extra_columns: Iterable[columns.Column] = (),
    report: Callable[[str], object] = LOG.warning,
) -> Iterator[Entry]:
    """Yield the decisions of a recording, in the order of time.

    :param path: a file, or the value of ``[scheduler] record``, which means
        the files of all processes
    :param since: the earliest time, in seconds since the epoch
    :param until: the latest time
    :param tables: whether to read the hosts, too
    :param extra_columns: columns of plug-ins that the hosts must have
    :param report: called with a line about each part that is not readable
    :raises cellsched.exception.InvalidField: a file cannot be read, or is not
        a recording of this version
    """
    path = pathlib.Path(path)
    try:
        found = [(0, 0, path)] if path.is_file() else _files_of(path)
        if not found:
            raise _invalid(path, 'there is no such file',
                           'a recording, which [scheduler] record names')
        streams = [
            itertools.chain.from_iterable(map(
                functools.partial(
                    _read_file, process, tables, extra_columns, report),
                [file for _, _, file in files]))
            for process, files in itertools.groupby(
                found, operator.itemgetter(0))]
        for entry in heapq.merge(*streams, key=operator.attrgetter('at')):
            if since <= entry.at <= until:
                yield entry
    except OSError as exc:
        raise _invalid(
            path, f'it cannot be read: {exc.strerror}: {exc.filename}',
            'a recording') from None


def _read_file(
    process: int, tables: bool, extra_columns: Iterable[columns.Column],
    report: Callable[[str], object], path: pathlib.Path,
) -> Iterator[Entry]:
    decoder, header, number = StateDecoder(extra_columns), None, 0
    try:
        with path.open('rb') as raw, gzip.open(raw) as file:
            if not _MAGIC.startswith(raw.peek()[:2]):
                raise _invalid(path, 'it is not a recording',
                               'a file that [scheduler] record names')
            while line := file.readline(_LINE_MAX):
                number += 1
                if line.startswith(_HOSTS) and not tables:
                    continue
                document = json.loads(line)
                if header is None:
                    header = document
                    if document['version'] != VERSION:
                        raise _invalid(
                            path, f'it has version {document["version"]}',
                            f'version {VERSION}; replay the file with the '
                            'release that wrote it')
                elif 'hosts' in document:
                    decoder.apply(document['hosts'])
                else:
                    yield Entry(header, {**_EMPTY, **document},
                                decoder.table if tables else None, process)
        if header is None:
            raise EOFError('it has no line')
    except (EOFError, gzip.BadGzipFile, json.JSONDecodeError,
            UnicodeError, zlib.error) as exc:
        report(f'{path}: the end is torn or damaged after line {number}, and '
               f'is skipped: {exc}')
    except (ArithmeticError, AttributeError, LookupError, TypeError,
            ValueError) as exc:
        raise _invalid(path, f'line {number} is not valid: '
                       f'{type(exc).__name__}: {exc!s:.80}',
                       'a recording') from exc


def _invalid(
    path: pathlib.Path, problem: str, expected: str
) -> exception.InvalidField:
    return exception.InvalidField(
        where=str(path), field='recording', problem=problem, expected=expected)
