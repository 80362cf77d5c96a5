# SPDX-License-Identifier: Apache-2.0
"""Recordings of decisions, which ``cellsched replay`` decides again.

A recording has the requests, the hosts that each decision read, and the
answers. Each process writes files of its own: ``FILE.0.000001`` is the first
one of the first process. The oldest file is removed if all together are too
large.

A file begins with :data:`MAGIC` and the version of the format. Blocks follow,
each with its length and its checksum, so that the blocks before a torn end can
be read. A block is compressed, and has items: the letter of a kind, a length,
and a document in MessagePack. The kinds are a header with the configuration, a
change of the host table (see :mod:`~cellsched.scheduler.recorded_table`), and
an entry. The first block of a file has a header and all hosts, so that each
file can be read alone.

Neither the tokens of requests nor their networks and security groups are
recorded. Values whose names look secret are masked.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import fcntl
import functools
import heapq
import logging
import math
import os
import pathlib
import re
import struct
import threading
from typing import Any
from typing import BinaryIO
from typing import NamedTuple
import zlib

from oslo_log import log
from oslo_serialization import msgpackutils

from cellsched.conditions import Conditions
from cellsched import exception
from cellsched.hosts import columns
from cellsched.hosts.snapshot import Changes
from cellsched.hosts.snapshot import Snapshot
from cellsched.hosts.table import HostTable
from cellsched.hosts import view
from cellsched import metrics
from cellsched.metrics import Metrics
from cellsched import objects
from cellsched.scheduler.recorded_table import hosts_of
from cellsched.scheduler.recorded_table import StateDecoder
from cellsched.scheduler.recorded_table import StateEncoder

LOG = log.getLogger(__name__)

#: The beginning of a file; the version of the format and a line end follow.
MAGIC = b'cellsched-recording '

#: The version of the format. A reader reads this version only.
VERSION = 1

#: Seconds between two writes.
SPACING_S = 0.5

#: Bounds of what waits for a write: decisions, and versions of the host table,
#: which hold memory.
WAITING_MAX = 2000
VERSIONS_MAX = 32

#: The files of one process, of which the oldest is removed.
_FILES = 4

#: Length and checksum of a block; kind and length of an item.
_BLOCK = struct.Struct('>II')
_ITEM = struct.Struct('>cI')

HEADER, CHANGE, ENTRY = b'h', b't', b'e'

#: The largest block, compressed and not.
_BLOCK_MAX, _CONTENT_MAX = 2 ** 30, 2 ** 32

#: The numbers in the names of files: of the process, and of the file.
_NUMBERS = re.compile(r'\.(\d{1,6})\.(\d{6,12})')

#: Seconds between two log lines about decisions that were dropped.
_DROPPED_S = 60.0


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
    alternates: int
    claims: bool
    places: Sequence[Sequence[Any]] = ()
    error: exception.CellschedException | None = None
    passed: Sequence[str] = ()
    full: Sequence[str] = ()
    silent: Sequence[str] = ()
    left_out: Sequence[Sequence[Any]] = ()
    way: str = ''


@dataclasses.dataclass(frozen=True)
class Place:
    """The host of a server.

    :param node: the uuid of the compute node
    :param cell: the uuid of the cell
    :param alternates: the uuids of further nodes
    """

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

    @property
    def hosts(self) -> list[str]:
        """The name of the host of each server."""
        return [place.host for place in self.places]


@dataclasses.dataclass(eq=False)
class Entry:
    """A recorded decision.

    :param at: the time of the decision, in seconds since the epoch
    :param uuids: the servers of the request
    :param header: the configuration, and what wrote the file
    :param table: the hosts at that time, until the next entry is read; None
        if they are not read
    :param data: the recorded fields
    :param process: the number of the process that decided
    """

    at: float
    uuids: Sequence[str]
    answer: Answer
    header: Mapping[str, Any]
    data: Mapping[str, Any]
    table: HostTable | None = None
    discounted: Sequence[tuple[int, Changes]] | None = None
    process: int = 0

    @functools.cached_property
    def request(self) -> objects.RequestSpec:
        """The request, as the scheduler decided on it.

        :raises cellsched.exception.InvalidField: it is not readable
        """
        try:
            return objects.RequestSpec.obj_from_primitive(self.data['request'])
        except exception.InvalidField:
            raise
        except Exception as exc:
            raise exception.InvalidField(
                where='recording', field='request', problem=(
                    f'the request of {self.uuids[:1]} is not readable: '
                    f'{type(exc).__name__}'),
                expected='a RequestSpec') from None

    def hosts(self) -> view.Hosts:
        """Return the hosts as the decision read them."""
        assert self.table is not None, 'read with tables'
        return hosts_of(self.table, self.at, self.data['nodes'],
                        self.discounted)


#: The recorded fields of objects, by name; None for all.
_FIELDS: Mapping[str, frozenset[str] | None] = {
    'ComputeNode': frozenset({'host', 'hypervisor_hostname', 'uuid'}),
    'ComputeNodeList': None,
    'CellMapping': frozenset({'id', 'uuid', 'name', 'disabled'}),
    'Destination': None,
    'Flavor': frozenset({
        'id', 'name', 'flavorid', 'vcpus', 'memory_mb', 'root_gb',
        'ephemeral_gb', 'swap', 'extra_specs', 'is_public', 'disabled'}),
    'ImageMeta': frozenset({
        'id', 'name', 'container_format', 'disk_format', 'min_ram', 'min_disk',
        'size', 'properties'}),
    'ImageMetaProps': None,
    'InstanceGroup': None,
    'RequestSpec': frozenset({
        'availability_zone', 'flavor', 'force_hosts', 'force_nodes',
        'ignore_hosts', 'image', 'instance_group', 'instance_uuid', 'is_bfv',
        'limits', 'migration_uuid', 'num_instances', 'numa_topology',
        'pci_requests', 'project_id', 'request_level_params',
        'requested_destination', 'requested_resources', 'retry',
        'scheduler_hints', 'user_id'}),
    'SchedulerLimits': None,
    'SchedulerRetries': None,
}

_NAME, _DATA = 'nova_object.name', 'nova_object.data'

_SECRET = re.compile(
    r'passw|passphrase|secret|token|credential|private_?key|user_?data|'
    r'injected|admin_?pass|api_?key', re.IGNORECASE)

_MASK = '***'


@functools.lru_cache(4096)
def _is_secret(name: str) -> bool:
    return _SECRET.search(name) is not None


def _without_secrets(value: Any) -> Any:
    """Return plain data with the recorded fields of objects only."""
    if isinstance(value, dict):
        name = value.get(_NAME)
        if name is None:
            return {key: _MASK if _is_secret(key) else _without_secrets(each)
                    for key, each in value.items()}
        # Objects of Nova that this project does not know are passed on.
        fields = _FIELDS.get(name)
        data = value.get(_DATA) or {}
        if fields is not None:
            data = {key: data[key] for key in data if key in fields}
        return {
            **{key: each for key, each in value.items()
               if key != 'nova_object.changes'},
            _DATA: _without_secrets(data)}
    if isinstance(value, (list, tuple)):
        return [_without_secrets(each) for each in value]
    return value


def _entry(decided: MadeDecision, encoder: StateEncoder) -> dict[str, Any]:
    """Return a decision as plain data."""
    basis, error = decided.basis, decided.error
    found: dict[str, Any] = {
        'at': basis.now, 'request_id': decided.request_id,
        'uuids': [*decided.uuids], 'alternates': decided.alternates,
        'request': _without_secrets(basis.request.obj_to_primitive()),
        'nodes': dict(basis.nodes), 'claims': decided.claims}
    # Most requests have none of these.
    for name, value in (
            ('asked', sorted(basis.asked)), ('kept', dict(basis.kept)),
            ('held', {uuid: [[provider, dict(amounts)]
                             for provider, amounts in each]
                      for uuid, each in basis.held.items()}),
            ('refusals', basis.refusals), ('seed', basis.seed),
            ('start', basis.start),
            ('passed', [*decided.passed]), ('full', [*decided.full]),
            ('silent', [*decided.silent]),
            ('left_out', [[*each] for each in decided.left_out]),
            ('way', decided.way)):
        if value:
            found[name] = value
    if basis.discounted:
        found['discounted'] = encoder.pairs(basis.discounted)
    if error is None:
        found['places'] = [
            [first.compute_node_uuid, first.service_host, first.nodename,
             first.cell_uuid, [each.compute_node_uuid for each in rest]]
            for first, *rest in decided.places]
    else:
        found['error'] = [
            exception.kind_of(error),
            str(error.kwargs.get('reason') or error.format_message()),
            [*(error.kwargs.get('rejections') or ())]]
    return found


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
        self._dropped = self._logged = 0
        self._logged_at = -math.inf
        self._is_outdated = False
        self._conditions = Conditions(LOG, self.monotonic)
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

    @property
    def waiting(self) -> int:
        """The number of decisions that wait for a write."""
        return len(self._waiting)

    def flush(self) -> None:
        """Write the waiting decisions; never raises."""
        with self._flushing:
            with self._lock:
                batch, self._waiting = self._waiting, collections.deque()
            if batch:
                self._write(batch)
            self._report()

    def follow_options(self) -> None:
        """Begin a new file, because options have changed; never blocks."""
        self._is_outdated = True

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
        try:
            if self._files is None:
                self._files = _Files(self.path, self.bytes_max)
            if self._files.is_full or self._is_outdated:
                self._is_outdated = False
                self._begin_file(ordered[0])
            self._files.append(self._items(ordered))
        except Exception as exc:
            self._fail(len(ordered), exc)
            return
        self._conditions.end(self._failing)
        self.metrics.add(metrics.RECORDED, ('written',), len(ordered))

    def _begin_file(self, first: MadeDecision) -> None:
        assert self._files is not None
        self._encoder = StateEncoder()
        self._files.begin([
            (HEADER, dict(self.header())),
            *((CHANGE, each) for each in self._encoder.encode(
                first.basis.snapshot, first.basis.position,
                first.basis.closed))])

    def _items(
        self, batch: Iterable[MadeDecision]
    ) -> Iterator[tuple[bytes, dict[str, Any]]]:
        for each in batch:
            for change in self._encoder.encode(
                    each.basis.snapshot, each.basis.position,
                    each.basis.closed):
                yield CHANGE, change
            yield ENTRY, _entry(each, self._encoder)

    def _fail(self, lost: int, exc: Exception) -> None:
        """Go on with a new file after an error."""
        with self._lock:
            self._dropped += lost
        if self._files is not None:
            self._files.is_full = True
        # An error of the file system needs no traceback.
        self._conditions.occur(
            self._failing, exc, logging.ERROR, not isinstance(exc, OSError))

    def _report(self) -> None:
        """Count and log the decisions that were dropped."""
        with self._lock:
            dropped, self._dropped = self._dropped, 0
        if dropped:
            self.metrics.add(metrics.RECORDED, ('dropped',), dropped)
            self._logged += dropped
        now = self.monotonic()
        if self._logged and now - self._logged_at >= _DROPPED_S:
            LOG.warning('%d decisions were not recorded to %s: they came '
                        'faster than they can be written', self._logged,
                        self.path)
            self._logged, self._logged_at = 0, now


class _Files:
    """The files that one process writes.

    A process locks its number, which no other process has then. After its end
    the next process continues with this number, and removes its old files.
    """

    def __init__(self, path: pathlib.Path, bytes_max: int) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._lock, self._number = _lock(path)
        self._file: BinaryIO | None = None
        self._size = self._first = 0
        #: Whether a new file must begin.
        self.is_full = True

    def begin(self, items: Iterable[tuple[bytes, Mapping[str, Any]]]) -> None:
        """Begin a file, and remove the oldest ones."""
        self._end()
        present = _files_of(self._path).get(self._number, {})
        sizes = {number: path.stat().st_size
                 for number, path in present.items()}
        while sizes and sum(sizes.values()) > self._bytes_max * (
                _FILES - 1) // _FILES:
            oldest = min(sizes)
            present[oldest].unlink()
            del sizes[oldest]
        name = f'{self._path}.{self._number}.{max(present, default=0) + 1:06}'
        self._file = open(
            name, 'xb', buffering=0, opener=functools.partial(
                os.open, mode=0o600))
        self._size = 0
        self._write(MAGIC + b'%d\n' % VERSION)
        self.is_full = False
        self.append(items)
        self._first = self._size

    def append(
        self, items: Iterable[tuple[bytes, Mapping[str, Any]]]
    ) -> None:
        """Write a block."""
        packer = zlib.compressobj(1)
        parts = [b'']
        for kind, document in items:
            packed = msgpackutils.dumps(document)
            parts.append(packer.compress(
                _ITEM.pack(kind, len(packed)) + packed))
        parts.append(packer.flush())
        content = b''.join(parts)
        self._write(_BLOCK.pack(len(content), zlib.crc32(content)) + content)
        # If the hosts alone take most of a file, it becomes larger.
        self.is_full = self._size > max(
            self._bytes_max // _FILES, 2 * self._first)

    def close(self) -> None:
        """Close the file, and leave the number to another process."""
        self._end()
        os.close(self._lock)

    def _write(self, content: bytes) -> None:
        assert self._file is not None
        rest = memoryview(content)
        while rest:
            written = self._file.write(rest) or 0
            self._size += written
            rest = rest[written:]

    def _end(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None


def _lock(path: pathlib.Path) -> tuple[int, int]:
    """Lock the first free number of a process; return a descriptor too."""
    number = 0
    while True:
        found = os.open(f'{path}.{number}.lock',
                        os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return found, number
        except BlockingIOError:
            os.close(found)
            number += 1


def _files_of(path: pathlib.Path) -> dict[int, dict[int, pathlib.Path]]:
    """Return the files of a recording, by process and number."""
    found: dict[int, dict[int, pathlib.Path]] = {}
    for each in path.parent.iterdir():
        if each.name.startswith(path.name):
            numbers = _NUMBERS.fullmatch(each.name[len(path.name):])
            if numbers:
                found.setdefault(int(numbers[1]), {})[int(numbers[2])] = each
    return found


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
    streams = [
        _read_files(files, process, tables, extra_columns, report)
        for process, files in enumerate(_streams(pathlib.Path(path)))]
    merged = heapq.merge(*streams, key=lambda entry: entry.at)
    return (entry for entry in merged if since <= entry.at <= until)


def _streams(path: pathlib.Path) -> list[list[pathlib.Path]]:
    """Return the files of each process, in order."""
    if path.is_file():
        return [[path]]
    try:
        found = _files_of(path)
    except OSError as exc:
        raise _invalid(path, f'it cannot be read: {exc.strerror}',
                       'a recording') from None
    if not found:
        raise _invalid(path, 'there is no such file',
                       'a recording, which [scheduler] record names')
    return [[files[number] for number in sorted(files)]
            for _, files in sorted(found.items())]


def _read_files(
    files: Iterable[pathlib.Path], process: int, tables: bool,
    extra_columns: Iterable[columns.Column], report: Callable[[str], object],
) -> Iterator[Entry]:
    for path in files:
        decoder = StateDecoder(extra_columns)
        header: Mapping[str, Any] = {}
        try:
            for kind, packed in _items_of(path, report):
                if kind == HEADER:
                    header = msgpackutils.loads(packed)
                elif kind == ENTRY:
                    yield _read_entry(
                        msgpackutils.loads(packed), header, decoder, tables,
                        process)
                elif kind == CHANGE and tables:
                    decoder.apply(msgpackutils.loads(packed))
        except exception.CellschedException:
            raise
        except OSError as exc:
            raise _invalid(path, f'it cannot be read: {exc.strerror}',
                           'a recording') from None
        except (ArithmeticError, AttributeError, LookupError, TypeError,
                ValueError) as exc:
            # The checksum is right, so this is no accident of writing.
            raise _invalid(path, f'its content is not valid: '
                           f'{type(exc).__name__}', 'a recording') from exc


def _items_of(
    path: pathlib.Path, report: Callable[[str], object]
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the kinds and the documents of a file, as far as they are whole.

    :raises cellsched.exception.InvalidField: it is no recording
    """
    with path.open('rb') as file:
        size = os.fstat(file.fileno()).st_size
        line = file.readline(64)
        if MAGIC.startswith(line) or line.startswith(MAGIC) and (
                line[-1:] != b'\n'):
            report(f'{path}: it ends before the hosts, and is skipped')
            return
        _check_version(path, line)
        while True:
            begin = file.tell()
            head = file.read(_BLOCK.size)
            if not head:
                return
            content = b''
            length = checksum = 0
            if len(head) == _BLOCK.size:
                length, checksum = _BLOCK.unpack(head)
                content = file.read(min(length, _BLOCK_MAX))
            if (not length or len(content) < length
                    or zlib.crc32(content) != checksum):
                report(f'{path}: the last {size - begin} bytes are torn or '
                       f'damaged, and are skipped')
                return
            yield from _split(zlib.decompressobj().decompress(
                content, _CONTENT_MAX))


