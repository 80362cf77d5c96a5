# SPDX-License-Identifier: Apache-2.0
"""Decisions on requests are recorded, with the way that they went."""

import dataclasses
import random
import types

import nova.conf
from nova import context as nova_context
from nova import exception as nova_exception
from nova import objects as nova_objects
import os_traits

from cellsched import exception
from cellsched.scheduler.decision import pipeline
from cellsched.scheduler import requirements
from cellsched.scheduler.selection import selector
from cellsched.testing import builders
from cellsched.weighers import resources
from cellsched_nova import claims
from cellsched_nova import deadline
from cellsched_nova.decision import Components
from cellsched_nova.decision import NOVA_TEXT
from cellsched_nova.decision import RequestDecision
from cellsched_nova import deferred_releases
from cellsched_nova import deployment
from cellsched_nova import placement
from tests import configuration_fixtures
from tests import test_requests

nova_objects.register_all()

CONF = nova.conf.CONF

SERVER = test_requests.SERVER


class Hosts:
    """Hosts that stay as they are, but for what is taken here."""

    silent = ()
    given_by_others = frozenset()
    readings = 0
    silent_cells = frozenset()
    unread = None

    def __init__(self, table):
        self.table = table
        # What becomes of them each time that freed ones are looked for.
        self.freed = []
        self.confirmed = []

    def follow(self, context):
        return False

    def refresh(self, context, since=None):
        return False

    def await_placement(self, context, patience_s):
        if self.unread is not None:
            raise placement.PlacementUnavailable(reason=self.unread)

    def find_freed(self, context, resources, readings):
        if self.freed:
            self.freed.pop(0)()
        return self.readings != readings

    def reported_nodes(self, instances):
        return {}

    def expire(self, providers):
        pass

    def confirm(self, allocations, claimed=True):
        self.table.confirm(allocations)
        self.confirmed.append(claimed)

    def claimed(self, writes):
        pass


class Plugins:
    """Memory decides."""

    reads = test_requests.READS

    def on_columns(self, spec, states, more=()):
        return pipeline.Pipeline(
            [], [builders.plugin(resources.RAMWeigher)], more)

    on_candidates = on_columns


class Manager:
    """Nova's host manager, without a cell."""

    cells = {}
    enabled_cells = ()
    aggs_by_id = {}

    def get_host_states_by_uuids(self, context, uuids, spec):
        return ()


class Placement:
    """Has no candidates for anything.

    :ivar failures: statuses that it answers with before
    """

    def __init__(self):
        self.failures = []

    def get(self, path, version=None, global_request_id=None):
        return types.SimpleNamespace(
            status_code=self.failures.pop(0) if self.failures else 200,
            json=lambda: {'allocation_requests': [],
                          'provider_summaries': {}})


class Store:
    """Takes every claim, or says what is wrong."""

    def __init__(self):
        self.claims = []
        self.error = None

    def claim(self, claims):
        if self.error is not None:
            raise self.error
        self.claims += claims
        return len(claims)

    def release(self, consumers):
        pass


class TestCase(configuration_fixtures.TestCase):

    def setUp(self):
        super().setUp()
        self.store = Store()
        self.told = []
        self.parts = Components(
            Hosts(builders.table(
                host=['a', 'b'], nodename=['a', 'b'],
                free_ram_mb=[1024, 2048])),
            Plugins(), selector.SelectionPolicy(random.Random(0)),
            requirements.UnsupportedRequirements(test_requests.READS),
            Manager(), Placement(), claims.ClaimComponents(
                self.store, None, deferred_releases.DeferredReleases(
                    self.store, None, None), deadline.Deadline(0.0)), CONF,
            lambda *said: self.told.append(said))
        self.context = nova_context.RequestContext(
            user_id='user', project_id='project', request_id='req-1')

    def spec(self, memory_mb=512, **fields):
        made = test_requests.spec(**{
            'ignore_hosts': None, 'force_hosts': None, 'force_nodes': None,
            'requested_destination': None, 'user_id': 'user',
            'is_bfv': False, 'availability_zone': None, **fields})
        made.flavor.memory_mb = memory_mb
        return made

    def select(self, spec):
        return RequestDecision(
            self.parts, self.context, spec, [SERVER], 0).select()


