# SPDX-License-Identifier: Apache-2.0
"""Decisions on notified requests are compared with Nova's."""

import dataclasses
import datetime
import queue

from nova import objects as nova_objects
from nova import rpc
import oslo_messaging
from oslo_utils import timeutils

from cellsched import exception
from cellsched_nova import placement
from cellsched_nova.shadow import comparison
from cellsched_nova.shadow import requests
from cellsched_nova.shadow import scheduler
from tests import shadow_fixtures
from tests import specs

Outcome = comparison.Outcome


class TestShadow(shadow_fixtures.TestCase):

    def test_host_claimed_by_nova_is_compared(self):
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

    def test_claim_of_nova_counts_as_free_capacity(self):
        self.placement.claim(self.hosts.uuids[3])
        self.begin()

        self.assertOutcome(Outcome.SAME, '', self.end())
        self.assertEqual({self.hosts.uuids[3]}, self.hosts.expired)

    def test_different_selection_has_a_reason(self):
        self.begin()
        self.placement.claim(self.hosts.uuids[1])

        kept = self.end()

        self.assertOutcome(Outcome.WEIGHT, 'RAMWeigher', kept)
        self.assertIn('rank 3', kept.verdict.detail)

    def test_rejected_host_has_the_filter_as_reason(self):
        self.begin()
        self.placement.claim(self.hosts.uuids[0])

        self.assertOutcome(Outcome.REJECTED, 'ComputeFilter', self.end())

    def change(self, uuid, **values):
        """Change the facts of a host since the last read."""
        before = placement.ProviderFacts(
            {'MEMORY_MB': 4000}, {'MEMORY_MB': 100}, {}, {}, frozenset())
        self.hosts.last_changes = {uuid: before}
        self.hosts.facts = {
            uuid: dataclasses.replace(before, **values)}.get

    def test_difference_by_a_changed_host_is_unknown(self):
        request = self.keep(self.spec())
        for uuid in self.hosts.uuids[1], self.hosts.uuids[3]:
            self.kept.clear()
            self.change(uuid, used={'MEMORY_MB': 300})
            self.begin(request)
            self.placement.claim(self.hosts.uuids[1])

            kept = self.end()

            self.assertOutcome(
                Outcome.UNKNOWN,
                'changes of a host since the decision of Nova', kept)
            self.assertIn('other weight: RAMWeigher', kept.verdict.detail)
            self.placement.held.clear()

    def test_claim_of_nova_is_no_other_change(self):
        self.change(self.hosts.uuids[1], used={
            'MEMORY_MB': 612, 'VCPU': 1, 'DISK_GB': 1})
        self.placement.claim(self.hosts.uuids[1])
        self.begin()

        self.assertOutcome(Outcome.WEIGHT, 'RAMWeigher', self.end())

    def test_change_of_another_host_is_ignored(self):
        self.change(self.hosts.uuids[2], used={'MEMORY_MB': 300})
        self.begin()
        self.placement.claim(self.hosts.uuids[1])

        self.assertOutcome(Outcome.WEIGHT, 'RAMWeigher', self.end())

    def refuse(self, **values):
        self.shadow.refuse(self.context, specs.refusal(
            self.request, **values))

    def test_refusal_after_a_start_is_compared_at_once(self):
        self.begin()

        self.refuse()

        self.assertOutcome(Outcome.MORE, '', *self.kept)

    def test_refusal_without_a_start_is_compared(self):
        request = self.spec()
        request.flavor.memory_mb = 2 ** 20
        self.request = self.keep(request)

        self.refuse()

        self.assertOutcome(Outcome.NEITHER, '', *self.kept)

    def test_other_errors_of_conductors_are_ignored(self):
        self.request = self.keep(self.spec())

        self.refuse(exception='MaxRetriesExceeded')
        self.refuse(instance_uuid=specs.MEMBER)

        self.assertEqual([], self.kept)

    def test_claim_of_nova_during_the_decision_counts_as_free_capacity(self):
        def claim():
            self.placement.when_asked.clear()
            self.placement.claim(self.hosts.uuids[3])

        self.placement.when_asked.append(claim)
        self.begin()

        self.assertOutcome(Outcome.SAME, '', self.end())

    def test_capacity_claimed_by_nova_is_missing_among_candidates(self):
        request = self.spec(extra_specs={'resources1:VCPU': '1'})
        self.placement.offering = [self.hosts.uuids[1]]
        self.placement.claim(self.hosts.uuids[3])
        self.begin(self.keep(request))

        self.assertOutcome(
            Outcome.UNKNOWN, 'free capacity before the claim of Nova',
            self.end())

    def test_host_of_allocation_candidates_is_compared(self):
        request = self.spec(extra_specs={'resources1:VCPU': '1'})
        self.placement.offering = self.hosts.uuids[1:3]
        self.begin(self.keep(request))
        self.placement.claim(self.hosts.uuids[3])

        self.assertOutcome(Outcome.REJECTED, 'CandidateHosts', self.end())

    def test_host_of_another_cell_cannot_be_compared(self):
        request = self.keep(self.spec())
        cell = nova_objects.CellMapping(
            self.context.elevated(), uuid=specs.MEMBER, name='north',
            transport_url='fake://', database_connection='sqlite://')
        cell.create()
        request.requested_destination = nova_objects.Destination(cell=cell)
        self.begin(request)
        self.placement.claim(self.hosts.uuids[0])

        self.assertOutcome(Outcome.UNKNOWN, 'moves between cells', self.end())

    def test_error_is_the_reason_and_is_raised(self):
        self.placement.when_asked.append(lambda: 1 / 0)
        self.assertRaises(ZeroDivisionError, self.begin)
        self.assertOutcome(Outcome.UNKNOWN, 'ZeroDivisionError', self.end())

        self.kept.clear()
        self.placement.when_asked.clear()
        self.begin(self.request)
        self.placement.when_asked.append(lambda: 1 / 0)
        self.assertRaises(ZeroDivisionError, self.end)
        self.assertOutcome(Outcome.UNKNOWN, 'ZeroDivisionError', *self.kept)

    def test_shadow_claims_and_counts_no_resources(self):
        before = self.hosts.table['available:MEMORY_MB'].tolist()
        self.begin()

        self.assertEqual(
            before, self.hosts.table['available:MEMORY_MB'].tolist())
        self.assertEqual({}, self.store.claims_of([specs.SERVER]))

    def test_end_without_a_start_is_ignored(self):
        self.shadow.end(self.context, specs.versioned(self.spec()))

        self.assertEqual([], self.kept)

    def test_request_with_a_second_start_was_refused(self):
        self.begin()
        self.begin(self.request)

        self.assertOutcome(Outcome.MORE, '', *self.kept)

    def test_failed_storage_of_a_comparison_does_not_stop_the_shadow(self):
        failed = []

        def fail(comparison):
            failed.append(comparison)
            raise exception.DatabaseUnreachable(
                schema='records', url='', reason='it is down')

        self.shadow = scheduler.ShadowScheduler(self.parts, fail, 60)
        self.begin()
        self.shadow.end(self.context, specs.versioned(self.request))

        self.assertEqual(1, len(failed))


