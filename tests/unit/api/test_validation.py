# SPDX-License-Identifier: Apache-2.0
"""What users may say."""

import hypothesis
from hypothesis import strategies

from cellsched.api import validation
from cellsched import exception
from tests.unit.api import hostile
from tests.unit import base

BOUNDS = validation.ServerBounds(
    instances_max=1000, limit_max=100,
    hints=lambda: frozenset({'different_host', 'group'}))

LOCAL = {'source_type': 'blank', 'destination_type': 'local'}
IMAGE = {'source_type': 'image', 'destination_type': 'volume',
         'image_id': 'i', 'boot_index': 0, 'volume_size': 1,
         'delete_on_termination': True, 'tag': 'root'}
VOLUME = {'source_type': 'volume', 'destination_type': 'volume',
          'volume_id': 'v', 'volume_type': None}
SNAPSHOT = {'source_type': 'snapshot', 'destination_type': 'volume',
            'snapshot_id': 's'}


def request(**fields):
    return validation.ServerRequest(**{
        'name': 'web', 'flavor': 'small', 'image_ref': None,
        'availability_zone': None, 'hints': {}, 'min_count': 1,
        'max_count': 1, **fields})


class TestServerRequest(base.TestCase):

    def assertRefused(self, field, **fields):
        """The request is refused by one short line that names the field."""
        error = self.assertRaises(
            exception.InvalidField, request(**fields).check, BOUNDS)

        self.assertEqual(field, error.field)
        text = str(error)
        self.assertLess(len(text), 250)
        self.assertTrue(text.isprintable(), text)
        self.assertIn(field, text)

    def test_bad_names_are_refused(self):
        for name in 'x' * 255, 'Zoë <3 %s%n ../ \' " ;', '10':
            request(name=name, image_ref='i', availability_zone='z').check(
                BOUNDS)
        for name in hostile.NAMES:
            for field in ('name', 'flavor'):
                self.assertRefused(field, **{field: name})
            for field in ('image_ref', 'availability_zone'):
                if name is not None:
                    self.assertRefused(field, **{field: name})

    def test_host_in_the_zone_is_refused(self):
        for zone in 'zone:host', 'zone:host:node', ':host':
            self.assertRefused('availability_zone', availability_zone=zone)

    def test_bad_counts_are_refused(self):
        for least in 1, 1000:
            request(min_count=least, max_count=1000).check(BOUNDS)
        for count in hostile.COUNTS:
            self.assertRefused('min_count', min_count=count, max_count=1000)
            self.assertRefused('max_count', max_count=count)

    def test_fewer_than_the_fewest_are_refused(self):
        self.assertRefused('max_count', min_count=3, max_count=2)

    def test_bad_hints_are_refused(self):
        request(hints={'different_host': ['0' * 32] * 100,
                       'group': ('g',)}).check(BOUNDS)
        for hints in hostile.HINTS:
            error = self.assertRaises(
                exception.InvalidField, request(hints=hints).check, BOUNDS)
            self.assertTrue(error.field.startswith('hints'))
            self.assertTrue(str(error).isprintable(), str(error))
            self.assertLess(len(str(error)), 250)

    def test_hint_without_a_filter_is_refused_with_the_known_hints(self):
        bounds = validation.ServerBounds(1000, 100, frozenset)

        error = self.assertRaises(
            exception.InvalidField,
            request(hints={'different_host': ['g']}).check, bounds)

        self.assertIn('expected one of group', str(error))

    def test_unbounded_hints_are_accepted_by_any_valid_name(self):
        bounds = validation.ServerBounds(1000, 100, lambda: None)

        request(hints={'different_host': ['g'], 'x': ['y']}).check(bounds)

        for hints in ({'_x': ['y']}, {'': ['y']}, {'x\n': ['y']},
                      {'x' * 256: ['y']}, {5: ['y']}, {'x': []},
                      {'x': 'y'}):
            error = self.assertRaises(
                exception.InvalidField, request(hints=hints).check, bounds)
            self.assertTrue(error.field.startswith('hints'))

    def test_server_group_is_accepted_with_any_filters(self):
        bounds = validation.ServerBounds(1000, 100, frozenset)
        wanted = request(hints={'group': ['g']})

        wanted.check(bounds)

        self.assertEqual('g', wanted.group)
        self.assertIsNone(request().group)

    def test_second_server_group_is_refused(self):
        for bad in (['a', 'b'], [], ['a', 'a'], 'a', None, [None], ['a\0'],
                    ['x' * 256]):
            error = self.assertRaises(
                exception.InvalidField,
                request(hints={'group': bad}).check, BOUNDS)

            self.assertIn(error.field, ('hints.group', 'hints.group[0]'))

    def test_name_leaves_room_for_the_number_of_each_server(self):
        for count, longest in ((1, 255), (9, 253), (1000, 250)):
            request(name='x' * longest, max_count=count).check(BOUNDS)
            if count > 1:
                self.assertRefused(
                    'name', name='x' * (longest + 1), max_count=count)


class TestParseZone(base.TestCase):

    def test_zone_may_have_a_host_and_a_node(self):
        for text, expected in (
                ('z', ('z', None, None)), (None, (None, None, None)),
                ('z:h', ('z', 'h', None)), ('z:h:n', ('z', 'h', 'n')),
                (':h', (None, 'h', None)), ('z::n', ('z', None, 'n')),
                ('::n', (None, None, 'n')), ('z:h:', ('z', 'h', None)),
                (5, (5, None, None))):
            self.assertEqual(expected, validation.parse_zone(text))

    def test_other_forms_are_refused(self):
        for text in ':', '::', 'z:', 'z::', 'z:h:n:', 'a:b:c:d':
            error = self.assertRaises(
                exception.InvalidField, validation.parse_zone, text)
            self.assertEqual('availability_zone', error.field)


