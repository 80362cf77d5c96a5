# SPDX-License-Identifier: Apache-2.0
"""Spans of builds, with the API of OpenTelemetry.

A process that has called :func:`start` records spans, if its configuration
says so; only then the SDK is imported. Else :func:`span` returns the one that
records nothing: the no-op tracer of the API takes fifteen times as long.

The trace of a build passes from process to process in messages: the
instrumentation of oslo.messaging writes ``traceparent`` into the context of
each message, and reads it. It also passes with the build request, so that a
conductor which resumes a build continues its trace.

Attributes have names, uuids and numbers; never texts of users.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import contextvars
import functools
import importlib
import threading
from typing import Any

from opentelemetry import trace
from opentelemetry.trace.propagation import tracecontext
from oslo_config import cfg

from cellsched import exception

#: Attributes of spans. Those without ``cellsched`` are of the semantic
#: conventions of OpenTelemetry, or of the instrumentation of oslo.messaging.
CELL = 'cellsched.cell.name'
CELL_UUID = 'cellsched.cell.uuid'
HOST = 'cellsched.host.name'
HOSTS = 'cellsched.hosts.count'
HOSTS_LEFT = 'cellsched.hosts.left'
RESULT = 'cellsched.build.result'
STAGES = 'cellsched.stages'
_SERVER = 'cellsched.server.uuid'
_SERVERS = 'cellsched.server.uuids'
_SERVER_COUNT = 'cellsched.server.count'
_REQUEST = 'openstack.request_id'
_ERROR = 'error.type'

#: Uuids in the attributes of a span.
_UUIDS_MAX = 100

_PROPAGATOR = tracecontext.TraceContextTextMapPropagator()

_OFF = contextlib.nullcontext(trace.INVALID_SPAN)

#: Runs a function, and waits for it for a number of seconds.
RunWithin = Callable[[Callable[[], None], float], None]


class _Tracing:
    """The tracer of this process, which all services in it share."""

    #: None if no spans are recorded.
    tracer: trace.Tracer | None = None

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._end: Callable[[], None] = lambda: None

    def start(self, *args: Any) -> None:
        """Record spans from now on; see :func:`.span_export.start`."""
        with self._lock:
            if not self._users:
                self.tracer, self._end = _sdk().start(*args)
            self._users += 1

    def stop(self) -> None:
        """End the use of one service; the last one sends what waits."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            self.tracer = None
        self._end()


_tracing = _Tracing()


def is_on() -> bool:
    """Return whether spans are recorded in this process."""
    return _tracing.tracer is not None


def span(
    name: str, context: Any = None, uuids: Sequence[str] = (),
    parent: str = '',
) -> contextlib.AbstractContextManager[trace.Span]:
    """Return a span, to be entered.

    Spans that are entered meanwhile in the same thread, and in the servers
    that get messages from it, are below it. An error that leaves the span
    marks it as failed.

    :param context: the request context, for the id of the request
    :param uuids: servers that the span is for
    :param parent: what :func:`current` returned in the span above; by default
        the current span of the thread is above
    """
    tracer = _tracing.tracer
    return _OFF if tracer is None else _span(
        tracer, name, context, uuids, parent)


@contextlib.contextmanager
def _span(
    tracer: trace.Tracer, name: str, context: Any, uuids: Sequence[str],
    parent: str,
) -> Iterator[trace.Span]:
    above = _PROPAGATOR.extract({'traceparent': parent}) if parent else None
    with tracer.start_as_current_span(
            name, above, record_exception=False,
            set_status_on_exception=False) as made:
        if context is not None:
            made.set_attribute(_REQUEST, context.request_id)
        if uuids:
            set_servers(made, uuids)
        try:
            yield made
        except Exception as exc:
            fail(made, exc)
            raise


def set_servers(span: trace.Span, uuids: Sequence[str]) -> None:
    """Set the servers that a span is for."""
    if len(uuids) == 1:
        span.set_attribute(_SERVER, uuids[0])
    elif uuids:
        span.set_attribute(_SERVERS, [*uuids[:_UUIDS_MAX]])
    span.set_attribute(_SERVER_COUNT, len(uuids))


def fail(span: trace.Span, error: Exception) -> None:
    """Mark a span as failed."""
    if span.is_recording():
        span.set_attribute(_ERROR, exception.kind_of(error))
        span.set_status(trace.StatusCode.ERROR, exception.describe(error))


def current() -> str:
    """Return the current span as ``traceparent`` of W3C; empty if none is."""
    carrier: dict[str, str] = {}
    if is_on():
        _PROPAGATOR.inject(carrier)
    return carrier.get('traceparent', '')


def note(name: str, value: str) -> None:
    """Set an attribute of the current span, if there is one."""
    if is_on():
        trace.get_current_span().set_attribute(name, value)


def bound(function: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function for another thread, below the current span."""
    return functools.partial(
        contextvars.copy_context().run, function) if is_on() else function


def _sdk() -> Any:
    """Import the module that needs the extra."""
    try:
        return importlib.import_module('cellsched.observability.span_export')
    except ImportError as exc:
        raise exception.ConfigurationInvalid(
            field='[tracing] enabled', problem=f'{exc}',
            expected='the packages of the extra otel, as pip install '
            '"cellsched[otel]" installs them') from None


def check(conf: cfg.ConfigOpts) -> None:
    """Check that spans can be recorded, if the configuration says so.

    :raises cellsched.exception.ConfigurationInvalid: the extra is missing
    """
    if conf.tracing.enabled:
        _sdk()


def start(
    conf: cfg.ConfigOpts, service: str, run_within: RunWithin
) -> Callable[[], None]:
    """Record spans in this process, if the configuration says so.

    Call it after a fork: a thread sends the spans. A provider that an
    embedding service has set for the process is used, and stays.

    :param service: the name of the service, such as ``scheduler``
    :param run_within: runs a function, and waits for a number of seconds
    :returns: ends it; sends what waits, for a limited time
    :raises cellsched.exception.ConfigurationInvalid: the extra is missing
    """
    if not conf.tracing.enabled:
        return lambda: None
    _tracing.start(conf, service, run_within)
    return _tracing.stop