class TestRefused(shadow_fixtures.TestCase):

    def test_request_without_an_end_in_time_was_refused(self):
        self.begin()
        self.now += 59.0
        self.shadow.expire()
        self.assertEqual([], self.kept)

        kept = self.expire()

        self.assertOutcome(Outcome.MORE, '', kept)
        self.assertIsNone(kept.nova_host)
        self.assertIsNotNone(kept.host)

    def test_refusals_of_nova_and_the_shadow_agree(self):
        request = self.spec()
        request.flavor.memory_mb = 10 ** 6
        self.begin(self.keep(request))

        kept = self.expire()

        self.assertIs(Outcome.NEITHER, kept.verdict.outcome)
        self.assertIsNone(kept.host)

    def test_refusal_missing_in_nova_is_a_difference(self):
        request = self.spec()
        request.flavor.memory_mb = 10 ** 6
        self.begin(self.keep(request))
        self.placement.claim(self.hosts.uuids[1])

        kept = self.end()

        self.assertIs(Outcome.NONE, kept.verdict.outcome)
        self.assertTrue(kept.verdict.reason)

    def test_lost_end_is_detected_in_placement(self):
        self.begin()
        self.placement.claim(self.hosts.uuids[3])

        self.assertOutcome(Outcome.SAME, '', self.expire())

    def test_number_of_servers_of_a_refused_request_is_unknown(self):
        self.begin(self.keep(self.spec(num_instances=100)))

        self.assertOutcome(Outcome.UNKNOWN, 'number of requested servers',
                           self.expire())


class TestSeveralServers(shadow_fixtures.TestCase):

    def test_first_server_is_compared_and_the_rest_counted(self):
        self.begin(self.keep(self.spec(num_instances=3)))
        self.placement.claim(self.hosts.uuids[3])
        # The end notification names the last server.
        self.request.instance_uuid = specs.SECOND

        kept = self.end()

        self.assertOutcome(Outcome.SAME, '', kept)
        self.assertEqual((specs.SERVER, 2), (kept.instance_uuid, kept.others))

    def test_first_server_is_compared_if_several_do_not_fit(self):
        self.begin(self.keep(self.spec(num_instances=100)))
        self.placement.claim(self.hosts.uuids[3])

        self.assertOutcome(Outcome.SAME, '', self.end())

    def test_claims_of_the_other_servers_explain_a_difference(self):
        self.placement.claim(self.hosts.uuids[1])
        self.begin(self.keep(self.spec(num_instances=3)))

        self.assertOutcome(
            Outcome.UNKNOWN, 'claims of the other servers',
            self.end())


