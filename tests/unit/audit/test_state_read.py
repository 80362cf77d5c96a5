# SPDX-License-Identifier: Apache-2.0
"""Databases that are read for the states of servers."""

from cellsched.audit import state
from cellsched.db.api import audit_queries as api
from cellsched.db.cell import audit_queries
from cellsched import migrations
from tests.unit.audit import base
from tests.unit.db import samples


class TestFacts(base.TestCase):

    def uuid_of(self, cell):
        return self.by_name[cell].uuid

    def test_facts_are_of_all_databases_and_of_the_claims(self):
        uuid = self.running()
        name = migrations.consumer(uuid)
        self.take(name, 'a2')

        [(key, facts)] = self.reader.servers([uuid, uuid], asked=True).items()

        cell = self.uuid_of('cell1')
        self.assertEqual((uuid, uuid), (key, facts.uuid))
        self.assertEqual(
            (api.MappingRow(cell, False, 'project', 'user'), False, [cell],
             frozenset(), None, base.SIZE, {}),
            (facts.mapping, facts.requested, [*facts.rows], facts.unheard,
             facts.broken, facts.size.resources, facts.host_cells))
        self.assertEqual('active', facts.rows[cell].vm_state)
        self.assertEqual(
            [[(uuid, self.providers['a1'])], [(name, self.providers['a2'])]],
            [[(claim.consumer, claim.provider) for claim in held]
             for held in (facts.claims, facts.moved)])
        self.assertEqual('cell1', facts.names[cell])

    def test_request_is_read_after_the_servers(self):
        uuid = self.accept()
        self.spoil(uuid, 'request_specs')

        asked = self.reader.servers([uuid], asked=True)[uuid]
        self.assertEqual('is missing', asked.broken.problem)
        self.assertIs(state.MISSING, asked.size)
        self.assertTrue(asked.requested)
        facts = self.reader.servers([uuid])[uuid]
        self.assertEqual((None, None, True),
                         (facts.broken, facts.size, facts.requested))

    def test_rows_are_looked_for_where_the_mapping_says_or_everywhere(self):
        uuid = self.running()
        self.put_row(uuid, 'cell2')
        cells = {self.uuid_of('cell1'), self.uuid_of('cell2')}

        self.assertEqual({self.uuid_of('cell1')},
                         {*self.reader.servers([uuid])[uuid].rows})
        self.assertEqual(cells, {
            *self.reader.servers([uuid], everywhere=True)[uuid].rows})
        self.unmap(uuid)
        self.assertEqual({}, self.reader.servers([uuid])[uuid].rows)

    def test_hosts_named_only_in_other_rows_have_their_cells(self):
        right, wrong = self.running(), self.running('cell2', 'b1')
        self.map_to(wrong, 'cell1')

        facts = self.reader.servers([right, wrong], everywhere=True)

        self.assertEqual({'b1': self.uuid_of('cell2')},
                         facts[wrong].host_cells)
        self.unmap(wrong)
        self.assertEqual({}, self.reader.servers(
            [wrong], everywhere=True)[wrong].host_cells)

    def test_server_in_a_new_cell_is_found(self):
        self.reader.cells()
        self.by_name['cell3'] = self.add_cell('cell3')
        uuid = self.accept()
        self.decide(uuid, 'cell3')
        self.put_row(uuid, 'cell3')

        facts = self.reader.servers([uuid])[uuid]

        self.assertEqual([self.uuid_of('cell3')], [*facts.rows])

    def test_cells_are_not_read_again_for_servers_of_known_cells(self):
        uuids = [self.running(), self.accept()]
        known = self.reader.names()
        self.add_cell('cell3')

        self.reader.servers(uuids)

        self.assertEqual(known, self.reader.names())

    def test_deleted_rows_are_not_visible_and_not_buried(self):
        uuid = self.failed()
        self.put_row(uuid, 'cell1')
        self.put_row(uuid, 'cell2', deleted=1)

        facts = self.reader.servers([uuid], everywhere=True)[uuid]

        self.assertEqual([self.uuid_of('cell1')], [*facts.visible()])
        self.assertTrue(facts.buried())
        self.change_row(uuid, 'cell0', deleted=1)
        self.assertFalse(self.reader.servers([uuid])[uuid].buried())
        other = self.running()
        self.assertFalse(self.reader.servers([other])[other].buried())

    def test_claims_are_unknown_without_a_shared_store(self):
        uuid = self.running()
        self.reader.claims = None

        facts = self.reader.servers([uuid])[uuid]

        self.assertEqual(([], []), ([*facts.claims], [*facts.moved]))


class TestCells(base.TestCase):

    def test_down_cell_is_queried_once_until_the_next_audit(self):
        uuid = self.running()
        cell = self.by_name['cell1'].uuid
        self.take_down('cell1')

        facts = self.reader.servers([uuid])[uuid]

        self.assertEqual(frozenset([cell]), facts.unheard)
        self.assertIn('cannot be reached', self.reader.unheard[cell])
        asked = []
        self.reader.ask(lambda each, connection: asked.append(each),
                        self.reader.cells())
        self.assertEqual({self.by_name[name].uuid
                          for name in ('cell0', 'cell2')}, {*asked})
        self.reader.begin()
        self.assertEqual({}, self.reader.unheard)

    def test_unknown_cells_are_not_read(self):
        cell = self.by_name['cell2'].uuid

        self.assertEqual({cell: cell}, self.reader.ask(
            lambda each, connection: each, ['unknown', cell]))

    def test_servers_are_known_by_mapping_or_by_request(self):
        running, lost, unknown = self.running(), self.accept(), 'unknown'
        self.unmap(lost)

        self.assertEqual({running, lost},
                         self.reader.known([running, lost, unknown]))


class TestPages(base.TestCase):

    def test_pages_of_the_api_database_come_in_order_and_end(self):
        for count in 0, 1, 2, 3:
            uuids = [self.accept() for _ in range(count)]

            pages = list(self.reader.pages(api.mapped_after))

            self.assertEqual(
                [uuids[at:at + 2] for at in range(0, count, 2)], pages)
            for uuid in uuids:
                self.unmap(uuid)

    def test_pages_of_cells_are_read_together_to_the_last(self):
        uuids = {'cell1': samples.uuids(5), 'cell2': samples.uuids(2)}
        for cell, existing in uuids.items():
            for uuid in existing:
                self.put_row(uuid, cell)
        one, other = (self.by_name[cell].uuid for cell in uuids)

        pages = list(self.reader.cell_pages(audit_queries.present_after))

        self.assertEqual(
            [{one: uuids['cell1'][:2], other: uuids['cell2']},
             {one: uuids['cell1'][2:4]}, {one: uuids['cell1'][4:]}], pages)
