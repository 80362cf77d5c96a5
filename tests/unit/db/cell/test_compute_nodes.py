# SPDX-License-Identifier: Apache-2.0
"""Queries for the compute nodes of a cell."""

import sqlalchemy as sa

from cellsched.db.cell import compute_nodes
from cellsched.db.cell import models
from cellsched.objects import child_providers
from tests.unit.db.cell import base
from tests.unit.db import samples
from tests.unit import racing


class TestComputeNodes(base.TestCase):

    def save(self, host='host', node='node', now=samples.NOW, **values):
        return self.write(compute_nodes.save, samples.uuids(1)[0], host, node,
                          samples.NODE | values, now)

    def change(self, table, **values):
        self.execute(sa.update(table).values(**values))

    def rows(self):
        return self.fetch(
            sa.select(models.compute_nodes)
            .order_by(models.compute_nodes.c.id))

    def unmapped(self):
        return [row.host for row in self.read(compute_nodes.list_unmapped)]

    def test_node_is_found_with_the_text_of_its_children(self):
        self.assertIsNone(self.read(compute_nodes.find, 'host', 'node'))
        uuid = self.save()
        self.assertEqual(
            (uuid, None), self.read(compute_nodes.find, 'host', 'node'))

        self.save(providers='[]')

        self.assertEqual(
            (uuid, '[]'), self.read(compute_nodes.find, 'host', 'node'))
        self.assertIsNone(self.read(compute_nodes.find, 'host', 'other'))
        self.change(models.compute_nodes, deleted=1)
        self.assertIsNone(self.read(compute_nodes.find, 'host', 'node'))

    def test_deleted_node_is_omitted(self):
        self.save()
        self.change(models.compute_nodes, deleted=1)
        self.assertEqual([], self.unmapped())

    def test_known_node_keeps_its_uuid(self):
        uuid = self.save()

        self.assertEqual(uuid, self.save(vcpus=16, now=samples.LATER))

        row, = self.rows()
        self.assertEqual((uuid, 16), (row.uuid, row.vcpus))

    def test_host_has_several_nodes(self):
        uuids = [self.save(node='one'), self.save(node='two')]
        self.assertEqual(uuids, [row.uuid for row in self.rows()])

    def test_simultaneous_reports_create_a_single_node(self):
        uuids = racing.race(*[self.save] * 6)

        self.assertEqual(1, len(set(uuids)), uuids)
        self.assertEqual(1, len(self.read(compute_nodes.list_unmapped)))

    def test_nodes_are_unmapped_until_marked(self):
        one, two = self.save('one'), self.save('two')
        self.assertEqual(['one', 'two'], self.unmapped())

        self.write(compute_nodes.mark_mapped, [one])
        self.assertEqual(['two'], self.unmapped())

        self.write(compute_nodes.mark_mapped, [one, two])
        self.write(compute_nodes.mark_mapped, [])
        self.assertEqual([], self.unmapped())

    def test_report_keeps_the_node_mapped(self):
        self.write(compute_nodes.mark_mapped, [self.save()])

        self.save(now=samples.LATER)

        self.assertEqual([], self.unmapped())

    def test_node_without_a_mark_is_unmapped(self):
        self.save()
        self.change(models.compute_nodes, mapped=None)

        self.assertEqual(['host'], self.unmapped())


class TestProviders(base.TestCase):

    def save(self, node, **values):
        [uuid] = samples.uuids(1)
        self.write(compute_nodes.save, uuid, 'host', node,
                   {**samples.NODE, **values}, samples.NOW)
        return uuid

    def listed(self):
        return self.read(compute_nodes.list_all)

    def test_nodes_are_listed_by_name_with_their_traits(self):
        second = self.save('n2')
        first = self.save('n1', traits='["HW_CPU_X86_VMX"]')

        self.assertEqual([
            compute_nodes.RootRow(first, 'n1', 'host',
                                  frozenset({'HW_CPU_X86_VMX'})),
            compute_nodes.RootRow(second, 'n2', 'host', frozenset()),
        ], self.listed())

    def test_node_has_the_children_of_its_report(self):
        children = (child_providers.Child('a', 'gpu0'),
                    child_providers.Child('b', 'gpu1', 'a'))
        self.save('n1', providers=child_providers.dump(children))

        self.assertEqual(children, self.listed()[0].children)

    def test_unreadable_traits_are_empty(self):
        for text in '', '{', '{"A": 1}', '[' * 10_000, '5':
            self.save('n1', traits=text)

            self.assertEqual(frozenset(), self.listed()[0].traits)

    def test_deleted_or_partial_nodes_are_not_listed(self):
        for number, values in enumerate((
                {'deleted': 1}, {'uuid': None}, {'host': None})):
            uuid = self.save(f'n{number}')
            self.execute(
                sa.update(models.compute_nodes)
                .where(models.compute_nodes.c.uuid == uuid)
                .values(values))

        self.assertEqual([], self.listed())
