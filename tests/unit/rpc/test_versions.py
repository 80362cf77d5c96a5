# SPDX-License-Identifier: Apache-2.0
"""Version pins."""

import hypothesis
from hypothesis import strategies as st

from cellsched import exception
from cellsched.rpc import versions
from tests.unit import base

NUMBERS = st.integers(0, 9999)


class TestCanSend(base.TestCase):

    def test_all_versions_may_be_sent_without_a_cap(self):
        self.assertTrue(versions.can_send('99.9', None))

    @hypothesis.given(NUMBERS, NUMBERS, NUMBERS, NUMBERS)
    def test_same_major_version_and_no_newer_minor_may_be_sent(
            self, major, minor, cap_major, cap_minor):
        self.assertEqual(
            major == cap_major and minor <= cap_minor,
            versions.can_send(f'{major}.{minor}', f'{cap_major}.{cap_minor}'))

    def test_minor_versions_are_numbers_and_not_texts(self):
        self.assertTrue(versions.can_send('1.9', '1.10'))
        self.assertFalse(versions.can_send('1.10', '1.9'))


class TestPins(base.TestCase):

    def cap(self, pin, topic='scheduler', newest='4.5'):
        return versions.cap(topic, newest, pin)

    def refused(self, *args, **kwargs):
        error = self.assertRaises(
            exception.ConfigurationInvalid, self.cap, *args, **kwargs)
        return error.field, error.detail

    def test_release_names_have_versions(self):
        for release, version in (
                ('kilo', '4.2'), ('liberty', '4.2'), ('mitaka', '4.3'),
                ('newton', '4.3'), ('ocata', '4.3'), ('pike', '4.4'),
                ('Pike', '4.4'), ('queens', '4.5'), ('2023.1', '4.5'),
                ('gazpacho', '4.5'), ('hibiscus', '4.5')):
            self.assertEqual(version, self.cap(release))

    def test_version_numbers_are_accepted(self):
        for number in ('4.0', '4.3', '4.5'):
            self.assertEqual(number, self.cap(number))

    def test_unset_and_auto_are_not_pins(self):
        def find_out():
            raise AssertionError

        self.assertIsNone(self.cap(None))
        self.assertIs(find_out, self.cap(find_out))

    def test_mistyped_pin_is_an_error_listing_the_choices(self):
        field, expected = self.refused('pikee')

        self.assertEqual('[upgrade_levels] scheduler', field)
        self.assertIn("'pikee'", expected)
        self.assertIn('4.0 to 4.5', expected)
        self.assertIn('pike', expected.split('; expected')[1])

    def test_unsupported_release_is_named_with_its_version(self):
        _, expected = self.refused('grizzly')

        self.assertIn("'grizzly' (2.6) is not supported", expected)
        self.assertNotIn('havana', expected)

    def test_unknown_version_is_refused(self):
        for pin in ('', '4', '4.6', '4.44', '3.1', '5.0', '99.0', '-4.3',
                    '4.-3', '4.3.1', '4.3 ', '4,3', '٤.٣', '4.3\n', 'auto',
                    '4.' + '9' * 5000):
            field, expected = self.refused(pin)

            self.assertEqual('[upgrade_levels] scheduler', field)
            self.assertTrue(expected.isprintable())
            self.assertLess(len(expected), 500)

    def test_topic_without_releases_takes_numbers(self):
        self.assertEqual('1.7', self.cap('1.7', 'conductor', '1.19'))
        self.assertEqual(
            ('[upgrade_levels] conductor',
             "'pike' is not supported; expected 1.0 to 1.19"),
            self.refused('pike', 'conductor', '1.19'))

    def test_cap_below_the_minimum_is_an_error(self):
        versions.check('scheduler', '4.5', '4.5')
        versions.check('scheduler', '4.4', None)
        versions.check('scheduler', None, '4.5')
        versions.check('scheduler', lambda: '4.0', '4.5')

        error = self.assertRaises(
            exception.ConfigurationInvalid, versions.check, 'scheduler',
            '4.4', '4.5')

        self.assertEqual('[upgrade_levels] scheduler', error.field)
        self.assertIn('4.5', error.detail)
        self.assertIn('4.4', error.detail)
