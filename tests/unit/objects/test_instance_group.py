# SPDX-License-Identifier: Apache-2.0
"""Groups of servers that are placed with regard to each other."""

import copy

from cellsched import exception
from cellsched import objects
from tests.unit import base
from tests.unit.objects import wire


def read(**data):
    sample = copy.deepcopy(wire.GROUP)
    sample['nova_object.data'].update(data)
    return objects.InstanceGroup.obj_from_primitive(sample)


class TestInstanceGroup(base.TestCase):

    def test_rules_are_texts_on_the_wire_and_numbers_to_those_who_read(self):
        group = objects.InstanceGroup(rules={
            'max_server_per_host': 3, 'max_skew': '1', 'spread': 'az'})

        self.assertEqual(
            {'max_server_per_host': 3, 'max_skew': 1, 'spread': 'az'},
            group.rules)
        self.assertEqual(
            {'max_server_per_host': '3', 'max_skew': '1', 'spread': 'az'},
            group.obj_to_primitive()['nova_object.data']['_rules'])

    def test_there_are_no_rules_unless_they_are_given(self):
        for group in (objects.InstanceGroup(), read(_rules={}),
                      read(_rules=None)):
            self.assertEqual({}, group.rules)

    def test_rules_that_are_not_known_are_passed_on(self):
        group = read(_rules={'newer': 'x'})

        self.assertEqual({}, group.rules)
        self.assertEqual({'newer': 'x'}, group.obj_to_primitive()[
            'nova_object.data']['_rules'])

    def test_rule_out_of_bounds_is_refused_when_it_is_read(self):
        for name, values in (
                ('max_server_per_host',
                 ('0', '-1', 'x', '', '1.5', str(2 ** 31), '9' * 10000)),
                ('max_skew', ('0', '1001', '\u0661')),
                ('spread', ('rack', ''))):
            for value in values:
                error = self.assertRaises(
                    exception.InvalidField, read, _rules={name: value})

                self.assertEqual(('InstanceGroup', f'rules.{name}'),
                                 (error.where, error.field))

    def test_rules_at_their_bounds_are_taken(self):
        for name, values in (('max_server_per_host', (1, 2 ** 31 - 1)),
                             ('max_skew', (1, 1000))):
            for value in values:
                self.assertEqual(
                    {name: value}, read(_rules={name: str(value)}).rules)

    def test_policy_of_older_senders_is_in_the_list(self):
        sample = copy.deepcopy(wire.GROUP)
        sample['nova_object.version'] = '1.10'
        del sample['nova_object.data']['policy']
        del sample['nova_object.data']['_rules']

        group = objects.InstanceGroup.obj_from_primitive(sample)

        self.assertEqual('anti-affinity', group.policy)

    def test_malformed_fields_are_named(self):
        for name, value in (('members', 7), ('policy', [1]),
                            ('_rules', ['x'])):
            error = self.assertRaises(
                exception.InvalidField, read, **{name: value})

            self.assertEqual(
                ('InstanceGroup', name), (error.where, error.field))
