# SPDX-License-Identifier: Apache-2.0
"""What answers of the scheduler are to Nova's client."""

import json

from tests.integration.nova import answering
from tests.integration.nova import base

SELECTION = 'nova.objects.selection.Selection'


class Answers(base.TestCase):

    def test_selection_is_one_of_nova(self):
        [uuid] = uuids = base.new(1)

        [[told]] = self.selected(uuids, alternates=False)

        [claim] = self.world.held_by(uuid)
        fields = told['fields']
        host = fields['service_host']
        cell = answering.HOSTS[host]
        self.assertEqual((SELECTION, '1.1'), (told['class'], told['version']))
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
             'availability_zone': answering.ZONES[cell]}, fields)

    def test_conductor_of_nova_can_go_on_with_a_selection(self):
        [[told]] = self.selected(base.new(1), alternates=False)

        host = told['fields']['service_host']
        self.assertEqual(
            {'retry': {'num_attempts': 1, 'hosts': [[host, host]]},
             'limits': {}}, told['properties'])

    def test_each_of_many_instances_has_its_list_in_order(self):
        uuids = base.new(6)

        found = self.selected(uuids)

        self.assertEqual(
            [claim.provider for uuid in uuids
             for claim in self.world.held_by(uuid)],
            [first['fields']['compute_node_uuid'] for first, *_ in found])
        self.assertEqual(6, len(found))

    def test_alternates_are_in_the_cell_and_not_chosen(self):
        for uuids in (base.new(1), base.new(2)):
            found = self.selected(uuids)

            for chosen, *others in found:
                self.assertEqual(
                    {chosen['fields']['cell_uuid']},
                    {each['fields']['cell_uuid'] for each in others}
                    or {chosen['fields']['cell_uuid']})
                names = [each['fields']['service_host'] for each in others]
                self.assertEqual(len(names), len(set(names)))
                self.assertEqual(set(), set(names) & set(base.hosts(found)))

    def test_alternates_are_those_that_there_are(self):
        for cell, count in (('cell1', 1), ('cell2', 2)):
            [[_, *others]] = self.selected(base.new(1), destination={
                'host': '', 'cell': self.world.cells[cell]})

            self.assertEqual(count, len(others))

    def test_answer_without_objects_is_dicts(self):
        for alternates in (False, True):
            found = self.selected(
                base.new(2), objects=False, alternates=alternates)

            self.assertEqual(2, len(found))
            for each in found:
                self.assertIn(each['host'], answering.HOSTS)
                self.assertEqual(
                    {'host': each['host'], 'nodename': each['host'],
                     'limits': {}}, each)

    def test_request_that_is_repeated_gets_the_same_and_takes_it_once(self):
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
            for host in answering.HOSTS:
                self.assertNotIn(host, json.dumps(error))

    def test_request_that_fits_only_in_part_takes_nothing(self):
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

    def test_older_caller_gets_as_many_as_it_asks_for_and_claims_none(self):
        for pin in ('ocata', '4.3', 'liberty', '4.0'):
            uuids = base.new(3)

            found = self.selected(
                uuids, pin, objects=False, alternates=False)

            self.assertEqual([{'host', 'nodename', 'limits'}] * 3,
                             [set(each) for each in found])
            self.assertLess({each['host'] for each in found},
                            set(answering.HOSTS))
            self.assertEqual([], [claim for uuid in uuids
                                  for claim in self.world.held_by(uuid)])

    def test_pinned_caller_that_wants_objects_refuses_itself(self):
        for pin in base.OLDER:
            error = self.refused(base.new(1), pin)

            self.assertEqual(
                ('SelectionObjectsWithOldRPCVersionNotSupported',
                 'nova.exception'), (error['class'], error['module']))

    def test_scheduler_answers_a_ping(self):
        self.assertEqual(
            {'service': 'scheduler', 'arg': {'how': 'are you'}},
            self.called('ping', arg={'how': 'are you'}))
