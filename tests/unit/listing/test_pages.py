# SPDX-License-Identifier: Apache-2.0
"""Pages of servers: sorted, filtered, and each server once."""

import datetime

import hypothesis
from hypothesis import strategies

from cellsched.db.api import build_requests
from cellsched.db.cell import instances
from cellsched import exception
from cellsched.listing.pages import ListingPolicy
from cellsched.listing import query
from tests.unit.db import samples
from tests.unit.listing import base

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
        """Have servers where they are; return their values by uuid."""
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
        wanted = query.wanted(filters, 'project')
        pages, marker = [], None
        while True:
            page = self.reader.list(self.context, query.ServerQuery(
                wanted, order, limit, marker)).servers
            pages.append([found.uuid for found in page])
            if not page:
                return pages[:-1]
            marker = page[-1].uuid

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

    def test_batches_that_are_smaller_than_the_page_are_put_together(self):
        self.reader = self.make_reader(
            self.targets, policy=SmallBatches(batch_size=2))
        made = self.fill([
            (number % 3, {'display_name': f'{number:02}'})
            for number in range(20)])
        order = query.order(['display_name'], ['asc'])

        for limit in 5, 20, None:
            page = self.reader.list(self.context, query.ServerQuery(
                query.wanted({}, 'project'), order, limit))
            self.assertEqual(
                [*made][:limit], [found.uuid for found in page.servers])

    def test_marker_may_be_anywhere(self):
        second = datetime.timedelta(seconds=1)
        [buried] = self.put(self.cell0, created_at=samples.NOW)
        [there] = self.put(self.cell1, created_at=samples.NOW + second)
        [waiting] = self.accept(created_at=samples.NOW + 2 * second)
        [last] = self.put(self.cell2, created_at=samples.NOW + 3 * second)

        for marker, rest in ((buried, []), (there, [buried]),
                             (waiting, [there, buried]),
                             (last, [waiting, there, buried])):
            page = self.reader.list(self.context, query.ServerQuery(
                marker=marker, limit=10))
            self.assertEqual(rest, [found.uuid for found in page.servers])

    def test_marker_of_another_project_is_not_there(self):
        theirs = [*self.put(self.cell1, project_id='other'),
                  *self.accept(project_id='other'), samples.uuids(1)[0]]

        for marker in theirs:
            self.assertRaises(
                exception.MarkerNotFound, self.reader.list, self.context,
                query.ServerQuery(query.wanted({}, 'project'), marker=marker))

    def test_deleted_marker_keeps_its_place(self):
        second = datetime.timedelta(seconds=1)
        [old] = self.put(self.cell1, created_at=samples.NOW)
        [gone] = self.put(self.cell1, created_at=samples.NOW + second)
        self.write(self.targets.database(self.cell1), samples.put, gone,
                   {'vm_state': 'deleted', 'deleted': 7})

        page = self.reader.list(
            self.context, query.ServerQuery(marker=gone))

        self.assertEqual([old], [found.uuid for found in page.servers])

    def test_pages_go_on_while_a_cell_is_down(self):
        second = datetime.timedelta(seconds=1)
        made = [self.put(cell, created_at=samples.NOW - number * second)[0]
                for number, cell in enumerate(
                    [self.cell1, self.cell2] * 3)]
        self.take_down(self.cell1)

        self.assertEqual(
            [made[:2], made[2:4], made[4:]], self.pages(query.NEWEST, 2))
        # It is not told what these are called.
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
        [mine] = self.put(self.cell2)
        self.put(self.cell1, project_id='other')
        self.take_down(self.cell1)
        self.reader = self.make_reader(
            self.targets, policy=ListingPolicy(per_project_cells=True))

        page = self.reader.list(self.context, query.ServerQuery(
            query.wanted({}, 'project')))

        self.assertEqual(([mine], []), (
            [found.uuid for found in page.servers], page.down_cells))


class SmallBatches(ListingPolicy):

    BATCH_MIN = 1
    BATCH_MAX = 3
