# SPDX-License-Identifier: Apache-2.0
"""The base of tests that use real servers and real processes."""

from collections.abc import Callable
from collections.abc import Sequence
import os
from typing import Any
from typing import TypeVar
import unittest

import fixtures
from oslo_utils import strutils
from testtools import content

from tests.integration import processes
from tests.integration import servers
from tests.integration import serving
from tests.unit import base

#: Seconds for which a store tries a claim where it is not to give up: others
#: have the processors, and a server answers late.
PATIENCE_S = 300.0

AnyFixture = TypeVar('AnyFixture', bound=fixtures.Fixture)


class TestCase(base.TestCase):
    """A test with servers.

    It is skipped where a server is not installed, unless the environment
    says ``CELLSCHED_REQUIRE_SERVERS=1``: then it fails.
    """

    # Other tests run at the same time, and start a dozen processes each.
    timeout_s = 1200

    def setUp(self) -> None:
        super().setUp()
        self.directory = self.temporary_directory()

    @classmethod
    def of_class(cls, fixture: AnyFixture) -> AnyFixture:
        """Use a fixture for all tests of the class, from ``setUpClass``."""
        try:
            fixture.setUp()
        except fixtures.MultipleExceptions as exc:
            # The first is why; the others are of the fixture's own making.
            raise exc.args[0][1] from None
        cls.addClassCleanup(fixture.cleanUp)
        return fixture

    @classmethod
    def part_of_class(cls, kind: type[serving.SharedServer]) -> servers.Part:
        """Return a part of the shared server, for all tests of the class."""
        return cls.of_class(servers.Part(installed(servers.shared, kind)))

    def part_of(self, kind: type[serving.SharedServer]) -> servers.Part:
        """Return a part of the server that all tests here share."""
        return self.useFixture(
            servers.Part(installed(servers.shared, kind)))

    def own(
        self, kind: type[servers.AnyServer],
        search_path: Sequence[str] | None = None,
    ) -> servers.AnyServer:
        """Start a server that is the test's alone, to stop or kill it."""
        return self.useFixture(installed(kind, search_path))

    def process(
        self, args: Sequence[str], **options: Any
    ) -> processes.Process:
        """Start a process that ends with the test."""
        process = processes.Process(
            args, options.pop('directory', self.directory), **options)
        self.show_output_of(process)
        return self.useFixture(process)

    def show_output_of(self, process: processes.Process) -> None:
        """Show what a process writes from now on, if the test fails."""
        begin = process.log.stat().st_size if process.log.exists() else 0

        def show(exc_info: Any) -> None:
            if process.log.exists():
                text = process.log.read_bytes()[begin:].decode(
                    errors='replace')
                self.addDetail(process.log.name, content.text_content(text))

        self.addOnException(show)

    def run_command(self, *args: str, **options: Any) -> str:
        """Run a command to its end and return its standard output."""
        return processes.run(args, self.directory, **options)


def installed(make: Callable[..., Any], *args: Any) -> Any:
    """Return what is made of what is installed, or skip the test, or fail."""
    try:
        return make(*args)
    except serving.NotInstalled as exc:
        if strutils.bool_from_string(
                os.environ.get('CELLSCHED_REQUIRE_SERVERS', '')):
            raise AssertionError(str(exc)) from None
        raise unittest.SkipTest(str(exc)) from None
