# SPDX-License-Identifier: Apache-2.0
"""Recorded requests are decided again."""

import collections
import itertools
import random

import fixtures

from cellsched.claims import base as claims_base
from cellsched.conf import loader
from cellsched import exception
from cellsched.hosts.aggregate import HostAggregate
from cellsched.scheduler.drivers import filter_scheduler
from cellsched.scheduler import recording
from cellsched.scheduler import replay
from cellsched.testing import builders
from tests.unit import base
from tests.unit.db import samples
from tests.unit.scheduler import recordings
from tests.unit.scheduler import release_gate


def alternates(answer):
    return [[*place.alternates] for place in answer.places]


class TestSamePolicy(recordings.RecordingTestCase):
    """The recorded policy gives the recorded answers, whatever happens."""

    def assert_same(self, least=1):
        outcomes = self.replay()
        self.assertGreaterEqual(len(outcomes), least)
        for each in outcomes:
            entry = each.entry
            self.assertEqual(replay.SAME, each.change, each)
            self.assertEqual(
                (entry.answer.hosts, alternates(entry.answer)),
                (each.answer.hosts, alternates(each.answer)))
            if not entry.data.get('passed'):
                self.assertEqual(entry.answer.reason, each.answer.reason)
                self.assertEqual([*entry.answer.rejections],
                                 [*each.answer.rejections])
        return outcomes

    def test_servers_and_refusals(self):
        self.ask(alternates=2)
        self.ask(3, vcpus=4)
        self.ask(vcpus=1000)

        outcomes = self.assert_same(3)

        self.assertEqual([1, 3, 0], [
            len(each.answer.places) for each in outcomes])
        self.assertIn('20 are too small', outcomes[-1].answer.reason)

    def test_random_history(self):
        chance = random.Random(3)
        running, group = [], samples.uuids(1)[0]
        for step in range(150):
            self.clock.advance(chance.random())
            self.happen(chance, running)
            wishes = {'vcpus': chance.choice([1, 2, 8, 24]),
                      'memory_mb': chance.choice([512, 4096])}
            if chance.random() < 0.2:
                wishes['group'] = {
                    'uuid': group, 'policy': chance.choice(
                        ['anti-affinity', 'soft-anti-affinity']),
                    'members': running[-5:]}
            uuids, hosts = self.ask(
                chance.choice([1, 1, 1, 3]), chance.choice([0, 2]), **wishes)
            if not isinstance(hosts, Exception):
                running += uuids
            if not step % 20:
                self.recorder.flush()

        outcomes = self.assert_same(150)

        self.assertEqual({True, False}, {
            bool(each.answer.places) for each in outcomes})

    def happen(self, chance, running):
        """Let something happen to the hosts or to the servers."""
        node = chance.choice([*self.nodes.values()])
        known = [node] if node in self.table.snapshot.rows else []
        what = chance.randrange(8)
        if what == 0 and running:
            gone = running.pop(chance.randrange(len(running)))
            self.store.release([gone])
            self.source.reload([*self.nodes.values()])
        elif what == 1:
            self.table.put(known, {
                'service_disabled': chance.random() < 0.3})
        elif what == 2:
            self.table.put(known, {
                'last_seen_up': self.clock.steady(),
                'stats': str(chance.random())})
        elif what == 3:
            self.table.cells.heard(builders.CELL, self.clock.steady())
        elif what == 4 and chance.random() < 0.3:
            self.table.drop(known)
        elif what == 5 and not known:
            self.table.put([node], {
                'host': 'new', 'nodename': f'new{chance.random()}',
                'cell': builders.CELL, 'vcpus_total': 8,
                'last_seen_up': self.clock.steady()})
            self.source.reload([node])
        elif what == 6:
            self.table.put(known, {'aggregates': [(HostAggregate(
                1, samples.uuids(1)[0], 'a', {'key': 'value'}),)]})
        elif what == 7 and chance.random() < 0.2:
            self.restart(seed=chance.random())

    def test_random_selection(self):
        for options in ({'host_subset_size': 5},
                        {'shuffle_best_same_weighed_hosts': True},
                        {'rotate_best_same_weighed_hosts': True}):
            self.restart(**options)
            for _ in range(5):
                self.ask(2, vcpus=1)
                self.ask(vcpus=1)
        self.recorder.flush()
        for entry in recording.read(self.path, tables=True):
            replay.apply_header(self.conf, entry.header)
            outcome = replay.Replay(self.conf).decide(entry)
            self.assertEqual(entry.answer.hosts, outcome.answer.hosts)

    def test_recorded_options_of_an_earlier_release_are_ignored(self):
        replay.apply_header(self.conf, {'options': {
            'gone': {'size': 1}, 'filter_scheduler': {
                'gone': 2, 'host_subset_size': 3}}})

        self.assertEqual(3, self.conf.filter_scheduler.host_subset_size)

    def lose(self, *nodes):
        """Let another scheduler fill hosts, which the table does not know."""
        self.store.claim([
            claims_base.Claim(uuid, node, {'VCPU': 32})
            for uuid, node in zip(samples.uuids(len(nodes)), nodes)])

    def test_lost_claim_races_replay_the_same(self):
        first = self.ask(vcpus=8)[1][0][0]
        nodes = [*self.nodes.values()]
        at = nodes.index(self.nodes[first])
        self.lose(*(nodes[(at + more) % 20] for more in range(1, 12)))

        self.ask(vcpus=8, alternates=1)
        self.ask(2, vcpus=8)

        self.assert_same(3)

    def test_claim_races_lost_on_every_host_replay_the_same(self):
        self.lose(*self.nodes.values())

        _, error = self.ask(vcpus=8)

        self.assertIsInstance(error, exception.NoValidHost)
        self.assert_same()

    def test_pending_claim_already_reported_is_discounted(self):
        """A decision that found no host ignores it."""
        self.useFixture(fixtures.MonkeyPatch(
            'cellsched.scheduler.selection.lane.PENDING_S', 0))
        node = self.nodes['n05']
        self.table.put([each for each in self.nodes.values() if each != node],
                       {'service_disabled': True})
        hosts = self.table.view(self.clock.steady())
        hosts.take(5, {'VCPU': 24})
        self.table.reserve(hosts)
        self.store.claim([claims_base.Claim(
            samples.uuids(1)[0], node, {'VCPU': 24})])
        self.source.reload([node])

        self.assertEqual([['n05']], self.ask(vcpus=8)[1])

        [outcome] = self.assert_same()
        self.assertTrue(outcome.entry.data['discounted'])

    def test_repeated_request(self):
        uuids, hosts = self.ask(2)

        self.assertEqual(hosts, self.ask(uuids=uuids)[1])

        self.assert_same(2)

    def test_several_processes(self):
        self.ask()
        self.recorder.flush()
        self.recorder, first = None, self.recorder
        self.restart()
        self.clock.advance(1)
        self.ask(2)
        self.recorder.flush()
        first.close()

        outcomes = self.assert_same(2)
        self.assertEqual([0, 1], [each.entry.process for each in outcomes])
        self.assertEqual(
            ['decisions.0.000001', 'decisions.1.000001'],
            sorted(each.name for each in self.path.parent.iterdir()
                   if not each.name.endswith('.lock')))


