# SPDX-License-Identifier: Apache-2.0
"""RPC clients that record messages in place of sending, for tests.

Arguments are serialized to JSON and back, as in a real message.
"""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple

from oslo_serialization import jsonutils

from cellsched import context as request_context
from cellsched.rpc import compute
from cellsched.rpc import conductor
from cellsched.rpc import scheduler
from cellsched.rpc import serializer
from cellsched.rpc import versions

_SERIALIZER = serializer.Serializer()


class Sent(NamedTuple):
    """A recorded message; ``host`` is None for any server of the topic."""

    context: request_context.RequestContext
    method: str
    host: str | None
    arguments: dict[str, Any]


class FakeScheduler(scheduler.SchedulerAPI):
    """A client of schedulers; a function returns or raises its answers.

    :param answer: takes the arguments of the call by keyword
    """

    def __init__(self, answer: Callable[..., Any]) -> None:
        self._version_cap = None
        self.answer = answer
        self.sent: list[Sent] = []

    def call(
        self, context: request_context.RequestContext, method: str,
        version: str | None = None, server: str | None = None, /,
        **arguments: Any,
    ) -> Any:
        arguments = _travelled(arguments)
        self.sent.append(Sent(context, method, server, arguments))
        return _travelled(self.answer(**arguments))


class _MessageRecorder:
    """Records messages in ``sent``.

    As long as ``failure`` is set, that is raised instead.
    """

    def __init__(self) -> None:
        self._version_cap: versions.Cap = None
        self.sent: list[Sent] = []
        self.failure: Exception | None = None

    def cast(
        self, context: request_context.RequestContext, method: str,
        version: str | None = None, server: str | None = None, /,
        **arguments: Any,
    ) -> None:
        if self.failure is not None:
            raise self.failure
        self.sent.append(Sent(context, method, server, _travelled(arguments)))


class FakeCompute(_MessageRecorder, compute.ComputeAPI):
    """A client of compute agents that records messages in ``sent``.

    As long as ``failure`` is set, that is raised instead.
    """


class FakeComputeAPIs(compute.ComputeAPIs):
    """Clients of compute agents by transport, in ``clients``."""

    def __init__(self) -> None:
        self.clients: dict[Any, FakeCompute] = {}

    def get(self, transport: Any) -> FakeCompute:
        return self.clients.setdefault(transport, FakeCompute())


class FakeConductor(_MessageRecorder, conductor.ConductorAPI):
    """A client of conductors that records messages in ``sent``.

    As long as ``failure`` is set, that is raised instead.
    """


class FakeConductorAPIs(conductor.ConductorAPIs):
    """Clients of conductors by transport, in ``clients``."""

    def __init__(self) -> None:
        self.clients: dict[Any, FakeConductor] = {}

    def get(self, transport: Any) -> FakeConductor:
        return self.clients.setdefault(transport, FakeConductor())


def _travelled(entity: Any) -> Any:
    primitive = _SERIALIZER.serialize_entity(None, entity)
    return _SERIALIZER.deserialize_entity(
        None, jsonutils.loads(jsonutils.dumps(primitive)))
