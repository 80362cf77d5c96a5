# SPDX-License-Identifier: Apache-2.0
"""Packages that are installed for the time of a test, in this process."""

import pathlib
import sys

import fixtures

from cellsched.objects import resources


class Installed(fixtures.Fixture):
    """Has entry points be found that are in a directory.

    :param write: writes packages to the directory
    """

    def __init__(self, write):
        self._write = write

    def _setUp(self):
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        self._write(self.directory)
        self.useFixture(fixtures.MonkeyPatch(
            'stevedore.ExtensionManager.ENTRY_POINT_CACHE', {}))
        resources.load_classes.cache_clear()
        self.addCleanup(self._forget)
        sys.path.insert(0, str(self.directory))

    def _forget(self):
        resources.load_classes.cache_clear()
        sys.path.remove(str(self.directory))
        packages = {path.name for path in self.directory.iterdir()}
        for name in [*sys.modules]:
            if name.partition('.')[0] in packages:
                del sys.modules[name]
