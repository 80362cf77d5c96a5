# SPDX-License-Identifier: Apache-2.0
"""States of servers, read from databases and claims, with failures."""

from concurrent import futures
import threading

from oslo_serialization import jsonutils
import sqlalchemy as sa

from cellsched.audit import auditor
from cellsched.audit import state
from cellsched.cells import gather
from cellsched import clock
from cellsched.db.api import audit_queries as api
from cellsched.db.api import models
from cellsched.db.cell import audit_queries
from cellsched import migrations
from cellsched import objects
from cellsched.testing import builders
from tests.unit.audit import base
from tests.unit import base as unit_base
from tests.unit.db import samples


class TestReader(base.TestCase):

    def test_silent_cell_is_recorded_with_the_reason(self):
        uuid = self.running()
        released = threading.Event()
        target_cell = self.targets.target_cell

        def slow(context, cell):
            if cell.name == 'cell1':
                released.wait(600)
            return target_cell(context, cell)

        self.targets.target_cell = slow
        executor = futures.ThreadPoolExecutor(4)
        self.addCleanup(executor.shutdown)
        self.addCleanup(released.set)
        reader = state.StateReader(
            self.database, self.cells, gather.Gatherer(
                executor, self.targets, clock.Clock(), timeout_s=0.5),
            self.claims)
        reader.begin()

        found = reader.servers([uuid])[uuid]

        cell = self.by_name['cell1'].uuid
        self.assertEqual({cell: 'it did not answer in time'}, reader.unheard)
        self.assertIn(cell, found.unheard)
        self.assertEqual({}, dict(found.rows))

    def test_cell_without_a_name_goes_by_its_uuid(self):
        cell = self.by_name['cell1']
        table = models.cell_mappings
        with self.database.writer() as connection:
            connection.execute(sa.update(table).where(
                table.c.id == cell.id).values(name=None))
        self.cells.refresh()

        names = self.reader.names()

        self.assertEqual(cell.uuid, names[cell.uuid])
        self.assertEqual('cell2', names[self.by_name['cell2'].uuid])

    def test_claims_are_not_released_without_a_shared_store(self):
        self.reader.claims = None
        leaked = auditor.LeakedClaims(self.reader, self.repairs)

        self.assertEqual(0, leaked.release_leaked())


class TestCell0(base.TestCase):

    def test_server_in_a_cell_is_not_buried(self):
        uuid = self.running()
        self.map_to(uuid, 'cell0')

        self.audit(fix=True)

        self.assertEqual({'cell1'}, self.rows(uuid))


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


def text_of(uuid, **fields):
    return jsonutils.dumps(objects.RequestSpec(
        instance_uuid=uuid, flavor=samples.flavor(), **fields,
    ).obj_to_primitive())


class TestSizeOf(unit_base.TestCase):

    def of(self, **fields):
        [uuid] = samples.uuids(1)
        return state.size_of(uuid, text_of(uuid, **fields))

    def test_size_is_read_from_the_request(self):
        self.assertEqual(
            ({'VCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 10}, None, ''),
            (self.of().resources, self.of().group, self.of().problem))
        self.assertNotIn('DISK_GB', self.of(is_bfv=True).resources)

    def test_equal_specifications_are_read_once(self):
        self.assertIs(self.of(), self.of())
        self.assertIsNot(self.of(), self.of(is_bfv=True))

    def test_group_is_included(self):
        group = objects.InstanceGroup(
            uuid=samples.uuids(1)[0], policy='affinity', rules={})

        self.assertEqual(group.uuid, self.of(instance_group=group).group)

    def test_groups_are_added_up_beside_the_rest(self):
        [uuid] = samples.uuids(1)
        size = state.size_of(uuid, jsonutils.dumps(builders.request(
            instance_uuid=uuid, extra_specs={
                'resources:VGPU': '1', 'resources1:VGPU': '2',
                'resources2:VGPU': '1', 'resources2:CUSTOM_A': '3',
                'group_policy': 'none'}).obj_to_primitive()))

        self.assertEqual({'VGPU': 3, 'CUSTOM_A': 3}, size.grouped)
        self.assertEqual(1, size.resources['VGPU'])
        self.assertEqual({**size.resources, 'VGPU': 4, 'CUSTOM_A': 3},
                         size.total)
        self.assertEqual({}, self.of().grouped)
        self.assertEqual(self.of().resources, self.of().total)
        self.assertIsNone(state.MISSING.total)

    def test_lost_server_has_no_size(self):
        self.assertIs(state.MISSING, state.size_of('a', None))
        without_flavor = jsonutils.dumps(
            objects.RequestSpec(is_bfv=True).obj_to_primitive())
        no_amount = jsonutils.dumps(builders.request(
            extra_specs={'resources:VGPU': 'x'}).obj_to_primitive())
        for text in (*samples.UNREADABLE, without_flavor, no_amount):
            self.assertIs(state.UNREADABLE, state.size_of('a', text))
