# SPDX-License-Identifier: Apache-2.0
"""The base of all tests."""

import pathlib

import fixtures
import testtools


class TestCase(testtools.TestCase):
    """A test that keeps its logs to itself until it fails."""

    def setUp(self) -> None:
        super().setUp()
        self.useFixture(fixtures.NestedTempfile())
        self.logs = self.useFixture(fixtures.FakeLogger(level=0))

    def temporary_directory(self) -> pathlib.Path:
        """Return a directory that goes with the test."""
        return pathlib.Path(self.useFixture(fixtures.TempDir()).path)
