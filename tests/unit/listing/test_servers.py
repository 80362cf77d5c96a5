# SPDX-License-Identifier: Apache-2.0
"""Reading servers from the API database and the cells."""

import base64
import datetime
import threading

import hypothesis
from hypothesis import strategies
import sqlalchemy as sa

from cellsched.cells import target
from cellsched import clock
from cellsched import context
from cellsched.db.api import build_requests
from cellsched.db.api import instance_mappings
from cellsched.db.api import models
from cellsched.db.cell import instance_children
from cellsched.db.cell import instance_history
from cellsched.db.cell import instances
from cellsched import exception
from cellsched.listing import query
from cellsched.listing.servers import ListingPolicy
from cellsched import objects
from tests.unit.db import samples
from tests.unit.listing import base


class TestServers(base.TestCase):

    def test_unreadable_request_is_shown_as_unreadable(self):
        broken, whole = self.accept(2)
        self.write(self.database, samples.spoil, broken, 'build_requests',
                   instance='nonsense')

        shown = {each.uuid: each for each in self.list_all().servers}

        self.assertEqual({broken, whole}, {*shown})
        self.assertEqual(
            ('BUILD', None, f'The build request of {broken} cannot be read.'),
            (shown[broken].status, shown[broken].name,
             shown[broken].reason))
        self.assertEqual(shown[broken], self.get(broken)[0])

    def test_server_without_a_cell_is_its_request(self):
        [uuid] = self.accept(display_name='web')

        found, cell = self.get(uuid)

        self.assertEqual(('web', 'BUILD', None), (
            found.name, found.status, found.cell))
        self.assertIsNone(cell)

    def test_server_is_listed_from_its_request_until_deleted(self):
        [uuid] = self.accept()
        self.decide(self.cell1, [uuid])
        self.add_rows(self.cell1, [uuid], host='h1')
        self.assertEqual((None, None), (
            self.get(uuid)[0].cell, self.get(uuid)[0].host))
        self.assertEqual([None], [
            each.cell for each in self.list_all().servers])

        self.write(self.database, build_requests.delete, [uuid])

        found, cell = self.get(uuid)
        self.assertEqual(('cell1', 'h1', self.cell1.uuid), (
            found.cell, found.host, cell.uuid))
        self.assertEqual([found], self.list_all().servers)

    def test_server_without_request_and_row_is_not_found(self):
        [unbuilt] = self.accept()
        self.write(self.database, build_requests.delete, [unbuilt])
        [unwritten] = self.accept()
        self.decide(self.cell1, [unwritten])
        self.write(self.database, build_requests.delete, [unwritten])
        [deleted] = self.put(self.cell1)
        self.write(self.targets.database(self.cell1), instances.delete,
                   deleted, samples.NOW)

        for uuid in (unbuilt, unwritten, deleted, samples.uuids(1)[0]):
            self.assertRaises(exception.InstanceNotFound, self.get, uuid)
        self.assertEqual([], self.listed())

    def test_only_servers_in_error_have_a_reason(self):
        [failed] = self.put(self.cell0, vm_state='error', task_state=None)
        [mended] = self.put(self.cell1, vm_state='active')
        for uuid, cell in ((failed, self.cell0), (mended, self.cell1)):
            for text in 'First.', 'Last.':
                self.write(
                    self.targets.database(cell), instance_history.record, uuid,
                    exception.NoValidHost(reason=text), 'host', samples.NOW)

        reasons = {failed: 'No valid host was found. Last.', mended: ''}
        for uuid, reason in reasons.items():
            self.assertEqual(reason, self.get(uuid)[0].reason)
        self.assertEqual(reasons, {
            each.uuid: each.reason for each in self.list_all().servers})

    def test_server_retried_during_the_read_is_found(self):
        [uuid] = self.put(self.cell0, vm_state='error')

        def retry(database):
            self.write(database, instances.purge, [uuid])
            self.write(self.database, instance_mappings.withdraw, [uuid],
                       self.cell0.id, samples.NOW)
            self.write(self.database, build_requests.create, [
                objects.BuildRequest(
                    instance_uuid=uuid, project_id='project',
                    instance=samples.instance(uuid))], samples.NOW)

        class Retrying(target.Targets):
            """Targets of cells; a server is retried during a read."""

            def database(self, cell):
                database = super().database(cell)
                retry(database)
                return database

        targets = Retrying(self.targets._databases, self.transports)
        found, cell = self.make_reader(targets).get(self.context, uuid)

        self.assertEqual((uuid, 'BUILD', None),
                         (found.uuid, found.status, cell))

    def test_tags_are_listed_from_every_source(self):
        [waiting] = self.accept()
        self.write(self.database, build_requests.revise, waiting, (
            lambda request: setattr(
                request, 'tags', objects.TagList.made(waiting, ['w']))))
        [built], [buried] = self.put(self.cell1), self.put(self.cell0)
        for cell, uuid, tag in ((self.cell1, built, 'b'),
                                (self.cell0, buried, 'c')):
            self.write(self.targets.database(cell),
                       instance_children.create_tags,
                       {uuid: [tag]})

        expected = {waiting: ('w',), built: ('b',), buried: ('c',)}
        page = self.list_all(10)
        self.assertEqual(
            expected, {found.uuid: found.tags for found in page.servers})
        self.assertEqual(expected, {
            uuid: self.reader.get(self.context, uuid)[0].tags
            for uuid in expected})

    def test_servers_of_other_projects_are_shown_to_administrators(self):
        theirs = {*self.put(self.cell1, project_id='other'),
                  *self.accept(project_id='other')}
        own = {*self.put(self.cell1), *self.accept()}
        admin = context.admin()

        self.assertEqual(own, set(self.listed()))
        self.assertEqual(own | theirs, set(self.listed(context=admin)))
        for uuid in theirs:
            self.assertRaises(exception.InstanceNotFound, self.get, uuid)
            self.assertEqual(uuid, self.reader.get(admin, uuid)[0].uuid)

    def test_servers_of_all_cells_are_listed_newest_first(self):
        second = datetime.timedelta(seconds=1)
        # Accepted in the same second, in the order of their uuids or not.
        together = samples.uuids(4)
        samples.accept(self.database, together,
                       created_at=samples.NOW - second)
        made = [
            put(created_at=samples.NOW + number * second)[0]
            for number, put in enumerate([
                self.accept, lambda **when: self.put(self.cell2, **when),
                lambda **when: self.put(self.cell0, **when), self.accept,
                lambda **when: self.put(self.cell1, **when)])]

        expected = [*reversed(made), *sorted(together, reverse=True)]
        self.assertEqual(expected, self.listed())
        for limit in 0, 1, 4, 5:
            self.assertEqual(expected[:limit], self.listed(limit=limit))

    def test_unreadable_cell_is_named_in_the_page(self):
        [first], [second] = self.put(self.cell1), self.put(self.cell2)
        self.take_down(self.cell1)

        page = self.list_all()

        self.assertEqual(
            {first: ('UNKNOWN', None, 'cell1'),
             second: ('BUILD', 'server', 'cell2')},
            {each.uuid: (each.status, each.name, each.cell)
             for each in page.servers})
        self.assertEqual('UNKNOWN', self.get(first)[0].status)
        self.assertEqual([self.cell1.identity], page.down_cells)

    def test_hanging_cell_is_named_in_the_page(self):
        [first], [second] = self.put(self.cell1), self.put(self.cell2)
        go_on = threading.Event()
        self.addCleanup(go_on.set)
        cell1 = self.cell1

        class Hanging(target.Targets):

            def target_cell(self, context, cell):
                if cell.uuid == cell1.uuid:
                    go_on.wait()
                return super().target_cell(context, cell)

        targets = Hanging(self.targets._databases, self.transports)
        self.reader = self.make_reader(targets, 0.2, clock.Clock())

        page = self.list_all()

        self.assertEqual(
            {first: 'UNKNOWN', second: 'BUILD'},
            {each.uuid: each.status for each in page.servers})
        self.assertEqual([self.cell1.identity], page.down_cells)

    def test_disabled_cell_shows_its_servers(self):
        [uuid] = self.put(self.cell1)
        table = models.cell_mappings
        self.write(self.database, lambda connection: connection.execute(
            sa.update(table).values(disabled=True)))
        self.cells.refresh()

        self.assertEqual([uuid], self.listed())
        self.assertEqual('cell1', self.get(uuid)[0].cell)


