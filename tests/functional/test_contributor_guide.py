# SPDX-License-Identifier: Apache-2.0
"""The contributor guide names existing modules."""

import importlib
import pkgutil
import re

import cellsched
from cellsched.conductor.tasks.saga import Outcome
from tests.functional import base
from tests.unit import tidy

PAGES = tidy.ROOT / 'doc/source/contributor'

#: A module of the package, or a name in one, as pages write it.
NAME = re.compile(r'``(?:cellsched\.)?([a-z]\w*(?:\.\w+)+)``')


def named(text):
    """Return the names in a page that begin with a package or a module."""
    tops = {each.name for each in pkgutil.iter_modules(cellsched.__path__)}
    return [name for name in NAME.findall(text)
            if name.partition('.')[0] in tops]


def exists(name):
    """Return whether a module has a name, or is it."""
    parts = name.split('.')
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(
                '.'.join(['cellsched', *parts[:count]]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            found = getattr(found, part, None)
        return found is not None
    return False


class TestNames(base.TestCase):

    def test_names_in_the_guide_exist(self):
        # Entry points are named as modules are.
        namespaces = tidy.entry_points(
            (tidy.ROOT / 'setup.cfg').read_text(encoding='utf-8'))

        missing = {
            (page.name, name) for page in PAGES.glob('*.rst')
            for name in named(page.read_text(encoding='utf-8'))
            if f'cellsched.{name}' not in namespaces and not exists(name)}

        self.assertEqual(set(), missing)

    def test_missing_name_is_found(self):
        names = named('``compute.outcomes``, ``hosts.table``, ``setup.cfg``, '
                      '``cells.gather.Gatherer`` and ``cells.gather.None_``')

        self.assertEqual(
            ['compute.outcomes', 'cells.gather.None_'],
            [name for name in names if not exists(name)])


class TestBuildFlow(base.TestCase):

    def test_each_outcome_of_a_build_has_a_row(self):
        text = (PAGES / 'build-flow.rst').read_text(encoding='utf-8')

        self.assertEqual(
            {each.name for each in Outcome} - {'IN_PROGRESS'},
            set(re.findall(r'(?m)^``([A-Z_0-9]+)``  ', text)))