class TestRebuild(shadow_fixtures.TestCase):
    """A rebuild with another image changes no allocations."""

    def setUp(self):
        super().setUp()
        self.placement.claim(self.hosts.uuids[3])
        request = self.keep(self.spec())
        request.scheduler_hints = {'_nova_check_type': ['rebuild']}
        request.force_hosts = [self.hosts.table['host'][3]]
        self.hosts.reported_nodes = lambda instances: dict.fromkeys(
            instances, self.hosts.uuids[3])
        self.begin(request)

    def test_host_of_the_server_is_compared(self):
        self.assertOutcome(Outcome.SAME, '', self.end())

    def test_missing_end_means_a_refusal_by_nova(self):
        self.assertOutcome(Outcome.MORE, '', self.expire())


class TestAllocations(shadow_fixtures.TestCase):

    def test_source_host_of_a_move_is_not_the_selected_host(self):
        request = self.keep(self.spec())
        request.ignore_hosts = [self.hosts.table['host'][2]]
        self.placement.claim(self.hosts.uuids[2])
        self.begin(request)
        self.placement.claim(self.hosts.uuids[3])

        self.assertOutcome(Outcome.SAME, '', self.end())

    def test_allocations_of_several_hosts_cannot_be_compared(self):
        self.begin()
        for uuid in self.hosts.uuids[2:]:
            self.placement.claim(uuid)

        self.assertIs(Outcome.UNKNOWN, self.end().verdict.outcome)

    def test_host_of_a_child_provider_is_found(self):
        self.placement.roots[shadow_fixtures.CHILD] = self.hosts.uuids[3]
        self.begin()
        self.placement.claim(shadow_fixtures.CHILD, VGPU=1)

        self.assertOutcome(Outcome.SAME, '', self.end())

    def test_server_without_allocations_cannot_be_compared(self):
        self.begin()

        self.assertOutcome(Outcome.UNKNOWN,
                           'the server has no allocations any more',
                           self.end())

    def test_unknown_ports_explain_a_difference(self):
        self.begin()
        self.placement.claim(self.hosts.uuids[1], VCPU=1,
                             NET_BW_EGR_KILOBIT_PER_SEC=1000)

        kept = self.end()

        self.assertOutcome(Outcome.UNKNOWN, 'resources of ports', kept)
        self.assertIn('other weight', kept.verdict.detail)

    def test_ports_are_ignored_for_the_same_selection(self):
        self.begin()
        self.placement.claim(self.hosts.uuids[3], VCPU=1,
                             NET_BW_EGR_KILOBIT_PER_SEC=1000)

        self.assertIs(Outcome.SAME, self.end().verdict.outcome)


class TestUnknown(shadow_fixtures.TestCase):

    def test_deleted_request_cannot_be_compared(self):
        self.begin(self.spec())

        self.assertOutcome(Outcome.UNKNOWN, 'RequestUnknown', self.end())

    def test_late_request_is_not_compared(self):
        self.begin(age_s=61.0)

        self.assertOutcome(
            Outcome.UNKNOWN, 'the notification came too late', self.end())

    def test_delay_of_the_decision_is_recorded(self):
        self.begin(age_s=2.5)
        self.placement.claim(self.hosts.uuids[3])

        self.assertEqual(2.5, self.end().late_s)

    def test_oldest_request_above_the_limit_is_given_up(self):
        payload = specs.versioned(self.keep(self.spec()))
        for number in range(scheduler.PENDING_MAX + 1):
            self.context.request_id = f'req-{number}'
            self.shadow.begin(self.context, payload, 61.0)

        [kept] = self.kept
        self.assertEqual('req-0', kept.request_id)
        self.assertOutcome(Outcome.UNKNOWN, 'too many requests at a time',
                           kept)


BEGUN, ENDED = (f'scheduler.select_destinations.{phase}'
                for phase in ('start', 'end'))

#: Seconds to wait before a test fails.
TIMEOUT_S = 300


class ShadowRecorder:
    """A shadow scheduler that records its calls."""

    def __init__(self):
        self.received = queue.SimpleQueue()

    def begin(self, context, payload, age_s):
        self.received.put(('begin', context.request_id, payload))

    def end(self, context, payload):
        self.received.put(('end', context.request_id, payload))

    def next(self):
        return self.received.get(timeout=TIMEOUT_S)


