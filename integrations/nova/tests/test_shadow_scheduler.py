# SPDX-License-Identifier: Apache-2.0
"""Requests that Nova's scheduler tells of are decided on, and compared."""

from nova import objects as nova_objects

from cellsched import exception
from cellsched_nova.shadow import comparison as comparing
from cellsched_nova.shadow import scheduler
from tests import shadow_fixtures
from tests import specs

Outcome = comparing.Outcome


class TestShadow(shadow_fixtures.TestCase):

    def test_host_that_nova_claimed_is_compared(self):
        self.begin()
        self.placement.claim(self.hosts.uuids[3])

        kept = self.end()

        self.assertOutcome(Outcome.SAME, '', kept)
        host = self.hosts.table['host'][3]
        self.assertEqual(
            ('req-1', specs.SERVER, 0),
            (kept.request_id, kept.instance_uuid, kept.others))
        self.assertIn(host, kept.host)
        self.assertEqual(kept.host, kept.nova_host)

    def test_hosts_are_as_they_were_before_nova_claimed(self):
        self.placement.claim(self.hosts.uuids[3])
        self.begin()

        self.assertOutcome(Outcome.SAME, '', self.end())
        self.assertEqual({self.hosts.uuids[3]}, self.hosts.expired)

    def test_other_choice_is_told_with_the_reason(self):
        self.begin()
        self.placement.claim(self.hosts.uuids[1])

        kept = self.end()

        self.assertOutcome(Outcome.WEIGHT, 'RAMWeigher', kept)
        self.assertIn('rank 3', kept.verdict.detail)

    def test_host_that_is_rejected_here_is_told_with_the_filter(self):
        self.begin()
        self.placement.claim(self.hosts.uuids[0])

        self.assertOutcome(Outcome.REJECTED, 'ComputeFilter', self.end())

    def test_hosts_are_as_they_were_where_nova_claims_meanwhile(self):
        def claim():
            self.placement.when_asked.clear()
            self.placement.claim(self.hosts.uuids[3])

        self.placement.when_asked.append(claim)
        self.begin()

        self.assertOutcome(Outcome.SAME, '', self.end())

    def test_room_that_nova_claimed_is_no_candidate_any_more(self):
        request = self.spec(extra_specs={'resources1:VCPU': '1'})
        self.placement.offering = [self.hosts.uuids[1]]
        self.placement.claim(self.hosts.uuids[3])
        self.begin(self.keep(request))

        self.assertOutcome(
            Outcome.UNKNOWN, 'room as it was before Nova claimed', self.end())

    def test_host_of_allocation_candidates_is_compared(self):
        request = self.spec(extra_specs={'resources1:VCPU': '1'})
        self.placement.offering = self.hosts.uuids[1:3]
        self.begin(self.keep(request))
        self.placement.claim(self.hosts.uuids[3])

        self.assertOutcome(Outcome.REJECTED, 'CandidateHosts', self.end())

    def test_host_of_a_cell_that_is_not_asked_for_cannot_be_compared(self):
        request = self.keep(self.spec())
        cell = nova_objects.CellMapping(
            self.context.elevated(), uuid=specs.MEMBER, name='north',
            transport_url='fake://', database_connection='sqlite://')
        cell.create()
        request.requested_destination = nova_objects.Destination(cell=cell)
        self.begin(request)
        self.placement.claim(self.hosts.uuids[0])

        self.assertOutcome(Outcome.UNKNOWN, 'moves between cells', self.end())

    def test_error_is_the_reason_and_comes_out(self):
        self.placement.when_asked.append(lambda: 1 / 0)
        self.assertRaises(ZeroDivisionError, self.begin)
        self.assertOutcome(Outcome.UNKNOWN, 'ZeroDivisionError', self.end())

        self.kept.clear()
        self.placement.when_asked.clear()
        self.begin(self.request)
        self.placement.when_asked.append(lambda: 1 / 0)
        self.assertRaises(ZeroDivisionError, self.end)
        self.assertOutcome(Outcome.UNKNOWN, 'ZeroDivisionError', *self.kept)

    def test_nothing_is_claimed_or_counted(self):
        before = self.hosts.table['available:MEMORY_MB'].tolist()
        self.begin()

        self.assertEqual(
            before, self.hosts.table['available:MEMORY_MB'].tolist())
        self.assertEqual({}, self.store.claims_of([specs.SERVER]))

    def test_end_that_nobody_began_is_left_out(self):
        self.shadow.end(self.context, specs.versioned(self.spec()))

        self.assertEqual([], self.kept)

    def test_request_that_begins_anew_was_refused(self):
        self.begin()
        self.begin(self.request)

        self.assertOutcome(Outcome.MORE, '', *self.kept)

    def test_what_cannot_be_kept_ends_nothing(self):
        def fail(comparison):
            raise exception.DatabaseUnreachable(
                schema='records', url='', reason='it is down')

        self.shadow = scheduler.ShadowScheduler(self.parts, fail, 60)
        self.begin()
        self.shadow.end(self.context, specs.versioned(self.request))


