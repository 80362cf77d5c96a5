# SPDX-License-Identifier: Apache-2.0
"""The base of tests with a caller of Nova, for each type of queue."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from oslo_utils import uuidutils

from tests.integration import base
from tests.integration.nova import caller
from tests.integration.nova import scheduler
from tests.integration import servers

SMALL = {'vcpus': 1, 'memory_mb': 512, 'root_gb': 2}

#: A flavor that is too large for all hosts.
GIANT = {**SMALL, 'memory_mb': 10 ** 6}

#: Pins of callers of older releases; none of them supports objects.
OLDER = ('pike', 'ocata', '4.0')


class TestCase(base.TestCase):
    """A scheduler and a caller for all tests of the class."""

    world: scheduler.SchedulerFixture
    #: Whether the queues are quorum queues.
    quorum: bool

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        python = base.installed(caller.python)
        cls.world = cls.of_class(scheduler.SchedulerFixture(
            python, cls.part_of_class(servers.RabbitMQ), cls.quorum))

    def setUp(self) -> None:
        super().setUp()
        self.show_output_of(self.world.scheduler)
        self.addCleanup(self.check_log, len(self.world.scheduler.output()))

    def check_log(self, begin: int) -> None:
        """Check that the scheduler logged no error during the test."""
        logged = self.world.scheduler.output()[begin:]
        for word in ('ERROR', 'Traceback'):
            self.assertNotIn(word, logged)

    def selected(
        self, uuids: Sequence[str], pin: str | None = None, /, **request: Any
    ) -> list[Any]:
        """Return the result of ``select_destinations``."""
        return self.result(self.select(uuids, pin, **request))

    def refused(
        self, uuids: Sequence[str], pin: str | None = None, /, **request: Any
    ) -> dict[str, Any]:
        """Return the error of ``select_destinations``."""
        answer = self.select(uuids, pin, **request)
        self.assertEqual(['error'], list(answer), answer)
        return answer['error']

    def selected_by_all(
        self, count: int, **request: Any
    ) -> list[tuple[str, ...]]:
        """Return the selected hosts, for callers of each release."""
        found = [hosts(self.selected(new(count), **request))]
        for pin in OLDER:
            found.append(tuple(each['host'] for each in self.selected(
                new(count), pin, objects=False, alternates=False, **request)))
        return found

    def refused_by_all(self, **request: Any) -> Iterable[dict[str, Any]]:
        """Yield the errors for callers of each release."""
        yield self.refused(new(1), **request)
        for pin in OLDER:
            yield self.refused(
                new(1), pin, objects=False, alternates=False, **request)

    def called(self, method: str, **arguments: Any) -> Any:
        return self.result(self.world.caller.call(method, **arguments))

    def result(self, answer: Mapping[str, Any]) -> Any:
        self.assertEqual(['result'], list(answer), answer)
        return answer['result']

    def select(
        self, uuids: Sequence[str], pin: str | None, objects: bool = True,
        alternates: bool = True, **request: Any,
    ) -> Mapping[str, Any]:
        return self.world.caller.call(
            'select_destinations', pin, instance_uuids=uuids,
            return_objects=objects, return_alternates=alternates,
            spec_obj={'flavor': SMALL, 'num_instances': len(uuids),
                      'instance_uuid': uuids[0], **request})


def new(count: int) -> list[str]:
    """Return the uuids of new instances."""
    return [uuidutils.generate_uuid() for _ in range(count)]


def hosts(found: Iterable[Sequence[Mapping[str, Any]]]) -> tuple[str, ...]:
    """Return the selected host of each instance."""
    return tuple(first['fields']['service_host'] for first, *_ in found)
