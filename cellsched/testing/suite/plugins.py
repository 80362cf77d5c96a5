# SPDX-License-Identifier: Apache-2.0
"""Tests that every filter and every weigher must pass."""

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import inspect
import types
from typing import Any
from typing import ClassVar

import numpy as np

from cellsched import exception
from cellsched import plugins
from cellsched.testing import builders
from cellsched.testing.suite.base import PluginSuite

#: Modules that can execute untrusted input.
_UNSAFE = {'dill', 'marshal', 'pickle', 'shelve'}


class ColumnPluginSuite(PluginSuite):
    """Common to the suites of filters and weighers.

    Asks about some hosts and requests. A plug-in that looks at other columns
    or hints than these should override :meth:`make_hosts` or
    :meth:`make_requests`, so that it is asked something.
    """

    #: The namespace of its entry point.
    namespace: ClassVar[str]

    #: The method that answers, and the answer if it is not called.
    method: ClassVar[str]
    neutral: ClassVar[bool | float]

    #: False for a class that has no entry point.
    installed: ClassVar[bool] = True

    def make_hosts(self, count: int) -> Any:
        """Return a table of so many hosts, which must not be alike."""
        rows = np.arange(count)
        return builders.hosts(
            count, num_instances=rows, vcpus_used=rows, failed_builds=rows % 3,
            free_ram_mb=16384 - 1024 * rows, num_io_ops=rows % 4,
            service_disabled=rows % 5 == 1, forced_down=rows % 7 == 2,
            availability_zone=[f'zone{row % 3}' for row in rows])

    def make_requests(self) -> list[Any]:
        """Return requests that it cares for and some that it does not."""
        uuid = '20000000-0000-4000-8000-000000000000'
        hints = {name: [uuid] for name in getattr(self.plugin, 'hints', ())}
        return [builders.request(),
                builders.request(availability_zone='zone1', hints=hints)]

    def ask(self, plugin: Any, hosts: Any, request: Any) -> np.ndarray:
        """Return the plug-in's answer.

        As in the pipeline, only applicable methods are called.
        """
        answer = None
        if plugin.applies(request):
            with self.reading():
                answer = getattr(plugin, self.method)(hosts, request)
        return (np.full(len(hosts), self.neutral) if answer is None
                else answer)

    def check_answer(
        self, expected: Sequence[Any], hosts: Any, request: Any,
        options: dict[str, Any],
    ) -> None:
        """Check the answer of the plug-in with these options."""
        answer = self.ask(builders.plugin(self.plugin, **options), hosts,
                          request or builders.request())
        self.assertEqual(list(expected), answer.tolist())

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Fail the test if the plug-in reads a column that hosts lack."""
        try:
            yield
        except exception.ColumnNotFound as exc:
            raise self.failureException(
                f'{exc}. If a package adds this column, override '
                'make_hosts() and pass the column to '
                'builders.hosts(columns=…)') from exc

    def answers(self, count: int) -> list[tuple[Any, np.ndarray]]:
        """Return a table of so many hosts and an answer, for each request."""
        plugin = builders.plugin(self.plugin)
        found = []
        for request in self.make_requests():
            hosts = self.make_hosts(count)
            found.append((hosts, self.ask(plugin, hosts, request)))
        return found

    def test_entry_point_has_the_name_of_the_class(self) -> None:
        if self.installed:
            name = self.plugin.__name__
            self.assertIs(self.plugin, plugins.load(self.namespace, name))

    def test_module_runs_no_stored_objects(self) -> None:
        module = inspect.getmodule(self.plugin)
        imported = {value.__name__.partition('.')[0]
                    for value in vars(module).values()
                    if isinstance(value, types.ModuleType)}
        self.assertEqual(set(), imported & _UNSAFE)

    def test_answer_has_an_entry_for_each_host(self) -> None:
        for count in (0, 1, 10):
            for _, answer in self.answers(count):
                self.assertIsInstance(answer, np.ndarray)
                self.assertEqual((count,), answer.shape)

    def test_same_question_has_the_same_answer(self) -> None:
        for request in self.make_requests():
            plugin = builders.plugin(self.plugin)
            hosts = self.make_hosts(10)
            first = self.ask(plugin, hosts, request).copy()
            again = self.ask(plugin, hosts, request)
            other = self.ask(
                builders.plugin(self.plugin), self.make_hosts(10), request)
            np.testing.assert_array_equal(first, again)
            np.testing.assert_array_equal(first, other)

    def test_plugin_keeps_no_state_between_requests(self) -> None:
        plugin = builders.plugin(self.plugin)
        before = dict(vars(plugin))
        for request in self.make_requests():
            self.ask(plugin, self.make_hosts(10), request)
        self.assertEqual(before, vars(plugin))

    def test_local_answers_depend_on_no_other_host(self) -> None:
        if not self.plugin.local:
            return
        plugin = builders.plugin(self.plugin)
        for request in self.make_requests():
            hosts = self.make_hosts(10)
            answer = self.ask(plugin, hosts, request).copy()
            for start in (0, 1):
                rows = np.arange(start, 10, 2)
                np.testing.assert_array_equal(
                    answer[rows], self.ask(plugin, hosts.at(rows), request))

    def test_local_answers_ignore_amounts_taken_of_other_hosts(self) -> None:
        if not self.plugin.local:
            return
        plugin = builders.plugin(self.plugin)
        for request in self.make_requests():
            hosts = self.make_hosts(10)
            before = self.ask(plugin, hosts, request).copy()
            hosts.take(4, request.resources(), request.instance_uuid)
            after = self.ask(plugin, hosts, request)
            np.testing.assert_array_equal(
                np.delete(before, 4), np.delete(after, 4))

    def test_table_and_request_are_not_changed(self) -> None:
        plugin = builders.plugin(self.plugin)
        for request in self.make_requests():
            hosts, asked = self.make_hosts(10), request.obj_to_primitive()
            before = _contents(hosts)
            self.ask(plugin, hosts, request)
            self.assertEqual(before, _contents(hosts))
            self.assertEqual(asked, request.obj_to_primitive())


def _contents(hosts: Any) -> dict[str, list[Any]]:
    return {name: hosts[name].tolist() for name in hosts.names}