class TestOtherPolicy(recordings.RecordingTestCase):

    options = {'weight_classes': ['RAMWeigher'],
               'rotate_best_same_weighed_hosts': False}

    def test_other_host_is_explained_by_the_weigher(self):
        self.table.put([self.nodes['n07']], {'free_ram_mb': 99_999})
        self.ask()

        [outcome] = self.replay(self.configuration(ram_weight_multiplier=-1.0))

        self.assertEqual((replay.ELSEWHERE, ['n00']), (
            outcome.change, outcome.answer.hosts))
        self.assertIn('RAMWeigher prefers it by', outcome.reason)

    def test_other_host_is_explained_by_the_rejecting_filter(self):
        self.table.put([self.nodes['n00']], {'num_instances': 1})
        self.ask()

        [outcome] = self.replay(self.configuration(
            enabled_filters=['ComputeFilter', 'NumInstancesFilter'],
            max_instances_per_host=1))

        self.assertEqual((replay.ELSEWHERE, ['n01']), (
            outcome.change, outcome.answer.hosts))
        self.assertIn('NumInstancesFilter: the recorded host', outcome.reason)

    def test_new_refusal_and_new_fit_are_changes(self):
        few = {'enabled_filters': ['ComputeFilter', 'NumInstancesFilter'],
               'max_instances_per_host': 1}
        self.table.put([*self.nodes.values()], {'num_instances': 1})
        self.ask()
        self.restart(**few)
        self.ask()

        refused, same = self.replay()
        more, fits = self.replay(self.configuration())

        self.assertEqual((replay.REFUSED, replay.SAME), (
            refused.change, same.change))
        self.assertIn('of 20 hosts 20', refused.reason)
        self.assertEqual(20, refused.answer.rejections[0]['hosts'])
        self.assertEqual((replay.SAME, replay.FITS), (
            more.change, fits.change))
        self.assertIn('it was refused: ', fits.reason)

    def test_later_decision_sees_moved_servers(self):
        """A host that takes a server now has less room for the next one."""
        for name in ('n03', 'n04'):
            self.table.put([self.nodes[name]], {
                'free_ram_mb': 20_000 if name == 'n03' else 19_990})
        self.ask(memory_mb=8000)
        self.ask(memory_mb=8000)
        self.assertEqual(
            [['n03'], ['n04']],
            [entry.answer.hosts for entry in self.read()])
        conf = self.configuration(
            weight_classes=['NumInstancesWeigher', 'RAMWeigher'],
            ram_weight_multiplier=-1.0,
            num_instances_weight_multiplier=-1.0)

        together = self.replay(conf)
        alone = self.replay(conf, carry=False)

        self.assertEqual([['n00'], ['n01']],
                         [each.answer.hosts for each in together])
        self.assertEqual([['n00'], ['n00']],
                         [each.answer.hosts for each in alone])

    def test_moved_server_is_deleted_in_the_end(self):
        """It counts until its recorded host has released servers."""
        self.table.put([self.nodes['n07']], {'free_ram_mb': 99_999})
        [uuid], _ = self.ask()
        self.source.reload([self.nodes['n07']])
        self.ask(ignore_hosts=['n07'])
        self.store.release([uuid])
        self.source.reload([self.nodes['n07']])
        self.ask(ignore_hosts=['n07'])
        policy = replay.Replay(self.configuration(
            weight_classes=['NumInstancesWeigher'],
            num_instances_weight_multiplier=-1.0))
        self.recorder.flush()

        servers = []
        for entry in recording.read(self.path, tables=True):
            numbers = entry.hosts(policy.moves.changes(
                entry.table, entry.process))['num_instances']
            servers.append((numbers.min(), numbers.sum()))
            policy.decide(entry)

        self.assertEqual(3, len(servers))
        # Neither is the server on its recorded host, nor is it there twice.
        self.assertEqual([0, 0, 0], [least for least, _ in servers])
        self.assertEqual([0, 1, 1], [total for _, total in servers])

    def test_locations_missing_from_the_recording_are_remarked(self):
        self.ask(hints={'different_host': samples.uuids(1)})

        [outcome] = self.replay(self.configuration(
            enabled_filters=['DifferentHostFilter']))

        self.assertIn('that are not recorded', outcome.remark)

    def test_failure_of_the_claim_store(self):
        self.store.claim_any = lambda batches: self.fail_to_claim()
        self.assertIsInstance(self.ask()[1], exception.ClaimConflict)

        [outcome] = self.replay()

        self.assertEqual(
            (replay.SKIPPED, 'it failed with ClaimConflict'),
            (outcome.change, outcome.reason))

    @staticmethod
    def fail_to_claim():
        raise exception.ClaimConflict(consumer='c')


