# SPDX-License-Identifier: Apache-2.0
"""Acceptance of servers of an embedder."""

import uuid

from cellsched import context
from cellsched.db.api import build_requests
from cellsched.db.api import request_specs
from cellsched import exception
from tests.unit.embedding import embedded

USER = context.RequestContext(project_id='orchestra', user_id='conductor')


class TestAccept(embedded.EmbeddedTestCase):

    def accept(self, names, min_count=1, **groups):
        self.conductor = self.make(**groups)
        return self.conductor.accept(
            USER, names, embedded.spec(), min_count)

    def test_accepted_server_waits_for_its_cell(self):
        one = str(uuid.uuid4())

        self.assertEqual([one], self.accept({one: 'violin'}))

        found = self.conductor.get(USER, one)
        self.assertEqual(
            ('violin', 'BUILD', None), (found.name, found.status, found.cell))
        mapping = self.conductor.mappings.instances([one])[one]
        self.assertIsNone(mapping.cell_mapping)
        self.assertEqual('orchestra', mapping.project_id)

    def test_batch_is_kept_as_what_was_asked_for(self):
        uuids = sorted(str(uuid.uuid4()) for _ in range(3))

        self.accept(dict.fromkeys(uuids, 'it'), min_count=2)

        with self.conductor.parts.database.reader() as connection:
            found = build_requests.read(connection, uuids)
            spec = request_specs.get(connection, uuids[1])
        self.assertEqual([2] * 3, [each.min_count for each in found])
        self.assertEqual([0, 1, 2], [
            each.request.instance.launch_index for each in found])
        self.assertEqual(
            (3, uuids[1], 'orchestra'), tuple(
                spec['nova_object.data'][name] for name in (
                    'num_instances', 'instance_uuid', 'project_id')))

    def test_what_was_accepted_is_not_accepted_again(self):
        one, two = str(uuid.uuid4()), str(uuid.uuid4())
        self.accept({one: 'it'})

        for wanted in ([two], []):
            self.assertEqual(wanted, self.conductor.accept(
                USER, {one: 'other', two: 'other'}, embedded.spec()))
        self.assertEqual('it', self.conductor.get(USER, one).name)

    def test_server_beyond_the_quota_is_refused(self):
        one = str(uuid.uuid4())

        self.assertRaises(exception.OverQuota, self.accept, {one: 'it'},
                          quota={'cores': 1})

        self.assertEqual({}, self.conductor.mappings.instances([one]))
