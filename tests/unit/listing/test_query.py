# SPDX-License-Identifier: Apache-2.0
"""Queries, their results and their refusals."""

from cellsched.db.cell import instance_children
from cellsched.db.cell import instance_list
from cellsched import exception
from cellsched.listing import query
from tests.unit.db import samples
from tests.unit.listing import base


class TestFilters(base.TestCase):
    """A row and a request are shown by the same filters."""

    def setUp(self):
        super().setUp()
        fields = {'display_name': 'Web 100%_a', 'image_ref': 'image',
                  'launch_index': 3}
        [self.built] = self.put(self.cell1, **fields)
        [self.waiting] = self.accept(**fields)
        self.accept(display_name='other', launch_index=4)
        self.put(self.cell2, display_name='other', launch_index=4)

    def shown(self, **filters):
        page = self.reader.list(self.context, query.ServerQuery(
            query.parse_filters(
                {name.replace('_', '-') if name in (
                    'tags_any', 'not_tags', 'not_tags_any', 'changes_since',
                    'changes_before') else name: value
                    for name, value in filters.items()}, 'project')))
        return {found.uuid for found in page.servers}

    def test_filters_show_requests_and_rows_alike(self):
        both = {self.built, self.waiting}
        for filters in ({'name': 'web'}, {'name': '100%_'},
                        {'image': 'image'}, {'image': ['x', 'image']},
                        {'launch_index': '3'},
                        {'name': 'eb', 'status': 'build'},
                        {'image_ref': 'image', 'vm_state': 'building'},
                        {'uuid': [*both]}):
            self.assertEqual(both, self.shown(**filters), filters)
        for filters in ({'name': '100_%'}, {'image': 'no'},
                        {'name': 'web', 'launch_index': '4'},
                        {'status': 'ACTIVE'}, {'host': 'h1'}):
            self.assertEqual(set(), self.shown(**filters), filters)

    def test_tags_match_all_any_or_not(self):
        self.write(self.targets.database(self.cell1),
                   instance_children.create_tags,
                   {self.built: ['a', 'b']})
        for filters, shown in (
                ({'tags': 'a,b'}, True), ({'tags': ['a', 'c']}, False),
                ({'tags_any': 'c,a'}, True), ({'tags_any': 'c'}, False),
                ({'not_tags': 'a,b'}, False), ({'not_tags': 'a,c'}, True),
                ({'not_tags_any': 'c'}, True),
                ({'not_tags_any': 'c,a'}, False)):
            self.assertEqual(
                shown, self.built in self.shown(**filters), filters)

    def test_deleted_servers_are_shown_on_request(self):
        self.write(self.targets.database(self.cell1), samples.put, self.built,
                   {'vm_state': 'deleted', 'deleted': 7})

        self.assertEqual({self.built}, self.shown(deleted='true'))
        self.assertEqual({self.built}, self.shown(status='DELETED'))
        self.assertNotIn(self.built, self.shown())
        self.assertIn(self.built, self.shown(changes_since=str(samples.NOW)))

    def test_changes_are_filtered_by_their_time(self):
        self.write(self.targets.database(self.cell1), samples.put, self.built,
                   {'task_state': None}, now=samples.LATER)

        self.assertEqual(
            {self.built}, self.shown(changes_since=str(samples.LATER)))
        self.assertNotIn(
            self.built, self.shown(changes_before=str(samples.NOW)))


class TestQuery(base.TestCase):

    def refused(self, function, *args, **kwargs):
        return str(self.assertRaises(
            exception.InvalidField, function, *args, **kwargs))

    def test_unknown_sort_key_is_named(self):
        self.assertIn("unknown sort key 'id'", self.refused(
            query.order, ['id']))
        self.assertIn('each key once', self.refused(
            query.order, ['uuid', 'uuid']))
        self.assertIn('asc or desc', self.refused(
            query.order, ['uuid'], ['up']))
        self.assertIn('too many directions', self.refused(
            query.order, ['uuid'], ['asc', 'asc']))
        self.assertIn("unknown sort key 'host'", self.refused(
            query.order, ['host'], is_admin=False))

    def test_lists_and_mappings_of_other_types_are_refused(self):
        for values in ([['a']], [{}], [None], [5], 'uuid', 5, None, {}):
            self.assertIn('sort_keys: expected a list', self.refused(
                query.order, values))
            self.assertIn('sort_dirs: expected a list', self.refused(
                query.order, ['uuid'], values))
        for filters in ['a'], 5, 'a', [('name', 'b')]:
            self.assertIn('filters: expected a mapping', self.refused(
                query.parse_filters, filters, None))

    def test_unknown_filter_is_named(self):
        for filters in ({'id': '1'}, {"x'; --": 'a'}, {'name': ''},
                        {'name': ['a', 'b']}, {'name': 'a\0b'},
                        {'name': 'a' * 256}, {'uuid': []},
                        {'uuid': ['a'] * 101}, {'power_state': '-1'},
                        {'power_state': '9' * 40}, {'deleted': 'maybe'},
                        {'changes-since': 'yesterday'},
                        {'changes-since': None}, {'status': 1},
                        {'status': 'ACTIVE,ERROR'}, {'status': 'UNKNOWN'},
                        {'image': 'a', 'image_ref': 'b'}):
            self.assertIn('filters', self.refused(
                query.parse_filters, filters, None), filters)
        for name in 'host', 'node', 'deleted', 'project_id', 'tenant_id':
            self.assertIn(name, self.refused(
                query.parse_filters, {name: 'x'}, 'project', is_admin=False))

    def test_project_is_read_from_the_context(self):
        self.assertEqual(
            {'project_id': ['project']},
            query.parse_filters({}, 'project', is_admin=False).matches)

    def test_every_order_ends_with_a_unique_key(self):
        for key in instance_list.SORT_KEYS:
            self.assertIn('uuid', query.order([key]).names)
        self.assertEqual(
            (('host', False), ('node', True), ('uuid', True)),
            query.order(['host', 'node'], ['asc', 'desc']).keys)
        self.assertEqual(
            (('host', False), ('node', False), ('uuid', False)),
            query.order(['host', 'node'], ['asc']).keys)