class OtherListener:
    """Another listener."""

    def __init__(self):
        self.received = queue.SimpleQueue()

    def info(self, context, publisher_id, event_type, payload, metadata):
        self.received.put(event_type)


class ListenerTestCase(specs.TestCase):

    def setUp(self):
        super().setUp()
        self.transport = oslo_messaging.get_notification_transport(specs.CONF)
        self.shadow = ShadowRecorder()
        self.endpoint = scheduler.Endpoint(self.shadow)

    def start(self, server):
        server.start(override_pool_size=1)
        self.addCleanup(server.wait)
        self.addCleanup(server.stop)

    def notify(self, topic, event_type, payload):
        oslo_messaging.Notifier(
            self.transport, publisher_id='scheduler.host1',
            serializer=rpc.RequestContextSerializer(
                rpc.JsonPayloadSerializer()),
            driver='messaging', topics=[topic]).info(
                self.context, event_type, payload)


class TestListener(ListenerTestCase):

    def listen(self, form, topic):
        specs.CONF.set_override(
            'notification_format', form, 'notifications')
        self.addCleanup(specs.CONF.clear_override, 'notification_format',
                        'notifications')
        self.start(scheduler.listener(specs.CONF, self.endpoint))
        self.assertEqual([topic], scheduler.topics(specs.CONF))

    def test_both_formats_are_received_in_order(self):
        for form, topic in (('both', 'versioned_notifications'),
                            ('unversioned', 'notifications')):
            with self.subTest(form):
                self.shadow.received = queue.SimpleQueue()
                self.listen(form, topic)
                for event_type in BEGUN, 'scheduler.other', ENDED:
                    self.notify(topic, event_type, {'number': 1})

                self.assertEqual(
                    [('begin', 'req-1', {'number': 1}),
                     ('end', 'req-1', {'number': 1})],
                    [self.shadow.next() for _ in range(2)])

    def test_other_listeners_receive_the_same(self):
        other = OtherListener()
        self.listen('both', 'versioned_notifications')
        self.start(oslo_messaging.get_notification_listener(
            self.transport,
            [oslo_messaging.Target(topic='versioned_notifications')],
            [other], executor='threading'))

        self.notify('versioned_notifications', BEGUN, {})

        self.assertEqual('begin', self.shadow.next()[0])
        self.assertEqual(BEGUN, other.received.get(timeout=TIMEOUT_S))


class TestEndpoint(ListenerTestCase):

    def test_failed_notification_does_not_stop_the_listener(self):
        for error, level in ((requests.RequestUnknown(reason=''), 'WARNING'),
                             (RuntimeError('no'), 'ERROR')):
            def fail(*arguments, error=error):
                raise error

            self.shadow.begin = self.shadow.end = fail
            for event_type in BEGUN, ENDED:
                with self.assertLogs(
                        'cellsched_nova.shadow.scheduler') as logged:
                    # Any other result would deliver the notification again.
                    self.assertIsNone(self.endpoint.info(
                        self.context, 'scheduler.host1', event_type, {}, {}))
                self.assertEqual([level], [
                    each.levelname for each in logged.records])

    def test_failed_comparison_does_not_stop_the_listener(self):
        def fail():
            raise RuntimeError('no')

        self.shadow.expire = fail
        with self.assertLogs('cellsched_nova.shadow.scheduler', 'ERROR'):
            self.endpoint.expire()

    def test_age_is_the_time_since_the_notification_was_sent(self):
        ages = []
        self.shadow.begin = lambda context, payload, age_s: ages.append(age_s)
        sent_at = timeutils.utcnow() - datetime.timedelta(seconds=100)
        for metadata in ({'timestamp': str(sent_at)}, {'timestamp': 'late'},
                         {}):
            self.endpoint.info(self.context, '', BEGUN, {}, metadata)

        self.assertGreaterEqual(ages[0], 100.0)
        self.assertEqual([0.0, 0.0], ages[1:])


class TestProblems(ListenerTestCase):

    def test_driver_without_listeners_is_named(self):
        for drivers, names in ((['noop'], ['driver']), ([], ['driver']),
                               (['log', 'messagingv2'], [])):
            specs.CONF.set_override(
                'driver', drivers, 'oslo_messaging_notifications')
            self.addCleanup(specs.CONF.clear_override, 'driver',
                            'oslo_messaging_notifications')

            found = scheduler.problems(specs.CONF)

            self.assertEqual(len(names), len(found))
            for name, problem in zip(names, found):
                self.assertIn(name, problem)