#: Values that databases sort each in its own way, if they are let.
TEXTS = (None, 'a', 'B', 'b', 'ab', 'a b', 'a-b', 'é', 'z', 'Z', '_', '1')

#: What rows differ in.
FIELDS = {
    'display_name': strategies.sampled_from(TEXTS),
    'host': strategies.sampled_from(TEXTS),
    'launch_index': strategies.sampled_from((None, 0, 1, 2)),
    'created_at': strategies.integers(0, 3).map(
        lambda seconds: samples.NOW + datetime.timedelta(seconds=seconds)),
    'launched_at': strategies.sampled_from((None, samples.NOW)),
}

#: Where a server is: in cell0, a cell, another one, or still requested.
SERVERS = strategies.lists(
    strategies.tuples(strategies.integers(0, 3),
                      strategies.fixed_dictionaries(FIELDS)),
    min_size=1, max_size=12)

ORDERS = strategies.lists(
    strategies.tuples(strategies.sampled_from([*FIELDS, 'uuid', 'vm_state']),
                      strategies.sampled_from(['asc', 'desc'])),
    max_size=3, unique_by=lambda pair: pair[0])


def sorted_as(order, made):
    """Return uuids as Python sorts them, None first."""
    uuids = [*made]
    for name, descends in reversed(order.keys):
        uuids.sort(key=lambda uuid: (
            made[uuid][name] is not None, made[uuid][name]), reverse=descends)
    return uuids


