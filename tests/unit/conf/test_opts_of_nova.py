# SPDX-License-Identifier: Apache-2.0
"""Nova's options are there, or the page on differences names them."""

import json
import pathlib
import re

from cellsched.conf import opts
from tests.unit import base
from tests.unit import tidy

#: Written by ``tests/integration/nova/options.py``.
NOVAS = json.loads(
    pathlib.Path(__file__).with_name('nova-34-options.json').read_text())

PAGE = tidy.ROOT / 'doc/source/admin/other-than-in-nova.rst'

_NAMED = re.compile(r'``\[(\w+)\] (\w+)``')


class TestOptionsOfNova(base.TestCase):

    def setUp(self):
        super().setUp()
        self.ours = {group: {option.dest: option.default
                             for option in options}
                     for group, options in opts.list_opts()}
        text = PAGE.read_text().partition('\nOptions\n=======\n')[2]
        missing, _, other = text.partition(
            '\nThese options have another default:')
        self.missing = set(_NAMED.findall(missing))
        self.other = set(_NAMED.findall(other))

    def names(self, differs):
        """Return group and name of Nova's options for which this holds."""
        return {(group, name) for group, options in NOVAS.items()
                for name, default in options.items()
                if differs(self.ours[group], name, default)}

    def test_options_that_are_not_there_are_named(self):
        self.assertEqual(self.missing, self.names(
            lambda ours, name, default: name not in ours))

    def test_defaults_that_differ_are_named(self):
        differing = self.names(
            lambda ours, name, default: ours.get(name, default) != default)

        self.assertEqual(set(), differing - self.other)

    def test_many_of_them_are_there(self):
        self.assertEqual(
            {'scheduler', 'filter_scheduler', 'metrics', 'quota'}, {*NOVAS})
        self.assertLess(30, len(self.names(
            lambda ours, name, default: name in ours)))
