# SPDX-License-Identifier: Apache-2.0
"""The recording of spans with the SDK of OpenTelemetry: the extra ``otel``."""

from collections.abc import Callable
import contextlib
import os
from typing import Any

from opentelemetry.exporter.otlp.proto.http import trace_exporter
from opentelemetry.instrumentation import oslo_messaging
from opentelemetry.sdk import resources
from opentelemetry.sdk.trace import export
from opentelemetry.sdk.trace import sampling
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry import trace
from oslo_config import cfg

#: Spans that wait for the collector; further ones are dropped.
_WAITING_MAX = 2048

#: Seconds of an attempt to send spans, and of the last one at the end.
_SEND_S = 5
STOP_S = 3.0


def start(
    conf: cfg.ConfigOpts, service: str,
    run_within: Callable[[Callable[[], None], float], None],
) -> tuple[trace.Tracer, Callable[[], None]]:
    """Record spans and those of messages.

    :param run_within: runs a function, and waits for a number of seconds
    :returns: the tracer, and what ends the recording
    """
    end = contextlib.ExitStack()
    provider: Any = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = make_provider(conf, service)
        # It sends what waits, and the collector may not answer.
        end.callback(run_within, provider.shutdown, STOP_S)
    instrumentor = oslo_messaging.OsloMessagingInstrumentor()
    # An embedding service may have done it.
    if not instrumentor.is_instrumented_by_opentelemetry:
        instrumentor.instrument(tracer_provider=provider)
        end.callback(instrumentor.uninstrument)
    return provider.get_tracer('cellsched'), end.close


def make_provider(conf: cfg.ConfigOpts, service: str) -> TracerProvider:
    """Return a provider whose spans go to the configured collector."""
    attributes = {resources.HOST_NAME: conf.host}
    if not os.environ.get('OTEL_SERVICE_NAME'):
        attributes[resources.SERVICE_NAME] = f'cellsched-{service}'
    provider = TracerProvider(
        sampler=sampling.ParentBasedTraceIdRatio(conf.tracing.sampling_ratio),
        resource=resources.Resource.create(attributes),
        # It would wait for the collector without a limit.
        shutdown_on_exit=False)
    provider.add_span_processor(export.BatchSpanProcessor(
        trace_exporter.OTLPSpanExporter(
            endpoint=conf.tracing.endpoint, timeout=_SEND_S),
        max_queue_size=_WAITING_MAX))
    return provider