class TestPages(base.TestCase):

    def fill(self, rows):
        """Put servers into their cells; return their values by uuid."""
        made = {}
        for place, fields in rows:
            fields = {**fields, 'vm_state': 'building'}
            if place == 3:
                [uuid] = self.accept(**fields)
            else:
                [uuid] = self.put(
                    (self.cell0, self.cell1, self.cell2)[place], **fields)
            made[uuid] = {**fields, 'uuid': uuid}
        return made

    def empty(self, made):
        self.write(self.database, build_requests.delete, made)
        for cell in self.cell0, self.cell1, self.cell2:
            self.write(self.targets.database(cell), instances.purge, made)

    def pages(self, order, limit, **filters):
        """Return the uuids of each page until one is empty."""
        parsed = query.parse_filters(filters, 'project')
        pages, marker = [], None
        while True:
            page = self.reader.list(self.context, query.ServerQuery(
                parsed, order, limit, marker))
            pages.append([found.uuid for found in page.servers])
            if not page.marker:
                return pages[:-1]
            marker = query.Marker.parse(page.marker, order)

    @hypothesis.given(SERVERS, ORDERS, strategies.integers(1, 5))
    def test_pages_show_each_server_once_in_order(self, rows, keys, limit):
        made = self.fill(rows)
        self.addCleanup(self.empty, made)
        order = query.order(*([*zip(*keys)] or ((), ())))
        try:
            pages = self.pages(order, limit)
            self.assertEqual(
                sorted_as(order, made), [each for page in pages
                                         for each in page])
            self.assertTrue(all(len(page) == limit for page in pages[:-1]))
        finally:
            self.empty(made)

    @hypothesis.given(
        SERVERS, ORDERS, strategies.integers(1, 3), strategies.booleans(),
        strategies.sampled_from([
            {'display_name': 'zzz'}, {'display_name': ''}, {'host': None},
            {'vm_state': 'deleted', 'deleted': 7}]))
    def test_unchanged_servers_are_listed_once_while_markers_change(
            self, rows, keys, limit, by_uuid, change):
        made = self.fill(rows)
        order = query.order(*([*zip(*keys)] or ((), ())))
        listed, changed, marker = [], set(), None
        try:
            while (page := self.reader.list(self.context, query.ServerQuery(
                    query.parse_filters({}, 'project'), order, limit,
                    marker))).servers:
                listed += [found.uuid for found in page.servers]
                last = listed[-1]
                if last not in changed:
                    changed.add(last)
                    for cell in self.cell0, self.cell1, self.cell2:
                        self.write(self.targets.database(cell), samples.put,
                                   last, change)
                marker = (query.Marker(last) if by_uuid
                          else query.Marker.parse(page.marker, order))
            self.assertEqual({*made}, {*listed})
            self.assertEqual(len(made), len(listed))
        finally:
            self.empty(made)

    def test_batches_smaller_than_the_page_are_merged(self):
        self.reader = self.make_reader(
            self.targets, policy=SmallBatches(batch_size=2))
        made = self.fill([
            (number % 3, {'display_name': f'{number:02}'})
            for number in range(20)])
        order = query.order(['display_name'], ['asc'])

        for limit in 5, 20, None:
            page = self.reader.list(self.context, query.ServerQuery(
                query.parse_filters({}, 'project'), order, limit))
            self.assertEqual(
                [*made][:limit], [found.uuid for found in page.servers])

    def test_marker_may_be_in_any_cell(self):
        second = datetime.timedelta(seconds=1)
        [buried] = self.put(self.cell0, created_at=samples.NOW)
        [built] = self.put(self.cell1, created_at=samples.NOW + second)
        [waiting] = self.accept(created_at=samples.NOW + 2 * second)
        [last] = self.put(self.cell2, created_at=samples.NOW + 3 * second)

        for marker, rest in ((buried, []), (built, [buried]),
                             (waiting, [built, buried]),
                             (last, [waiting, built, buried])):
            page = self.reader.list(self.context, query.ServerQuery(
                marker=query.Marker(marker), limit=10))
            self.assertEqual(rest, [found.uuid for found in page.servers])

    def test_damaged_marker_is_refused(self):
        order = query.order(['updated_at', 'launch_index'], ['asc'])
        uuid = samples.uuids(1)[0]
        whole = query.Marker(uuid, (samples.NOW, 7, uuid))
        self.assertEqual(whole, query.Marker.parse(str(whole), order))

        for text in (f'{uuid}.', f'{uuid}.x', str(whole)[:-1],
                     *(str(query.Marker(uuid, values)) for values in (
                         (), (samples.NOW, 7), (7, 7, uuid), ('x', 7, uuid),
                         (samples.NOW, True, uuid), (samples.NOW, '7', uuid),
                         (samples.NOW, 2 ** 40, uuid),
                         (samples.NOW, 7, 'a\0'), (samples.NOW, 7, []))),
                     *(f'{uuid}.' + base64.urlsafe_b64encode(text).decode()
                       for text in (b'7', b'[]', b'[[], 7]', b'[7, []]'))):
            error = self.assertRaises(
                exception.InvalidField, query.Marker.parse, text, order)
            self.assertIn('server list: marker: ', str(error))

    def test_marker_of_another_project_is_not_found(self):
        theirs = [*self.put(self.cell1, project_id='other'),
                  *self.accept(project_id='other'), samples.uuids(1)[0]]

        for marker in theirs:
            self.assertRaises(
                exception.MarkerNotFound, self.reader.list, self.context,
                query.ServerQuery(
                    query.parse_filters({}, 'project'),
                    marker=query.Marker(marker)))

    def test_deleted_marker_keeps_its_place(self):
        second = datetime.timedelta(seconds=1)
        [old] = self.put(self.cell1, created_at=samples.NOW)
        [gone] = self.put(self.cell1, created_at=samples.NOW + second)
        self.write(self.targets.database(self.cell1), samples.put, gone,
                   {'vm_state': 'deleted', 'deleted': 7})

        page = self.reader.list(
            self.context, query.ServerQuery(
                marker=query.Marker(gone)))

        self.assertEqual([old], [found.uuid for found in page.servers])

    def test_pages_continue_while_a_cell_is_down(self):
        second = datetime.timedelta(seconds=1)
        made = [self.put(cell, created_at=samples.NOW - number * second)[0]
                for number, cell in enumerate(
                    [self.cell1, self.cell2] * 3)]
        self.take_down(self.cell1)

        self.assertEqual(
            [made[:2], made[2:4], made[4:]], self.pages(query.NEWEST, 2))
        # The names of the cells are hidden from the user.
        self.assertEqual([made[1::2]], self.pages(
            query.NEWEST, 10, name='server'))

    def test_cells_may_be_needed(self):
        self.put(self.cell1)
        self.take_down(self.cell1)
        self.reader = self.make_reader(
            self.targets, policy=ListingPolicy(skip_down_cells=False))

        failed = self.assertRaises(
            exception.CellsDown, self.reader.list, self.context,
            query.ServerQuery())

        self.assertIn(self.cell1.identity, str(failed))

    def test_cells_without_servers_of_the_project_need_not_be_read(self):
        [own] = self.put(self.cell2)
        self.put(self.cell1, project_id='other')
        self.take_down(self.cell1)
        self.reader = self.make_reader(
            self.targets, policy=ListingPolicy(per_project_cells=True))

        page = self.reader.list(self.context, query.ServerQuery(
            query.parse_filters({}, 'project')))

        self.assertEqual(([own], []), (
            [found.uuid for found in page.servers], page.down_cells))


class SmallBatches(ListingPolicy):

    BATCH_MIN = 1
    BATCH_MAX = 3