class TestChecks(base.TestCase):

    @hypothesis.given(strategies.text(max_size=300))
    def test_printable_text_is_accepted(self, text):
        good = text.isprintable() and text.strip() and len(text) <= 255
        try:
            validation.check_text('here', 'field', text)
        except exception.InvalidField as exc:
            self.assertFalse(good)
            self.assertTrue(str(exc).isprintable())
        else:
            self.assertTrue(good)

    def test_unknown_choice_is_refused_with_the_choices(self):
        validation.check_choice('here', 'field', 'b', ('a', 'b'))
        for bad in (*hostile.NAMES, 'A', 'ab', 'c'):
            error = self.assertRaises(
                exception.InvalidField, validation.check_choice, 'here',
                'field', bad, ('a', 'b'))

            self.assertTrue(str(error).endswith(
                'is not valid; expected one of a, b'))
            self.assertLess(len(str(error)), 120)

    @hypothesis.given(strategies.integers(-5, 15))
    def test_count_within_the_bounds_is_accepted(self, count):
        try:
            validation.check_count('here', 'field', count, 10, least=2)
        except exception.InvalidField as exc:
            self.assertFalse(2 <= count <= 10)
            self.assertEqual(
                f'here: field: {count} is out of range; expected a whole '
                'number from 2 to 10', str(exc))
        else:
            self.assertTrue(2 <= count <= 10)


def check_devices(devices, several=False):
    request(block_device_mappings=devices,
            max_count=2 if several else 1).check(BOUNDS)


class TestBlockDevices(base.TestCase):

    def assertRefused(self, devices, field, several=False):
        error = self.assertRaises(
            exception.InvalidField, check_devices, devices, several)
        self.assertEqual(f'block_device_mappings{field}', error.field)

    def test_devices_of_another_type_are_refused(self):
        for devices in (), [IMAGE, LOCAL, VOLUME, SNAPSHOT], (LOCAL,) * 64:
            check_devices(devices)
        for devices in ({}, 'x', None, 3, (LOCAL,) * 65):
            self.assertRefused(devices, '')
        for device in 'x', None, {**LOCAL, 'id': 1}, {1: 2}:
            self.assertRefused([LOCAL, device], '[1]')

    def test_unknown_ways_are_refused(self):
        self.assertRefused([{}], '[0].source_type')
        for source in hostile.NAMES:
            self.assertRefused(
                [{**LOCAL, 'source_type': source}], '[0].source_type')
        self.assertRefused(
            [{**VOLUME, 'destination_type': 'local'}],
            '[0].destination_type')
        self.assertRefused(
            [{'source_type': 'blank'}], '[0].destination_type')

    def test_missing_field_is_named(self):
        for device in IMAGE, VOLUME, SNAPSHOT:
            name = f"{device['source_type']}_id"
            for wrong in None, '', 'x' * 37:
                self.assertRefused([{**device, name: wrong}], f'[0].{name}')
        self.assertRefused(
            [{**LOCAL, 'destination_type': 'volume'}], '[0].volume_size')

    def test_bounds_of_fields_are_named(self):
        for name, wrong in (
                ('volume_size', 0), ('volume_size', 2 ** 31),
                ('volume_size', True), ('boot_index', -2),
                ('boot_index', '0'), ('device_name', 'x' * 256),
                ('tag', ''), ('delete_on_termination', 'yes')):
            self.assertRefused([{**LOCAL, name: wrong}], f'[0].{name}')

    def test_unused_field_is_refused(self):
        for device, name in (
                (LOCAL, 'image_id'), (IMAGE, 'volume_id'),
                (VOLUME, 'snapshot_id'), (SNAPSHOT, 'image_id'),
                (VOLUME, 'volume_type'), (LOCAL, 'volume_type')):
            self.assertRefused([{**device, name: 'x'}], f'[0].{name}')

    def test_copy_of_an_image_is_the_root_disk(self):
        copy = {**IMAGE, 'destination_type': 'local'}
        check_devices([copy])

        for index in None, -1, 1:
            self.assertRefused(
                [{**copy, 'boot_index': index}], '[0].boot_index')
        del copy['boot_index']
        self.assertRefused([copy], '[0].boot_index')

    def test_boot_image_other_than_the_server_image_is_refused(self):
        for image_ref, device in (
                ('i', IMAGE), (None, IMAGE), ('other', VOLUME),
                ('other', {**IMAGE, 'boot_index': 1})):
            request(image_ref=image_ref,
                    block_device_mappings=[device]).check(BOUNDS)

        error = self.assertRaises(
            exception.InvalidField, request(
                image_ref='other', block_device_mappings=[IMAGE]).check,
            BOUNDS)

        self.assertEqual('image_ref', error.field)

    def test_order_of_booting_is_clear(self):
        other = {**VOLUME, 'boot_index': -1}
        check_devices([IMAGE, other, other], several=False)

        self.assertRefused([IMAGE, {**LOCAL, 'boot_index': 0}], '')

    def test_volume_of_several_servers_is_refused(self):
        check_devices([IMAGE, SNAPSHOT], several=True)
        self.assertRefused(
            [LOCAL, VOLUME], '[1].source_type', several=True)