class TestRecording(TestCase):

    def recorded(self, spec):
        """Return what is recorded of a request that finds no host."""
        self.assertRaises(nova_exception.NoValidHost, self.select, spec)
        [(_, _, _, decision)] = self.told
        return decision

    def test_choice_is_recorded_with_the_way_that_it_was_made(self):
        [[chosen]] = self.select(self.spec())

        [(context, request, uuids, decision)] = self.told
        self.assertEqual('b', chosen.service_host)
        self.assertEqual(
            ('req-1', [SERVER], 512),
            (context.request_id, uuids, request.flavor.memory_mb))
        self.assertEqual(
            ('columns', [], 'b', 'a', None),
            (decision.way.name, decision.way.reasons,
             decision.picks[0].first.host, decision.picks[0].second.host,
             decision.reason))

    def test_refusal_is_recorded_with_reasons_that_users_do_not_read(self):
        spec = self.spec(4096)
        with self.assertRaises(nova_exception.NoValidHost) as caught:
            self.select(spec)

        [(_, _, _, decision)] = self.told
        self.assertIn(NOVA_TEXT, str(caught.exception))
        self.assertIn('2048 MB', decision.reason)
        self.assertEqual({'capacity:MEMORY_MB': ['a', 'b']},
                         decision.examples)
        self.assertEqual(2, decision.rejections[0]['hosts'])

    def grouped(self):
        """Return a request that goes by allocation candidates."""
        # What Nova asks its cells before it asks for this is known.
        return self.spec(
            extra_specs={'resources1:VGPU': '1'},
            request_level_params=nova_objects.RequestLevelParams(
                root_required={os_traits.OWNER_NOVA}))

    def test_request_without_candidates_is_recorded(self):
        decision = self.recorded(self.grouped())

        self.assertEqual('allocation candidates', decision.way.name)
        self.assertIn('groups of the flavor', decision.way.reasons)
        self.assertIn('no allocation candidates', decision.reason)

    def test_placement_that_does_not_answer_is_asked_again(self):
        self.parts.client.failures = [503, 500, 503]

        decision = self.recorded(self.grouped())

        self.assertIn('no allocation candidates', decision.reason)

    def test_placement_that_never_answers_is_recorded(self):
        self.parts.client.failures = [503] * 100
        CONF.set_override('claim_timeout', 0, 'cellsched')
        self.addCleanup(CONF.clear_override, 'claim_timeout', 'cellsched')

        decision = self.recorded(self.grouped())

        self.assertIn('was answered with 503', decision.reason)
        self.assertEqual('allocation candidates', decision.way.name)

    def test_placement_that_refuses_is_not_asked_again(self):
        self.parts.client.failures = [400]

        self.assertIn('was answered with 400',
                      self.recorded(self.grouped()).reason)

    def test_hosts_that_are_not_known_refuse_nobody(self):
        self.parts.hosts.unread = 'it is away'

        self.assertIn('Placement cannot be read: it is away',
                      self.recorded(self.spec(4096)).reason)

    def test_host_of_a_cell_that_does_not_answer_is_passed_over(self):
        table = self.parts.hosts.table
        table.put(list(table['uuid']), {'cell': ['one', 'two']})
        self.parts.hosts.silent_cells = {'two'}

        [[chosen]] = self.select(self.spec())

        self.assertEqual('a', chosen.service_host)
        [(_, _, _, decision)] = self.told
        self.assertEqual(1, decision.picks[0].candidates)

    def test_request_that_cannot_be_read_is_not_recorded(self):
        def refuse():
            raise exception.Invalid('it makes no sense')

        spec = self.spec()
        spec.obj_to_primitive = refuse

        self.assertRaises(nova_exception.NoValidHost, self.select, spec)
        self.assertEqual([], self.told)

    def test_claim_store_that_does_not_answer_is_recorded(self):
        self.store.error = exception.DatabaseUnreachable(
            schema='claims', url='', reason='it is away')

        self.assertIn('it is away', self.recorded(self.spec()).reason)

    def test_hosts_whose_claims_were_refused_are_named(self):
        self.store.error = exception.ClaimRefused(
            provider='p', resource='VCPU', amount=1, consumer=SERVER)

        self.assertEqual(['a', 'b'], sorted(
            self.recorded(self.spec()).examples['claims']))


class Watcher:
    """Looks on, and has more memory on the first host."""

    def __init__(self):
        self.shown = []

    def begin(self, hosts):
        hosts.free(0, {'MEMORY_MB': 4096})

    def ranked(self, candidates, ranking):
        self.shown.append(list(ranking))


class TestWatched(TestCase):

    def watched(self, watcher, servers=1):
        return RequestDecision(
            self.parts, self.context, self.spec(),
            [SERVER, *map(str, range(1, servers))], 0, claim=False,
            watcher=watcher).select()

    def test_what_the_watcher_changes_counts_for_this_request_alone(self):
        [[chosen]] = self.watched(Watcher())

        self.assertEqual('a', chosen.service_host)
        self.assertEqual([], self.store.claims)
        [[chosen]] = self.select(self.spec())
        self.assertEqual('b', chosen.service_host)

    def test_order_of_hosts_for_the_first_server_is_shown(self):
        watcher = Watcher()

        self.assertEqual(2, len(self.watched(watcher, 2)))

        self.assertEqual([[0, 1]], watcher.shown)


class TestPlan(TestCase):

    def plan(self, alternates=1, **wishes):
        return deployment.NovaPlanner(self.parts).plan(
            self.context, builders.request(**wishes), [SERVER], alternates)

    def test_it_is_what_would_be_decided_and_takes_nothing(self):
        places, decision = self.plan()

        self.assertEqual([['b', 'a']], [
            [each.service_host for each in place] for place in places])
        self.assertEqual('columns', decision.way.name)
        self.assertEqual(([], []), (self.store.claims, self.told))

    def test_it_is_the_same_the_next_time(self):
        planner = deployment.NovaPlanner(self.parts)
        for _ in range(3):
            # The second would be chosen if the first counted.
            places, _ = planner.plan(
                self.context, builders.request(memory_mb=1000), [SERVER], 0)

            self.assertEqual('b', places[0][0].service_host)

    def test_it_is_the_same_whoever_makes_it(self):
        alike = Hosts(builders.table(
            host=['a', 'b', 'c'], nodename=['a', 'b', 'c'],
            free_ram_mb=[1024] * 3))
        hosts = set()
        for start in (0.0, 0.4, 0.8):
            self.parts = dataclasses.replace(
                self.parts, hosts=alike, policy=selector.SelectionPolicy(
                    random.Random(0), start=start))
            [[place]], _ = self.plan(0)
            hosts.add(place.service_host)

        self.assertEqual(1, len(hosts))

    def test_what_fits_nowhere_has_a_reason(self):
        places, decision = self.plan(memory_mb=4096)

        self.assertEqual([], places)
        self.assertIn('2048 MB', decision.reason)

    def test_what_the_api_would_refuse_is_refused(self):
        self.assertRaises(exception.Invalid, self.plan,
                          extra_specs={'hw:numa_nodes': 'many'})
