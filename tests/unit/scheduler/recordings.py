# SPDX-License-Identifier: Apache-2.0
"""Decisions that are recorded, in a small deployment without a database."""

import random

from cellsched.claims import base as claims_base
from cellsched.claims import memory
from cellsched.conf import loader
from cellsched import context
from cellsched import exception
from cellsched.hosts.columns import AVAILABLE
from cellsched.hosts import document
from cellsched.scheduler.drivers import filter_scheduler
from cellsched.scheduler import planning
from cellsched.scheduler import recording
from cellsched.scheduler import replay
from cellsched.scheduler.selection import claims
from cellsched.scheduler.selection import placer
from cellsched.testing import builders
from cellsched.testing import clock
from tests.unit import base
from tests.unit.db import samples

HOSTS = 20

CLASSES = ('VCPU', 'MEMORY_MB', 'DISK_GB')


class Source(planning.SnapshotSource):
    """Hosts whose usage comes from a claim store."""

    def __init__(self, snapshot, store):
        super().__init__(snapshot)
        self._store = store

    def reload(self, providers):
        self.table.set_usages(
            (each.provider, each.capacity, each.used, each.consumers,
             each.units)
            for each in self._store.usages(providers=providers).usages)

    def confirm(self, allocations, claimed=True):
        self.reload(self.table.confirm(allocations))


class RecordingTestCase(base.TestCase):
    """``self.placer`` records to ``self.path``."""

    options = {}

    def setUp(self):
        super().setUp()
        self.path = self.temporary_directory() / 'decisions'
        self.clock = clock.FakeClock()
        names = [f'n{row:02}' for row in range(HOSTS)]
        self.table = builders.table(
            now=self.clock.steady(), host=names, nodename=names)
        self.nodes = dict(zip(names, self.table['uuid'].tolist()))
        self.store = memory.MemoryClaims()
        for row, node in enumerate(self.nodes.values()):
            self.store.set_inventory(node, {
                name: claims_base.Inventory(
                    int(self.table[AVAILABLE + name][row]))
                for name in CLASSES})
        self.recorder = self.placer = None
        self.restart()

    def configuration(self, **options):
        """Return a configuration; set options of ``[filter_scheduler]``."""
        conf = loader.load([], files=[], dirs=[], kinds=(), messages=False)
        options = {**self.options, **options}
        for name in ('enabled_filters', 'weight_classes'):
            if name in options:
                conf.set_override(name, options[name], 'filter_scheduler')
        # The plug-ins register their options.
        filter_scheduler.pipeline_of(conf)
        for name, value in options.items():
            conf.set_override(name, value, 'filter_scheduler')
        return conf

    def restart(self, bytes_max=2 ** 22, seed=1, **options):
        """Begin another process; set options of ``[filter_scheduler]``."""
        self.conf = conf = self.configuration(**options)
        if self.recorder is not None:
            self.recorder.close()
        self.recorder = recording.Recorder(
            self.path, bytes_max, lambda: replay.header_of(conf),
            self.clock.monotonic)
        self.addCleanup(self.recorder.close)
        self.source = Source(document.HostDocument(
            self.table, self.clock.steady()), self.store)
        self.placer = placer.Placer(
            self.source, filter_scheduler.pipeline_of(conf),
            claims.ClaimQueue(self.store, self.clock), self.clock,
            filter_scheduler.selection_policy(conf, random.Random(seed)), 4,
            lambda *args: None, recorder=self.recorder)

    def ask(self, count=1, alternates=0, uuids=None, by=None, **wishes):
        """Place servers; return their uuids and hosts, or the error."""
        uuids = uuids or samples.uuids(count)
        try:
            places = self.placer.place(
                by or context.RequestContext(request_id='req-1'),
                builders.request(num_instances=count, **wishes), uuids,
                alternates)
        except exception.CellschedException as exc:
            return uuids, exc
        return uuids, [[each.service_host for each in place]
                       for place in places]

    def read(self, **options):
        self.recorder.flush()
        return [*recording.read(self.path, **options)]

    def replay(self, conf=None, **options):
        """Return the outcome of each recorded request."""
        self.recorder.flush()
        made = replay.Replay(conf or self.conf, **options)
        return [*map(made.decide, recording.read(self.path, tables=True))]
