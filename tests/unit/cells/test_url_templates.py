# SPDX-License-Identifier: Apache-2.0
"""URLs of cells that are templates."""

import hypothesis
from hypothesis import strategies as st

from cellsched.cells import url_templates
from cellsched import exception
from tests.unit import base

OWN = 'rabbit://me:s%7Bcr@h1:5672,you:other@[::1]:5673/vhost?ssl=1#end'

_TEXT = st.text('abc%{}:@/?#', max_size=12)


class TestFill(base.TestCase):

    def fill(self, url, own=OWN):
        return url_templates.fill(url, lambda: own, '[DEFAULT] transport_url')

    def test_fields_are_parts_of_the_own_url(self):
        for field, expected in (
                ('scheme', 'rabbit'), ('username', 'me'),
                ('password', 's%7Bcr'), ('hostname', 'h1'), ('port', '5672'),
                ('path', 'vhost'), ('query', 'ssl=1'), ('fragment', 'end'),
                ('username1', 'me'), ('username2', 'you'),
                ('password2', 'other'), ('hostname2', '[::1]'),
                ('port2', '5673')):
            self.assertEqual(f'x{expected}y', self.fill(f'x{{{field}}}y'))

    def test_whole_template_is_the_own_url_with_what_differs(self):
        self.assertEqual(
            'rabbit://me:s%7Bcr@h1:5672/cell1?ssl=1', self.fill(
                '{scheme}://{username}:{password}@{hostname}:{port}/cell1'
                '?{query}'))

    def test_path_of_an_absolute_file_stays_absolute(self):
        self.assertEqual('sqlite:////srv/main.sqlite', self.fill(
            'sqlite:///{path}', 'sqlite:////srv/main.sqlite'))

    def test_part_that_the_own_url_lacks_is_named(self):
        for field in ('username', 'password', 'hostname', 'port',
                      'hostname2'):
            error = self.assertRaises(
                exception.ConfigurationInvalid, self.fill,
                f'rabbit://{{{field}}}/', 'sqlite:///file')

            self.assertIn(f'[DEFAULT] transport_url: a URL that has a {field}',
                          str(error))

    def test_query_that_the_own_url_lacks_is_empty(self):
        self.assertEqual('x//h/?', self.fill('x//h/?{query}', 'rabbit://h'))

    @hypothesis.given(_TEXT)
    def test_url_without_fields_is_as_it_was(self, text):
        self.assertEqual(text, url_templates.fill(
            text, lambda: self.fail('asked'), 'option'))


class TestCheck(base.TestCase):

    def test_fields_and_nothing_else_are_in_braces(self):
        for good in ('rabbit://u:p@h/v', 'rabbit://u:%7B@h/v',
                     '{scheme}://{username2}:{password2}@{hostname2}/x'):
            url_templates.check(good, 'transport_url')
        for bad in ('{}', '{user}', '{username0}', 'a{', 'a}', '{{path}}'):
            self.assertRaises(exception.InvalidField, url_templates.check,
                              f'rabbit://{bad}', 'transport_url')
