# SPDX-License-Identifier: Apache-2.0
"""The document of a decision."""

import json

from cellsched import objects
from cellsched.scheduler.explanation import decision_document
from cellsched.testing import builders
from tests.unit import base
from tests.unit.db import samples


class TestSummary(base.TestCase):

    def summary(self, **wishes):
        return decision_document.summary(builders.request(**wishes), 2)

    def test_it_says_what_was_asked_for(self):
        self.assertEqual({
            'project_id': 'project', 'user_id': 'user', 'instances': 2,
            'flavor': 'small', 'image': '00000000-0000-0000-0000-000000000002',
            'resources': {'VCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 1},
            'availability_zone': 'north', 'hints': {'a': ['b', 'c']},
            'group': '00000000-0000-0000-0000-000000000003',
            'group_policy': 'affinity', 'force_hosts': ['x'],
            'force_nodes': [], 'ignore_hosts': ['y']},
            self.summary(
                image={'hw': 'x'}, availability_zone='north',
                hints={'a': ['b', 'c']}, group={'policy': 'affinity'},
                force_hosts=['x'], ignore_hosts=['y']))

    def test_what_users_wrote_is_cut_to_a_size(self):
        found = self.summary(
            hints={f'{"k" * 1000}{number}': ['v' * 1000] * 1000
                   for number in range(1000)},
            ignore_hosts=['h' * 1000] * 1000, project_id='p' * 10_000)

        self.assertGreater(200_000, len(json.dumps(found)))
        self.assertEqual('… 980 more', found['ignore_hosts'][-1])

    def test_credentials_stay_out(self):
        found = self.summary(requested_destination=objects.Destination(
            host='h', node=None, cell=samples.cell(
                database_connection='mysql://u:secret@h/d',
                transport_url='rabbit://u:secret@h')))

        self.assertNotIn('secret', json.dumps(found))
        self.assertEqual('h', found['destination']['host'])
