# SPDX-License-Identifier: Apache-2.0
"""Fixtures for a shadow scheduler with four hosts."""

import random
import time
import types

from nova import objects as nova_objects

from cellsched.claims import memory
from cellsched.filters import compute
from cellsched.scheduler.decision import mandatory_stages
from cellsched.scheduler.decision import pipeline
from cellsched.scheduler import requirements
from cellsched.scheduler.selection import selector
from cellsched.testing import builders
from cellsched.weighers import resources
from cellsched_nova import claims
from cellsched_nova import decision
from cellsched_nova import report_client
from cellsched_nova.shadow import scheduler
from tests import specs

CHILD = '20000000-0000-4000-8000-000000000000'

#: Free memory of the hosts. The last two differ by less than the memory of a
#: server, and the first is disabled.
FREE_MB = (9000, 1000, 4000, 4200)


class Placement:
    """A fake of Nova's report client."""

    def __init__(self):
        self.held = {}
        self.roots = {}
        self.offering = []
        self.when_asked = []

    def claim(self, provider, server=specs.SERVER, **amounts):
        self.held.setdefault(server, {})[provider] = {
            'resources': amounts or {'VCPU': 1, 'MEMORY_MB': 512,
                                     'DISK_GB': 1}}

    def get_allocs_for_consumer(self, context, consumer):
        answer = {'allocations': dict(self.held.get(consumer, {}))}
        for do in self.when_asked:
            do()
        return answer

    def candidates(self):
        requests = [{'allocations': {uuid: {'resources': {'VCPU': 1}}},
                     'mappings': {'': [uuid], '1': [uuid]}}
                    for uuid in self.offering]
        return {'allocation_requests': requests,
                'provider_summaries': dict.fromkeys(self.offering)}

    def get(self, path, version=None, global_request_id=None):
        if path.startswith('/allocation_candidates'):
            return types.SimpleNamespace(
                status_code=200, json=self.candidates)
        root = self.roots.get(path.rpartition('/')[2])
        return types.SimpleNamespace(
            status_code=200 if root else 404,
            json=lambda: {'root_provider_uuid': root})


class Hosts:
    """Hosts with the free memory in the fake Placement."""

    non_host_classes = frozenset()
    any_without_pcpu = False
    readings = 0
    silent_cells = frozenset()
    unread_reason = None
    silent = ()
    facts = staticmethod({}.get)

    def __init__(self, placement):
        self.last_changes = {}
        self.table = builders.table(
            free_ram_mb=list(FREE_MB),
            service_disabled=[True, False, False, False])
        self._placement = placement
        self.uuids = list(self.table['uuid'])

    def refresh(self, context, since=None, timeout_s=None, whole=False):
        self.table.put(self.uuids, {
            'last_seen_up': [time.time()] * len(self.uuids)})
        for uuid, free_mb in zip(self.uuids, FREE_MB):
            taken = sum(
                each[uuid]['resources'].get('MEMORY_MB', 0)
                for each in self._placement.held.values() if uuid in each)
            self.table.put([uuid], {
                'free_ram_mb': [free_mb - taken],
                'available:MEMORY_MB': [free_mb - taken]})
        return True

    def read_whole(self, context, since, timeout_s):
        self.refresh(context)

    def follow(self, context, timeout_s=0.0):
        return False

    def may_fit(self, context, resources):
        return True

    def find_freed(self, context, resources, readings, timeout_s=0.0):
        return False

    def expire(self, providers):
        self.expired = set(providers)

    def reported_nodes(self, instances):
        return {}

    def find_changed(self, context, hosts, rows, with_traits,
                     hardware_of=()):
        return set()

    def follow_aggregates(self, context):
        pass


class Plugins:

    of_placement = pipeline.Pipeline([], [])

    def reads_traits(self, request):
        return False

    def on_columns(self, spec, states, more=()):
        return pipeline.Pipeline(
            [builders.plugin(compute.ComputeFilter)],
            [builders.plugin(resources.RAMWeigher)],
            [mandatory_stages.IgnoredHost()])

    def on_candidates(self, spec, states, more=()):
        return pipeline.Pipeline(
            [builders.plugin(compute.ComputeFilter)],
            [builders.plugin(resources.RAMWeigher)], more)


class TestCase(specs.TestCase):

    def setUp(self):
        super().setUp()
        self.placement = Placement()
        self.hosts = Hosts(self.placement)
        self.kept = []
        self.now = 1000.0
        manager = types.SimpleNamespace(
            cells={}, aggs_by_id={},
            get_host_states_by_uuids=lambda *answer: [])
        self.store = memory.MemoryClaims()
        self.parts = decision.Components(
            self.hosts, decision.make_lane(), Plugins(),
            selector.SelectionPolicy(random.Random(0)),
            requirements.RequirementCheck(
                {'ignore_hosts', 'requested_destination.cell'}),
            manager, self.placement, claims.ClaimComponents(
                self.store, None, claims.DeferredReleases(
                    self.store, None, None, report_client.Deadline(0.0)),
                report_client.Deadline(0.0)),
            specs.CONF)
        self.shadow = scheduler.ShadowScheduler(
            self.parts, self.kept.append, 60, lambda: self.now)

    def spec(self, **fields):
        return specs.spec(image=nova_objects.ImageMeta(
            properties=nova_objects.ImageMetaProps()), **fields)

    def begin(self, request=None, age_s=0.0):
        self.request = request or self.keep(self.spec())
        self.shadow.begin(self.context, specs.versioned(self.request), age_s)

    def end(self):
        self.shadow.end(self.context, specs.versioned(self.request))
        [kept] = self.kept
        return kept

    def expire(self):
        self.now += 61.0
        self.shadow.expire()
        [kept] = self.kept
        return kept

    def assertOutcome(self, outcome, reason, kept):
        self.assertEqual((outcome, reason),
                         (kept.verdict.outcome, kept.verdict.reason))
