# SPDX-License-Identifier: Apache-2.0

import logging
import os
import socket
import threading
from unittest import mock

import fixtures
from opentelemetry.sdk import trace
from opentelemetry.sdk.trace import export
from opentelemetry.sdk.trace.export import in_memory_span_exporter

from cellsched.observability import span_export
from cellsched.observability import tracing
from tests.unit import base
from tests.unit.observability.test_tracing import configuration


class TestStart(base.TestCase):

    def test_a_provider_of_the_embedding_service_is_used_and_stays(self):
        provider = trace.TracerProvider()
        exporter = in_memory_span_exporter.InMemorySpanExporter()
        provider.add_span_processor(export.SimpleSpanProcessor(exporter))
        self.useFixture(fixtures.MonkeyPatch(
            'opentelemetry.trace.get_tracer_provider', lambda: provider))
        end = tracing.start(configuration(enabled=True), 'embedding', print)
        with tracing.span('a'):
            pass
        end()
        with provider.get_tracer('of the service').start_as_current_span('b'):
            pass

        self.assertEqual(['a', 'b'], [
            span.name for span in exporter.get_finished_spans()])
        self.assertFalse(tracing.is_on())

    def test_a_silent_collector_delays_no_span_and_no_end(self):
        ends = []
        # It accepts connections, and never answers.
        with socket.create_server(('127.0.0.1', 0)) as server:
            port = server.getsockname()[1]
            end = tracing.start(configuration(
                enabled=True, endpoint=f'http://127.0.0.1:{port}/v1/traces'),
                'scheduler', lambda function, seconds: ends.append(
                    (function, seconds)))
            # More than wait at most.
            for _ in range(5000):
                with tracing.span('a'):
                    pass
            end()
        [(shutdown, seconds)] = ends
        self.assertEqual(span_export.STOP_S, seconds)
        # The exporter ends during another test, and must not log there.
        library = logging.getLogger('opentelemetry')
        library.addHandler(logging.NullHandler())
        library.propagate = False
        threading.Thread(target=shutdown, daemon=True).start()
        self.assertFalse(tracing.is_on())


class TestMakeProvider(base.TestCase):

    def test_the_sampling_ratio_and_the_service_are_used(self):
        with mock.patch.dict(os.environ):
            os.environ.pop('OTEL_SERVICE_NAME', None)
            provider = span_export.make_provider(
                configuration(enabled=True, sampling_ratio=0.0), 'conductor')
        self.addCleanup(provider.shutdown)

        span = provider.get_tracer('x').start_span('a')
        self.assertFalse(span.is_recording())
        self.assertEqual('cellsched-conductor',
                         provider.resource.attributes['service.name'])