class TestReleaseGate(base.TestCase):
    """This release decides as the recording in the repository says.

    The contributor guide says how to make the recording again.
    """

    def outcomes(self, multipliers=()):
        conf, policy = loader.load(
            [], files=[], dirs=[], kinds=(), messages=False), None
        for entry in recording.read(release_gate.PATH, tables=True,
                                    report=self.fail):
            if policy is None:
                replay.apply_header(conf, entry.header)
                pipeline = filter_scheduler.pipeline_of(conf)
                replay.set_multipliers(
                    conf, pipeline.weighers, dict(multipliers))
                policy = replay.Replay(conf, pipeline)
            yield policy.decide(entry)

    def test_replayed_answers_agree_with_the_recorded_answers(self):
        kinds, sizes = collections.Counter(), collections.Counter()
        for outcome in self.outcomes():
            entry, answer = outcome.entry, outcome.answer
            recorded = entry.answer
            self.assertEqual(replay.SAME, outcome.change, outcome)
            self.assertEqual(alternates(recorded), alternates(answer))
            if not entry.data.get('passed'):
                self.assertEqual([*recorded.rejections],
                                 [*answer.rejections])
            kinds.update({
                recorded.error or 'placed', *(
                    name for name in ('nodes', 'passed', 'refusals', 'seed')
                    if entry.data.get(name))})
            sizes[len(entry.uuids)] += 1

        # It has requests of each kind.
        self.assertEqual(release_gate.REQUESTS, sizes.total())
        for kind in ('placed', 'NoValidHost', 'nodes', 'passed', 'refusals',
                     'seed'):
            self.assertGreater(kinds[kind], 0, kinds)
        self.assertLess(release_gate.PATH.stat().st_size,
                        release_gate.BYTES_MAX)

    def test_change_of_the_policy_is_seen(self):
        some = itertools.islice(
            self.outcomes({'RAMWeigher': '-1'}), 50)

        self.assertIn(replay.ELSEWHERE, {each.change for each in some})
