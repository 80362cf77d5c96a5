# SPDX-License-Identifier: Apache-2.0
"""The store of ``examples/third_party_store`` and the page on it."""

import importlib.util
import pathlib
import re
import textwrap
import tomllib
import unittest

from cellsched.claims.base import Capability
from cellsched.testing.suite import claims
from tests.unit import base

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / 'examples' / 'third_party_store'
PAGE = ROOT / 'doc/source/user/claim-store.rst'

_CODE = re.compile(r'``(\w+)``')


def load(path):
    """Return the module in a file of the example."""
    spec = importlib.util.spec_from_file_location('example_store', path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def steps():
    """Yield the methods, the capabilities and the classes of each step."""
    table = PAGE.read_text(encoding='utf-8').partition('list-table::')[2]
    for row in re.findall(r'^   \* - \d\n((?:     -.*\n)+)', table,
                          re.MULTILINE):
        yield [_CODE.findall(cell) for cell in row.splitlines()]


def classes():
    """Return the test classes of the suite by name."""
    return {each.__name__: each for each in claims.ClaimStoreSuite.__mro__
            if any(name.startswith('test') for name in vars(each))}


def skeleton():
    """Return the class with which the page begins."""
    text = PAGE.read_text(encoding='utf-8').partition(
        '.. code-block:: python\n\n')[2]
    block = re.match(r'((?:    .*)?\n)+', text)[0]
    names = {}
    exec(textwrap.dedent(block), names)
    return names['DictClaims']


class TestThirdPartyStore(base.TestCase):

    def setUp(self):
        super().setUp()
        self.store = load(
            EXAMPLE / 'third_party_store' / 'store.py').DictClaims

    def results(self, suite, kind):
        """Run a class of the suite; return its result.

        Of a class that inherits from others, only the tests of it run.
        """
        case = type(suite.__name__, (suite, unittest.TestCase), {
            'make_store': lambda self: kind()})
        result = unittest.TestResult()
        unittest.TestSuite(
            case(name) for name in vars(suite) if name.startswith('test')
        ).run(result)
        return result

    def test_suite_accepts_the_store_method_by_method(self):
        pages = list(steps())
        suites, capabilities = classes(), set()
        # Private methods come with the first method that calls them.
        written = {name: value for name, value in vars(self.store).items()
                   if callable(value) and (
                       name == '__init__' or not name.startswith('__'))}
        for name in [name for methods, *_ in pages for name in methods]:
            del written[name]
        for methods, declared, named in pages:
            written.update((name, vars(self.store)[name]) for name in methods)
            capabilities |= {Capability[name] for name in declared}
            kind = type('Store', (skeleton(),), {
                **written, 'capabilities': frozenset(capabilities)})
            for name in named:
                result = self.results(suites.pop(name), kind)
                self.assertEqual(
                    [], [text for _, text in (*result.failures,
                                              *result.errors)], name)
                self.assertLess(len(result.skipped), result.testsRun)

        self.assertEqual(
            (6, self.store.capabilities, {'ClaimQueries'}),
            (len(pages), frozenset(capabilities), set(suites)))

    def test_entry_point_names_the_store(self):
        project = tomllib.loads((EXAMPLE / 'pyproject.toml').read_text())

        self.assertEqual(
            {'dict': 'third_party_store.store:DictClaims'},
            project['project']['entry-points']['cellsched.claims'])

    def test_store_is_made_from_a_configuration(self):
        self.assertIsInstance(self.store.from_conf(None, None), self.store)
