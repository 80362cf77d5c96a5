# SPDX-License-Identifier: Apache-2.0
"""A cell: its name and the ways into it."""

from cellsched import objects
from tests.unit import base

UUID = '10000000-0000-4000-8000-000000000000'
SECRET = 's3cr3t'


def mapping(**fields):
    return objects.CellMapping(
        id=1, uuid=UUID, transport_url=f'rabbit://u:{SECRET}@h/',
        database_connection=f'mysql+pymysql://u:{SECRET}@h/cell',
        disabled=False, **fields)


class TestCellMapping(base.TestCase):

    def test_identity_is_uuid_and_name(self):
        self.assertEqual(f'{UUID}(east)', mapping(name='east').identity)
        self.assertEqual(UUID, mapping(name=None).identity)
        self.assertEqual(UUID, mapping().identity)

    def test_cell0_is_known_by_its_uuid(self):
        self.assertFalse(mapping().is_cell0())
        self.assertTrue(
            objects.CellMapping(uuid=objects.CELL0_UUID).is_cell0())

    def test_text_forms_hold_no_password(self):
        cell = mapping(name='east')
        holders = [
            cell, objects.HostMapping(host='h', cell_mapping=cell),
            objects.InstanceMapping(instance_uuid=UUID, cell_mapping=cell),
            objects.Destination(host='h', cell=cell),
            objects.RequestSpec(requested_destination=objects.Destination(
                host='h', cell=cell)),
        ]

        for holder in [*holders, holders, {'cell': cell}]:
            for text in (repr(holder), str(holder), f'{holder}'):
                self.assertNotIn(SECRET, text)

    def test_errors_of_fields_hold_no_password(self):
        cell = mapping()
        for value in {'u': SECRET}, [SECRET], object():
            error = self.assertRaises(
                ValueError, setattr, cell, 'transport_url', value)

            self.assertNotIn(SECRET, str(error))

    def test_empty_cell_mapping_has_a_representation(self):
        self.assertEqual('CellMapping(?)', repr(objects.CellMapping()))
