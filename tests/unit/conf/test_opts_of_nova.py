# SPDX-License-Identifier: Apache-2.0
"""Nova's options exist, or the page on differences names them."""

import json
import pathlib
import re

from keystoneauth1 import loading as keystoneauth

from cellsched.conf import loader
from cellsched.conf import opts
from tests.unit.conf import test_loader
from tests.unit import tidy

#: Written by ``tests/integration/nova/options.py``.
NOVAS = json.loads(
    pathlib.Path(__file__).with_name('nova-34-options.json').read_text())

PAGE = tidy.ROOT / 'doc/source/admin/other-than-in-nova.rst'

TLS = {'tls_ciphers', 'tls_min_version'}

_OPTION = re.compile(r'``\[(\w+)\]\s+(\w+)``')


class TestOptionsOfNova(test_loader.LoadingTestCase):

    def setUp(self):
        super().setUp()
        self.ours = {group: {option.dest: option.sample_default
                             or option.default for option in found}
                     for group, found in opts.list_opts()}
        _, _, text = PAGE.read_text().partition('\nOptions\n=======\n')
        self.groups, _, self.other = text.partition(
            '\nThese options have another default:')
        self.older = {
            f'[{old.group or group}] {old.name or option.dest}'
            for group, found in opts.list_opts() for option in found
            for old in option.deprecated_opts}
        self.of_keystoneauth = {
            each.dest for each in keystoneauth.get_session_conf_options()}
        self.missing = {
            (group, name) for group, found in NOVAS['defaults'].items()
            if group in self.ours for name in found
            if name not in self.ours[group]
            and f'[{group}] {name}' not in self.older
            # The lowest release of keystoneauth1 lacks them.
            and (name not in TLS or TLS <= self.of_keystoneauth)}

    def names(self, text):
        return {names for names in _OPTION.findall(text)}

    def of_page(self, names):
        """Return the names that the page has, which has one of two groups."""
        return {(group.replace('api_database', 'database'), name)
                for group, name in names}

    def test_page_names_missing_options(self):
        self.assertEqual(
            self.of_page(self.missing), self.names(self.groups))

    def test_page_names_missing_groups(self):
        self.assertEqual(
            {*NOVAS['defaults']} - {*self.ours},
            {*re.findall(r'``\[(\w+)\]``', self.groups.partition(
                'These groups of Nova do not exist:')[2])})

    def test_page_names_different_defaults(self):
        differing = {
            (group, name) for group, found in NOVAS['defaults'].items()
            for name, default in found.items()
            if self.ours.get(group, {}).get(name, default) != default
            # This is a description.
            and not f'{default}'.startswith('<')}

        self.assertEqual(self.of_page(differing), self.names(self.other))

    def test_hint_for_an_option_of_nova_is_no_other_option(self):
        text = ''.join(
            f'[{group}]\n' + ''.join(f'{name} = 1\n' for name in found)
            for group, found in NOVAS['defaults'].items())

        _, problems = loader.examine([], files=[self.write(text)], dirs=[])

        self.assertEqual([], [
            str(each) for each in problems if 'did you mean' in str(each)])

    def test_older_names_are_known(self):
        existing = {f'[{group}] {name}' for group, found
                    in self.ours.items() for name in found}

        self.assertEqual(set(), {
            older for older, newer in NOVAS['older'].items()
            if newer in existing and older not in existing} - self.older)
