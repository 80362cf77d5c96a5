# SPDX-License-Identifier: Apache-2.0
"""Queries for the resource providers that the agents of a cell report."""

import sqlalchemy as sa

from cellsched.db.cell import compute_nodes
from cellsched.db.cell import models
from cellsched.db.cell import providers
from cellsched.objects import child_providers
from tests.unit.db.cell import base
from tests.unit.db import samples


class TestProviders(base.TestCase):

    def save(self, node, **values):
        [uuid] = samples.uuids(1)
        self.write(compute_nodes.save, uuid, 'host', node,
                   {**samples.NODE, **values}, samples.NOW)
        return uuid

    def listed(self):
        return self.read(providers.list_all)

    def test_nodes_are_listed_by_name_with_their_traits(self):
        second = self.save('n2')
        first = self.save('n1', traits='["HW_CPU_X86_VMX"]')

        self.assertEqual([
            providers.RootRow(first, 'n1', 'host',
                              frozenset({'HW_CPU_X86_VMX'})),
            providers.RootRow(second, 'n2', 'host', frozenset()),
        ], self.listed())

    def test_node_has_the_children_that_its_agent_reported(self):
        children = (child_providers.Child('a', 'gpu0'),
                    child_providers.Child('b', 'gpu1', 'a'))
        self.save('n1', providers=child_providers.dump(children))

        self.assertEqual(children, self.listed()[0].children)

    def test_traits_that_nobody_can_read_are_none(self):
        for text in '', '{', '{"A": 1}', '[' * 10_000, '5':
            self.save('n1', traits=text)

            self.assertEqual(frozenset(), self.listed()[0].traits)

    def test_nodes_that_are_gone_or_partial_are_left_out(self):
        for number, values in enumerate((
                {'deleted': 1}, {'uuid': None}, {'host': None})):
            uuid = self.save(f'n{number}')
            self.write(lambda connection: connection.execute(
                sa.update(models.compute_nodes)
                .where(models.compute_nodes.c.uuid == uuid)
                .values(values)))

        self.assertEqual([], self.listed())
