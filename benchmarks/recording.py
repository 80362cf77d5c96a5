# SPDX-License-Identifier: Apache-2.0
"""Requests for hosts whose decisions are recorded to files.

Parameters: those of ``mixed.py``. A request is decided, reserved and claimed
in a claim store in memory, by a placer that records and by one that does not,
in alternation. A thread writes the recording, as in a scheduler.

The floor is the request without a recording. Figures are the CPU time of the
thread, and the size of the recording, for each recorded decision.
"""

import itertools
import pathlib
import random
import tempfile
import threading
import time

import cloud
import decision
import mixed
from oslo_utils import uuidutils

from cellsched.claims import base as claims_base
from cellsched.claims import memory
from cellsched.clock import Clock
from cellsched.conf import loader
from cellsched.context import RequestContext
from cellsched.hosts.columns import AVAILABLE
from cellsched.hosts import document
from cellsched.scheduler.drivers import filter_scheduler
from cellsched.scheduler import planning
from cellsched.scheduler import recording
from cellsched.scheduler import replay
from cellsched.scheduler.selection import claims
from cellsched.scheduler.selection import placer
from cellsched.testing import builders

CLASSES = ('VCPU', 'MEMORY_MB', 'DISK_GB')


class Source(planning.SnapshotSource):
    """A table whose claims are confirmed."""

    def confirm(self, allocations, claimed=True):
        self.table.confirm(allocations)


class StillClock(Clock):
    """A clock that stands for decisions, whose hosts have old reports."""

    def steady(self):
        return builders.NOW


def run(parameters, repeat):
    """Return the samples of requests and of their floor, in alternation."""
    conf = loader.load([], files=[], dirs=[], kinds=(), messages=False)
    table, _ = cloud.table(cloud.document(parameters['cloud']))
    store = memory.MemoryClaims()
    for row, node in enumerate(table['uuid'].tolist()):
        store.set_inventory(node, {
            name: claims_base.Inventory(max(
                int(table[AVAILABLE + name][row]), 1)) for name in CLASSES})
    requests = itertools.cycle(mixed.different(parameters))
    reports = mixed.reported(table, parameters['reporting'])
    samples = {'place': [], 'floor': []}
    with tempfile.TemporaryDirectory() as directory:
        writer = Writer(recording.Recorder(
            pathlib.Path(directory) / 'decisions', 2 ** 30,
            lambda: replay.header_of(conf), time.monotonic))
        clock = StillClock()
        plain, recorded = (placer.Placer(
            Source(document.HostDocument(table, builders.NOW)),
            filter_scheduler.pipeline_of(conf),
            claims.ClaimQueue(store, clock), clock,
            filter_scheduler.selection_policy(conf, random.Random(1)), 4,
            lambda *args: None, recorder=recorder)
            for recorder in (None, writer.recorder))
        with writer:
            for number in range(repeat):
                if number % parameters['report_every'] == 0:
                    table.put(*next(reports))
                    table.publish()
                request = next(requests)
                # The first one after a change of the hosts takes longer.
                pair = [('floor', plain), ('place', recorded)]
                for name, each in pair[::1 if number % 2 else -1]:
                    samples[name].append(decision.timed(
                        each.place, RequestContext(), request,
                        [uuidutils.generate_uuid()], 2))
        size = sum(path.stat().st_size
                   for path in pathlib.Path(directory).iterdir())
    return samples, {
        'writer_cpu_ms': round(writer.cpu_s / repeat * 1000, 3),
        'bytes_per_decision': round(size / repeat)}


class Writer:
    """A thread that writes the recording, and its CPU time."""

    def __init__(self, recorder):
        self.recorder = recorder
        self.cpu_s = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self):
        self._thread.start()

    def __exit__(self, *args):
        self._stopping.set()
        self._thread.join()

    def _work(self):
        while not self._stopping.wait(recording.SPACING_S):
            self.recorder.flush()
        self.recorder.close()
        self.cpu_s = time.thread_time()
