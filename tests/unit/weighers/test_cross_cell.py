# SPDX-License-Identifier: Apache-2.0
"""CrossCellWeigher."""

import hypothesis
from hypothesis import strategies as st

from cellsched import objects
from cellsched.testing import builders
from cellsched.testing.suite import weighers
from cellsched.weighers import cross_cell
from tests.unit import base
from tests.unit import strategies

CELLS = [f'30000000-0000-4000-8000-{number:012}' for number in range(3)]


def move(cell, **fields):
    mapping = cell if cell is None else objects.CellMapping(uuid=cell)
    return builders.request(
        requested_destination=objects.Destination(cell=mapping, **fields))


class TestCrossCellWeigher(weighers.WeigherSuite, base.TestCase):

    plugin = cross_cell.CrossCellWeigher

    def make_requests(self):
        return [*super().make_requests(),
                move(builders.CELL, allow_cross_cell_move=True)]

    def test_hosts_of_the_preferred_cell_are_best(self):
        hosts = builders.hosts(cell=[CELLS[0], CELLS[1], CELLS[0]])
        for cell, expected in ((CELLS[0], [1, -1, 1]), (CELLS[1], [-1, 1, -1]),
                               (CELLS[2], [-1, -1, -1])):
            self.assertScores(expected, hosts,
                              move(cell, allow_cross_cell_move=True))

    def test_only_moves_that_may_leave_a_cell_count(self):
        plugin = builders.plugin(self.plugin)
        nowhere = objects.Destination(allow_cross_cell_move=True)
        for expected, request in (
                (True, move(CELLS[0], allow_cross_cell_move=True)),
                (False, move(CELLS[0], allow_cross_cell_move=False)),
                (False, move(CELLS[0])),
                (False, move(None, allow_cross_cell_move=True)),
                (False, builders.request(requested_destination=nowhere)),
                (False, builders.request(requested_destination=None)),
                (False, builders.request())):
            self.assertEqual(expected, plugin.applies(request))

    def test_cell_outweighs_all_else(self):
        plugin = builders.plugin(self.plugin)

        self.assertEqual(1000000.0, plugin.multiplier(builders.hosts()))

    @hypothesis.given(
        hosts=strategies.hosts(cell=st.sampled_from(CELLS)),
        cell=st.sampled_from(CELLS) | st.none(), allowed=st.booleans())
    @hypothesis.settings(deadline=None, max_examples=60)
    def test_column_score_is_that_of_each_row(self, hosts, cell, allowed):
        request = move(cell, allow_cross_cell_move=allowed)

        def weigh(host, _):
            if cell is None or not allowed:
                return 0
            return 1 if host.cell_uuid == cell else -1

        self.assertEqual(
            strategies.scored_by_rows(weigh, hosts, request),
            strategies.scored_by_columns(
                builders.plugin(self.plugin), hosts, request))