def _check_version(path: pathlib.Path, line: bytes) -> None:
    if not line.startswith(MAGIC):
        raise _invalid(path, 'it is not a recording',
                       'a file that [scheduler] record names')
    version = line.removeprefix(MAGIC).strip()
    if version != b'%d' % VERSION:
        raise _invalid(
            path, f'it has version {version.decode("ascii", "replace"):.20}',
            f'version {VERSION}, which this release reads')


def _split(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    begin = 0
    while begin < len(content):
        kind, length = _ITEM.unpack_from(content, begin)
        begin += _ITEM.size
        yield kind, content[begin:begin + length]
        begin += length


def _read_entry(
    data: Mapping[str, Any], header: Mapping[str, Any],
    decoder: StateDecoder, tables: bool, process: int,
) -> Entry:
    error, reason, rejections = data.get('error', ('', '', ()))
    answer = Answer([Place(*each) for each in data.get('places', ())],
                    error, reason, rejections)
    discounted = None
    if tables and 'discounted' in data:
        discounted = decoder.entries(data['discounted'])
    return Entry(data['at'], data['uuids'], answer, header, data,
                 decoder.table if tables else None, discounted, process)


def _invalid(
    path: pathlib.Path, problem: str, expected: str
) -> exception.InvalidField:
    return exception.InvalidField(
        where=str(path), field='recording', problem=problem, expected=expected)