class TestRefused(shadow_fixtures.TestCase):

    def test_request_that_is_not_ended_in_time_was_refused(self):
        self.begin()
        self.now += 59.0
        self.shadow.expire()
        self.assertEqual([], self.kept)

        kept = self.expire()

        self.assertOutcome(Outcome.MORE, '', kept)
        self.assertIsNone(kept.nova_host)
        self.assertIsNotNone(kept.host)

    def test_none_is_found_by_neither(self):
        request = self.spec()
        request.flavor.memory_mb = 10 ** 6
        self.begin(self.keep(request))

        kept = self.expire()

        self.assertIs(Outcome.NEITHER, kept.verdict.outcome)
        self.assertIsNone(kept.host)

    def test_none_is_found_here_alone(self):
        request = self.spec()
        request.flavor.memory_mb = 10 ** 6
        self.begin(self.keep(request))
        self.placement.claim(self.hosts.uuids[1])

        kept = self.end()

        self.assertIs(Outcome.NONE, kept.verdict.outcome)
        self.assertTrue(kept.verdict.reason)

    def test_end_that_was_lost_is_seen_in_placement(self):
        self.begin()
        self.placement.claim(self.hosts.uuids[3])

        self.assertOutcome(Outcome.SAME, '', self.expire())

    def test_several_of_which_not_all_fit_may_be_one_that_moves(self):
        self.begin(self.keep(self.spec(num_instances=100)))

        self.assertOutcome(Outcome.UNKNOWN, 'how many servers were asked for',
                           self.expire())


class TestSeveral(shadow_fixtures.TestCase):

    def test_first_is_compared_and_others_are_counted(self):
        self.begin(self.keep(self.spec(num_instances=3)))
        self.placement.claim(self.hosts.uuids[3])
        # Nova names the last one in the end.
        self.request.instance_uuid = specs.SECOND

        kept = self.end()

        self.assertOutcome(Outcome.SAME, '', kept)
        self.assertEqual((specs.SERVER, 2), (kept.instance_uuid, kept.others))

    def test_first_is_compared_where_not_all_fit_here(self):
        self.begin(self.keep(self.spec(num_instances=100)))
        self.placement.claim(self.hosts.uuids[3])

        self.assertOutcome(Outcome.SAME, '', self.end())

    def test_what_nova_claimed_for_others_excuses_another_choice(self):
        self.placement.claim(self.hosts.uuids[1])
        self.begin(self.keep(self.spec(num_instances=3)))

        self.assertOutcome(
            Outcome.UNKNOWN, 'what was claimed for the other servers',
            self.end())


class TestRebuilt(shadow_fixtures.TestCase):
    """A server that gets another image holds what it held before."""

    def setUp(self):
        super().setUp()
        self.placement.claim(self.hosts.uuids[3])
        request = self.keep(self.spec())
        request.scheduler_hints = {'_nova_check_type': ['rebuild']}
        request.force_hosts = [self.hosts.table['host'][3]]
        self.hosts.reported_nodes = lambda instances: dict.fromkeys(
            instances, self.hosts.uuids[3])
        self.begin(request)

    def test_its_host_is_compared(self):
        self.assertOutcome(Outcome.SAME, '', self.end())

    def test_nova_refused_if_it_does_not_end(self):
        self.assertOutcome(Outcome.MORE, '', self.expire())


class TestHeld(shadow_fixtures.TestCase):

    def test_host_that_is_left_is_none_that_was_chosen(self):
        request = self.keep(self.spec())
        request.ignore_hosts = [self.hosts.table['host'][2]]
        self.placement.claim(self.hosts.uuids[2])
        self.begin(request)
        self.placement.claim(self.hosts.uuids[3])

        self.assertOutcome(Outcome.SAME, '', self.end())

    def test_several_hosts_cannot_be_told_apart(self):
        self.begin()
        for uuid in self.hosts.uuids[2:]:
            self.placement.claim(uuid)

        self.assertIs(Outcome.UNKNOWN, self.end().verdict.outcome)

    def test_host_of_a_child_provider_is_found(self):
        self.placement.roots[shadow_fixtures.CHILD] = self.hosts.uuids[3]
        self.begin()
        self.placement.claim(shadow_fixtures.CHILD, VGPU=1)

        self.assertOutcome(Outcome.SAME, '', self.end())

    def test_server_that_holds_nothing_cannot_be_compared(self):
        self.begin()

        self.assertOutcome(Outcome.UNKNOWN,
                           'the server holds nothing any more', self.end())

    def test_ports_that_nobody_tells_of_excuse_another_choice(self):
        self.begin()
        self.placement.claim(self.hosts.uuids[1], VCPU=1,
                             NET_BW_EGR_KILOBIT_PER_SEC=1000)

        kept = self.end()

        self.assertOutcome(Outcome.UNKNOWN, 'resources of ports', kept)
        self.assertIn('other weight', kept.verdict.detail)

    def test_ports_do_not_matter_where_the_choice_is_the_same(self):
        self.begin()
        self.placement.claim(self.hosts.uuids[3], VCPU=1,
                             NET_BW_EGR_KILOBIT_PER_SEC=1000)

        self.assertIs(Outcome.SAME, self.end().verdict.outcome)


class TestUnknown(shadow_fixtures.TestCase):

    def test_request_that_is_kept_nowhere_cannot_be_compared(self):
        self.begin(self.spec())

        self.assertOutcome(Outcome.UNKNOWN, 'RequestUnknown', self.end())

    def test_request_that_is_heard_of_too_late_is_not_compared(self):
        self.begin(age_s=61.0)

        self.assertOutcome(Outcome.UNKNOWN, 'heard of too late', self.end())

    def test_time_that_it_took_is_told(self):
        self.begin(age_s=2.5)
        self.placement.claim(self.hosts.uuids[3])

        self.assertEqual(2.5, self.end().late_s)

    def test_of_too_many_the_oldest_is_given_up(self):
        payload = specs.versioned(self.keep(self.spec()))
        for number in range(scheduler.PENDING_MAX + 1):
            self.context.request_id = f'req-{number}'
            self.shadow.begin(self.context, payload, 61.0)

        [kept] = self.kept
        self.assertEqual('req-0', kept.request_id)
        self.assertOutcome(Outcome.UNKNOWN, 'too many requests at a time',
                           kept)
