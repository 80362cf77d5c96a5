# SPDX-License-Identifier: Apache-2.0
"""The pages about an existing Nova match the package."""

import re
import sys
import tomllib

from integrations.nova.cellsched_nova import options
from integrations.nova.cellsched_nova.shadow import comparison
from tests.unit import base
from tests.unit import tidy

PACKAGE = tidy.ROOT / 'integrations' / 'nova'
ADMIN = tidy.ROOT / 'doc' / 'source' / 'admin'

#: Those that are about the package, in the order of the guide.
NAMES = ('existing-service', 'adopting-in-nova', 'in-novas-place',
         'nova-commands')


class TestPages(base.TestCase):

    def setUp(self):
        super().setUp()
        self.pages = {name: (ADMIN / f'{name}.rst').read_text(encoding='utf-8')
                      for name in NAMES}
        self.text = '\n'.join(self.pages.values())

    def rows(self, page):
        """Return the first cells of a page's tables."""
        return re.findall(r'(?m)^   \* - (.*)$', self.pages[page])

    def test_guide_has_the_pages_beside_each_other_in_order(self):
        index = (ADMIN / 'index.rst').read_text(encoding='utf-8')

        self.assertIn('\n   '.join(NAMES) + '\n\n', index)

    def test_commands_equal_the_commands_of_the_package(self):
        project = tomllib.loads(
            (PACKAGE / 'pyproject.toml').read_text(encoding='utf-8'))
        scripts = project['project']['scripts'].keys()

        self.assertEqual(
            {f'``{name}``' for name in scripts},
            {row for row in self.rows('existing-service')
             if row.startswith('``cellsched-nova')})
        typed = re.findall(r'(?m)^   \$ (cellsched-nova\S*)', self.text)
        self.assertEqual({*scripts}, {*typed})

    def test_named_options_exist(self):
        there = {opt.dest for opt in options.OPTS}

        named = {*re.findall(r'option:`cellsched\.(\w+)`', self.text),
                 *re.findall(r'``\[cellsched\]\s(\w+)``', self.text)}
        self.assertTrue(named)
        self.assertEqual(set(), named - there)

    def test_every_option_is_described(self):
        sys.path.insert(0, str(tidy.ROOT / 'doc' / 'ext'))
        self.addCleanup(sys.path.pop, 0)
        import nova_options

        self.assertIn('.. nova-options::', self.pages['existing-service'])
        for opt in options.OPTS:
            told = '\n'.join(nova_options.describe(opt))

            self.assertIn(f':Default: ``{opt.default}``', told)
            self.assertIn(opt.help.strip().splitlines()[0], told)

    def test_outcomes_of_a_comparison_are_documented(self):
        self.assertEqual(
            [str(each) for each in comparison.Outcome],
            self.rows('adopting-in-nova')[1:])


class TestDifferences(base.TestCase):
    """The page on differences from Nova."""

    #: A term of a definition list.
    TERM = re.compile(r'(?m)^(?![\s*.])(.+)\n {4}\S')

    PLACES = ('product', "Nova's place", 'both')

    def test_each_difference_names_its_place(self):
        text = (ADMIN / 'other-than-in-nova.rst').read_text(encoding='utf-8')
        terms = self.TERM.findall(text)

        self.assertGreater(len(terms), 60)
        self.assertEqual([], [
            term for term in terms
            if term.rpartition(' : ')[2] not in self.PLACES])
        for place in self.PLACES:
            self.assertIn(f' : {place}\n', text)
