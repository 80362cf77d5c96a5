# SPDX-License-Identifier: Apache-2.0
"""Tests that every plug-in must pass, and the class of all suites."""

import inspect
from typing import Any
from typing import ClassVar
from typing import TYPE_CHECKING
import unittest

from cellsched import plugins

# A suite is mixed into the test case of its user. A test case itself would run
# in each module that imports it.
if TYPE_CHECKING:
    Case = unittest.TestCase
else:
    Case = object


class PluginSuite(Case):
    """Tests of the class of a plug-in."""

    #: The class under test.
    plugin: ClassVar[Any]

    def test_class_has_documentation(self) -> None:
        self.assertTrue(inspect.getdoc(self.plugin))
        self.assertTrue(vars(self.plugin).get('__doc__'))

    def test_options_have_help(self) -> None:
        # A resource class has no options.
        for option in getattr(self.plugin, 'opts', tuple)():
            self.assertTrue((option.help or '').strip(), option.name)

    def check_entry_point(self, namespace: str, contract: type) -> None:
        """Check that an entry point of any name names the class."""
        self.assertIn(self.plugin, [
            plugins.load_class(namespace, point.name, contract)
            for point in plugins.entry_points(namespace)
            if point.value.endswith(f':{self.plugin.__qualname__}')])
