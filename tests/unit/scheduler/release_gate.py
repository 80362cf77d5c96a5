# SPDX-License-Identifier: Apache-2.0
"""Makes the recording that each release must decide as it was decided.

``python -m tests.unit.scheduler.release_gate`` writes it again. Do that only
after a change of decisions that is meant, and describe the change in a release
note.
"""

import pathlib
import random
import tempfile
import uuid

from cellsched.claims import base as claims_base
from cellsched.claims import memory
from cellsched.conf import loader
from cellsched.context import RequestContext
from cellsched import exception
from cellsched.hosts.columns import AVAILABLE
from cellsched.hosts import document
from cellsched.scheduler.drivers import filter_scheduler
from cellsched.scheduler import recording
from cellsched.scheduler import replay
from cellsched.scheduler.selection import claims
from cellsched.scheduler.selection import placer
from cellsched.testing import builders
from cellsched.testing import clock
from tests.unit.scheduler import recordings

PATH = pathlib.Path(__file__).with_name('release_gate.recording')

HOSTS, REQUESTS = 120, 400

#: The file in the repository must not exceed this.
BYTES_MAX = 200_000

FILTERS = [
    'ComputeFilter', 'ComputeCapabilitiesFilter', 'ImagePropertiesFilter',
    'AggregateInstanceExtraSpecsFilter', 'ServerGroupAntiAffinityFilter',
    'ServerGroupAffinityFilter', 'NumInstancesFilter']


class Cloud:
    """Synthetic hosts in three cells, and a scheduler that records."""

    def __init__(self, path, seed):
        self.chance = random.Random(seed)
        self.clock = clock.FakeClock()
        self.table = self.make_table()
        self.nodes = self.table['uuid'].tolist()
        self.store = memory.MemoryClaims()
        for row, node in enumerate(self.nodes):
            self.store.set_inventory(node, {
                name: claims_base.Inventory(
                    int(self.table[AVAILABLE + name][row]))
                for name in recordings.CLASSES})
        self.running, self.groups = [], [self.uuid() for _ in range(6)]
        self.conf = conf = loader.load(
            [], files=[], dirs=[], kinds=(), messages=False)
        conf.set_override('enabled_filters', FILTERS, 'filter_scheduler')
        conf.set_override('host_subset_size', 2, 'filter_scheduler')
        conf.set_override('host', 'gate')
        self.recorder = recording.Recorder(
            path, 2 ** 30, lambda: replay.header_of(conf),
            self.clock.monotonic)
        self.source = recordings.Source(document.HostDocument(
            self.table, self.clock.steady()), self.store)
        self.placer = placer.Placer(
            self.source, filter_scheduler.pipeline_of(conf),
            claims.ClaimQueue(self.store, self.clock), self.clock,
            filter_scheduler.selection_policy(conf, self.chance), 4,
            lambda *args: None, recorder=self.recorder)

    def uuid(self):
        return str(uuid.UUID(int=self.chance.getrandbits(128), version=4))

    def make_table(self):
        chance, rows = self.chance, range(HOSTS)
        cells = [self.uuid() for _ in range(3)]
        fast = builders.aggregate(1, ssd='true')
        names = [f'host{row:03}' for row in rows]
        made = builders.table(
            now=self.clock.steady(), host=names, nodename=names,
            uuid=[self.uuid() for _ in rows],
            cell=[cells[row % 3] for row in rows],
            availability_zone=[f'zone{row % 2}' for row in rows],
            aggregates=[(fast,) if row % 5 == 0 else () for row in rows],
            traits=[frozenset(['HW_CPU_X86_AVX2'] if row % 4 else [])
                    for row in rows],
            vcpus_total=[chance.choice([4, 8, 16]) for _ in rows],
            total_usable_ram_mb=[chance.choice([8, 16, 64]) * 1024
                                 for _ in rows],
            failed_builds=[int(row == 7) for row in rows])
        for cell in cells:
            made.cells.heard(cell, self.clock.steady())
        return made

    def run(self):
        for number in range(REQUESTS):
            self.clock.advance(self.chance.random() * 3)
            self.happen()
            if not number % 15:
                self.table.put(self.nodes, {
                    'last_seen_up': self.clock.steady(), 'num_io_ops': 0})
                for cell in self.table.cells.known:
                    self.table.cells.heard(cell, self.clock.steady())
            self.ask()
            if not number % 10:
                self.recorder.flush()
        self.recorder.close()

    def happen(self):
        """Let servers be deleted, and hosts change."""
        chance = self.chance
        node = chance.choice(self.nodes)
        what = chance.randrange(4)
        if what == 0 and self.running:
            gone = self.running.pop(chance.randrange(len(self.running)))
            self.store.release([gone])
            self.source.reload(self.nodes)
        elif what == 1:
            self.table.put([node], {'service_disabled': chance.random() < .3})
        elif what == 2:
            # Another scheduler claims, which this one does not know yet.
            self.store.claim([claims_base.Claim(
                self.uuid(), node, {'MEMORY_MB': 1024})] if self.has_room(
                    node) else [])

    def has_room(self, node):
        [usage] = self.store.usages(providers=[node]).usages
        return (usage.capacity['MEMORY_MB'] - usage.used.get('MEMORY_MB', 0)
                >= 1024)

    def ask(self):
        chance = self.chance
        count = chance.choice([1, 1, 1, 1, 2, 4])
        uuids = [self.uuid() for _ in range(count)]
        specs = chance.choice([{}, {}, {
            'aggregate_instance_extra_specs:ssd': 'true'}, {
            'trait:HW_CPU_X86_AVX2': 'required'}])
        wishes = {
            'vcpus': chance.choice([1, 1, 2, 4, 8, 64]), 'extra_specs': specs,
            'memory_mb': chance.choice([512, 2048, 8192]),
            'root_gb': chance.choice([1, 10]), 'num_instances': count,
            'availability_zone': chance.choice([None, None, 'zone0'])}
        if chance.random() < 0.3:
            number = chance.randrange(len(self.groups))
            wishes['group'] = {
                'uuid': self.groups[number], 'members': self.running[-4:],
                'policy': ['affinity', 'anti-affinity', 'soft-affinity',
                           'soft-anti-affinity'][number % 4]}
        try:
            self.placer.place(
                RequestContext(request_id=f'req-{uuids[0]}'),
                builders.request(**wishes), uuids, 1)
        except exception.NoValidHost:
            pass
        else:
            self.running += uuids


def main():
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / 'gate'
        Cloud(path, 37).run()
        PATH.write_bytes(path.with_name('gate.0.000001').read_bytes())
    print(f'{PATH.name}: {PATH.stat().st_size} bytes')


if __name__ == '__main__':
    main()
