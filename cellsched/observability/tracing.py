# SPDX-License-Identifier: Apache-2.0
"""Spans of builds, for OpenTelemetry.

A process that has called :func:`start` records spans, if its configuration
says so. Else :func:`span` costs a test, and nothing of OpenTelemetry is
imported. The import takes up to 13 ms of CPU, and in some releases reads the
entry points of all installed packages. A span of its no-op tracer takes
fifteen times as long.

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
import os
import threading
import types
from typing import Any

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

#: Spans that wait for the collector; further ones are dropped.
_WAITING_MAX = 2048

#: Seconds of an attempt to send spans, and of the last one at the end.
_SEND_S = 5
STOP_S = 3.0


class Span:
    """A span of OpenTelemetry; without one, records nothing.

    :ivar is_on: whether the span is recorded
    """

    def __init__(self, recorded: Any = None) -> None:
        self._recorded = recorded
        self.is_on = recorded is not None

    def set(self, name: str, value: Any) -> None:
        """Set an attribute; None sets nothing."""
        if self.is_on and value is not None:
            self._recorded.set_attribute(name, value)

    def serve(self, uuids: Sequence[str]) -> None:
        """Set the servers that the span is for."""
        if len(uuids) == 1:
            self.set(_SERVER, uuids[0])
        elif uuids:
            self.set(_SERVERS, [*uuids[:_UUIDS_MAX]])
        self.set(_SERVER_COUNT, len(uuids))

    def fail(self, error: Exception) -> None:
        """Mark the span as failed."""
        if self.is_on:
            self.set(_ERROR, exception.kind_of(error))
            self._recorded.set_status(
                _library().trace.StatusCode.ERROR, exception.describe(error))


_OFF = contextlib.nullcontext(Span())

#: Returns a provider of OpenTelemetry, and whether it is to be shut down.
Make = Callable[[], tuple[Any, bool]]

#: Runs a function, and waits for it for a number of seconds.
RunWithin = Callable[[Callable[[], None], float], None]


class _Tracing:
    """The tracer of this process, which all services in it share."""

    def __init__(self) -> None:
        #: The tracer; None if no spans are recorded.
        self.tracer: Any = None
        self._lock = threading.Lock()
        self._users = 0
        self._end = contextlib.ExitStack()

    def start(self, make: Make, run_within: RunWithin) -> None:
        """Record spans from now on; see :func:`start_with`."""
        with contextlib.ExitStack() as end, self._lock:
            if not self._users:
                provider, is_own = make()
                if is_own:
                    # It sends what waits, and the collector may not answer.
                    end.callback(run_within, provider.shutdown, STOP_S)
                instrumentor = _library().messages.OsloMessagingInstrumentor()
                # An embedding service may have done it.
                if not instrumentor.is_instrumented_by_opentelemetry:
                    instrumentor.instrument(tracer_provider=provider)
                    end.callback(instrumentor.uninstrument)
                self._end = end.pop_all()
                self.tracer = provider.get_tracer('cellsched')
            self._users += 1

    def stop(self) -> None:
        """End the use of one service; the last one sends what waits."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            self.tracer, end = None, self._end
        end.close()


_tracing = _Tracing()


def is_on() -> bool:
    """Return whether spans are recorded in this process."""
    return _tracing.tracer is not None


def span(
    name: str, context: Any = None, uuids: Sequence[str] = (),
    parent: str = '',
) -> contextlib.AbstractContextManager[Span]:
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
    tracer: Any, name: str, context: Any, uuids: Sequence[str], parent: str,
) -> Iterator[Span]:
    above = (_library().propagator.extract({'traceparent': parent})
             if parent else None)
    with tracer.start_as_current_span(
            name, above, record_exception=False,
            set_status_on_exception=False) as recorded:
        made = Span(recorded)
        if context is not None:
            made.set(_REQUEST, context.request_id)
        if uuids:
            made.serve(uuids)
        try:
            yield made
        except Exception as exc:
            made.fail(exc)
            raise


def current() -> str:
    """Return the current span as ``traceparent`` of W3C; empty if none is."""
    carrier: dict[str, str] = {}
    if is_on():
        _library().propagator.inject(carrier)
    return carrier.get('traceparent', '')


def note(name: str, value: Any) -> None:
    """Set an attribute of the current span, if there is one."""
    if is_on():
        _library().trace.get_current_span().set_attribute(name, value)


def bound(function: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function for another thread, below the current span."""
    return functools.partial(
        contextvars.copy_context().run, function) if is_on() else function


@functools.cache
def _library() -> Any:
    """Import OpenTelemetry, which is an extra and takes long to import."""
    def module(name: str) -> Any:
        return importlib.import_module(f'opentelemetry.{name}')

    try:
        propagation = module('trace.propagation.tracecontext')
        return types.SimpleNamespace(
            export=module('sdk.trace.export'),
            exporter=module('exporter.otlp.proto.http.trace_exporter'),
            messages=module('instrumentation.oslo_messaging'),
            propagator=propagation.TraceContextTextMapPropagator(),
            resources=module('sdk.resources'),
            sampling=module('sdk.trace.sampling'),
            sdk=module('sdk.trace'),
            trace=module('trace'))
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
        _library()


def start(
    conf: cfg.ConfigOpts, service: str, run_within: RunWithin
) -> Callable[[], None]:
    """Record spans in this process, if the configuration says so.

    Call it after a fork: a thread sends the spans. A provider that an
    embedding service has set for the process is used, and stays.

    :param service: the name of the service, such as ``scheduler``
    :param run_within: see :func:`start_with`
    :returns: ends it; sends what waits, for at most ``STOP_S`` seconds
    :raises cellsched.exception.ConfigurationInvalid: the extra is missing
    """
    if not conf.tracing.enabled:
        return lambda: None
    return start_with(
        functools.partial(_make_provider, conf, service), run_within)


def start_with(make: Make, run_within: RunWithin) -> Callable[[], None]:
    """Record spans with a provider; return the function that ends it.

    :param make: returns a provider of OpenTelemetry, and whether it is to be
        shut down at the end
    :param run_within: runs a function, and waits for a number of seconds
    """
    _tracing.start(make, run_within)
    return _tracing.stop


def _make_provider(conf: cfg.ConfigOpts, service: str) -> tuple[Any, bool]:
    library = _library()
    known = library.trace.get_tracer_provider()
    if isinstance(known, library.sdk.TracerProvider):
        return known, False
    attributes = {library.resources.HOST_NAME: conf.host}
    if not os.environ.get('OTEL_SERVICE_NAME'):
        attributes[library.resources.SERVICE_NAME] = f'cellsched-{service}'
    provider = library.sdk.TracerProvider(
        sampler=library.sampling.ParentBasedTraceIdRatio(
            conf.tracing.sampling_ratio),
        resource=library.resources.Resource.create(attributes),
        # It would wait for the collector without a limit.
        shutdown_on_exit=False)
    provider.add_span_processor(library.export.BatchSpanProcessor(
        library.exporter.OTLPSpanExporter(
            endpoint=conf.tracing.endpoint, timeout=_SEND_S),
        max_queue_size=_WAITING_MAX))
    return provider, True
