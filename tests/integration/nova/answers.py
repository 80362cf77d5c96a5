# SPDX-License-Identifier: Apache-2.0
"""Answers of the scheduler, as Nova's client receives them."""

import json

from tests.integration.nova import base
from tests.integration.nova import scheduler

SELECTION = 'nova.objects.selection.Selection'


class Answers(base.TestCase):

    def test_selection_is_an_object_of_nova(self):
        [uuid] = uuids = base.new(1)

        [[selection]] = self.selected(uuids, alternates=False)

        [claim] = self.world.held_by(uuid)
        fields = selection['fields']
        host = fields['service_host']
        cell = scheduler.HOSTS[host]
        self.assertEqual((SELECTION, '1.1'),
                         (selection['class'], selection['version']))
        self.assertEqual(
            {'allocations': {claim.provider: {'resources': {
                'VCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 2}}},
             'mappings': {'': [claim.provider]}},
            json.loads(fields.pop('allocation_request')))
        self.assertEqual(
            {'class': 'nova.objects.request_spec.SchedulerLimits',
             'version': '1.0', 'fields': {
                 'numa_topology': None, 'vcpu': None, 'disk_gb': None,
                 'memory_mb': None}}, fields.pop('limits'))
        self.assertRegex(fields.pop('allocation_request_version'),
                         r'^1\.\d+$')
        self.assertEqual(
            {'compute_node_uuid': claim.provider, 'service_host': host,
             'nodename': host, 'cell_uuid': self.world.cells[cell],
             'availability_zone': scheduler.ZONES[cell]}, fields)

    def test_conductor_of_nova_reads_a_selection(self):
        [[selection]] = self.selected(base.new(1), alternates=False)

        host = selection['fields']['service_host']
        self.assertEqual(
            {'retry': {'num_attempts': 1, 'hosts': [[host, host]]},
             'limits': {}}, selection['properties'])

    def test_each_instance_has_its_list_in_order(self):
        uuids = base.new(6)

        found = self.selected(uuids)

        self.assertEqual(
            [claim.provider for uuid in uuids
             for claim in self.world.held_by(uuid)],
            [first['fields']['compute_node_uuid'] for first, *_ in found])
        self.assertEqual(6, len(found))

    def test_alternates_are_other_hosts_of_the_cell(self):
        """Hosts of other servers of the request come last."""
        for uuids in (base.new(1), base.new(2)):
            found = self.selected(uuids)

            for chosen, *alternates in found:
                self.assertEqual(
                    {chosen['fields']['cell_uuid']},
                    {each['fields']['cell_uuid'] for each in alternates}
                    or {chosen['fields']['cell_uuid']})
                names = [each['fields']['service_host'] for each in alternates]
                self.assertEqual(len(names), len(set(names)))
                self.assertNotIn(chosen['fields']['service_host'], names)
                taken = [name in base.hosts(found) for name in names]
                self.assertEqual(sorted(taken), taken)

    def test_alternates_are_limited_to_the_hosts_of_the_cell(self):
        for cell, count in (('cell1', 1), ('cell2', 2)):
            [[_, *alternates]] = self.selected(base.new(1), destination={
                'host': '', 'cell': self.world.cells[cell]})

            self.assertEqual(count, len(alternates))

    def test_answer_without_objects_is_a_list_of_dicts(self):
        for alternates in (False, True):
            found = self.selected(
                base.new(2), objects=False, alternates=alternates)

            self.assertEqual(2, len(found))
            for each in found:
                self.assertIn(each['host'], scheduler.HOSTS)
                self.assertEqual(
                    {'host': each['host'], 'nodename': each['host'],
                     'limits': {}}, each)

    def test_repeated_request_gets_the_same_hosts_and_a_single_claim(self):
        uuids = base.new(2)
        first = self.selected(uuids, alternates=False)
        held = [self.world.held_by(uuid) for uuid in uuids]

        again = self.selected(uuids, alternates=False)

        self.assertEqual(base.hosts(first), base.hosts(again))
        self.assertEqual(
            held, [self.world.held_by(uuid) for uuid in uuids])

    def test_no_valid_host_is_an_exception_of_nova(self):
        for error in self.refused_by_all(flavor=base.GIANT):
            self.assertEqual(
                ('NoValidHost_Remote', 'nova.exception_Remote'),
                (error['class'], error['module']))
            self.assertIn('nova.exception.NoValidHost', error['mro'])
            self.assertRegex(
                error['message'],
                r'^No valid host was found\. .*\b5 hosts.*memory')
            self.assertEqual({'reason', 'code'}, set(error['kwargs']))
            self.assertEqual(500, error['kwargs']['code'])
            for host in scheduler.HOSTS:
                self.assertNotIn(host, json.dumps(error))

    def test_request_fitting_in_part_claims_no_resources(self):
        uuids = base.new(7)

        self.refused(uuids, flavor={**base.SMALL, 'memory_mb': 40000})

        self.assertEqual([], [claim for uuid in uuids
                              for claim in self.world.held_by(uuid)])

    def test_caller_pinned_to_pike_claims(self):
        uuids = base.new(2)

        found = self.selected(uuids, 'pike', objects=False, alternates=False)

        self.assertEqual([{'host', 'nodename', 'limits'}] * 2,
                         [set(each) for each in found])
        self.assertEqual(
            [1, 1], [len(self.world.held_by(uuid)) for uuid in uuids])

    def test_older_caller_gets_all_its_hosts_without_claims(self):
        for pin in ('ocata', '4.3', 'liberty', '4.0'):
            uuids = base.new(3)

            found = self.selected(
                uuids, pin, objects=False, alternates=False)

            self.assertEqual([{'host', 'nodename', 'limits'}] * 3,
                             [set(each) for each in found])
            self.assertLess({each['host'] for each in found},
                            set(scheduler.HOSTS))
            self.assertEqual([], [claim for uuid in uuids
                                  for claim in self.world.held_by(uuid)])

    def test_pinned_caller_rejects_a_request_for_objects(self):
        for pin in base.OLDER:
            error = self.refused(base.new(1), pin)

            self.assertEqual(
                ('SelectionObjectsWithOldRPCVersionNotSupported',
                 'nova.exception'), (error['class'], error['module']))

    def test_scheduler_answers_a_ping(self):
        self.assertEqual(
            {'service': 'scheduler', 'arg': {'how': 'are you'}},
            self.called('ping', arg={'how': 'are you'}))
