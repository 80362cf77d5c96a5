# SPDX-License-Identifier: Apache-2.0

from concurrent import futures
import logging
import os
import socket
import subprocess
import sys
import threading
from unittest import mock

from opentelemetry.sdk import trace
from opentelemetry.sdk.trace import export
from opentelemetry.sdk.trace.export import in_memory_span_exporter
from opentelemetry import trace as api
from oslo_config import cfg

from cellsched.conf import opts
from cellsched import context
from cellsched import exception
from cellsched.observability import tracing
from cellsched.rpc import client
from tests.unit import base

CONTEXT = context.RequestContext(request_id='req-1')

#: A configuration that records spans.
CODE = '''
from cellsched.conf import opts
from oslo_config import cfg
import sys
from cellsched import exception
from cellsched.observability import tracing
conf = cfg.ConfigOpts()
opts.register_opts(conf)
conf([])
conf.set_override('enabled', {enabled}, 'tracing')
if {missing}:
    sys.modules['opentelemetry.sdk.trace'] = None
try:
    tracing.start(conf, 'scheduler', print)
except exception.ConfigurationInvalid as exc:
    print(exc.format_message())
with tracing.span('decide'):
    print(any(name.startswith('opentelemetry.sdk') for name in sys.modules))
'''


def run(function, seconds):
    function()


def configuration(**values):
    conf = cfg.ConfigOpts()
    opts.register_opts(conf)
    conf([])
    for name, value in values.items():
        conf.set_override(name, value, 'tracing')
    return conf


class TestOff(base.TestCase):

    def test_spans_are_a_shared_object_without_records(self):
        self.addCleanup(tracing.start(configuration(), 'scheduler', print))

        self.assertIs(tracing.span('a'), tracing.span('b', CONTEXT, ['1']))
        with tracing.span('a') as span:
            span.set(tracing.HOSTS, 1)
            span.serve(['1'])
            span.fail(ValueError())
            tracing.note(tracing.RESULT, 'active')
            self.assertFalse(span.is_on)
            self.assertEqual('', tracing.current())
        self.assertIs(len, tracing.bound(len))
        self.assertFalse(tracing.is_on())

    def run_code(self, **values):
        return subprocess.run(
            [sys.executable, '-c', CODE.format(**values)], check=True,
            capture_output=True, text=True).stdout.splitlines()

    def test_opentelemetry_is_not_imported(self):
        self.assertEqual(
            ['False'], self.run_code(enabled=False, missing=False))

    def test_error_names_the_missing_extra(self):
        error, _ = self.run_code(enabled=True, missing=True)

        self.assertIn('[tracing] enabled', error)
        self.assertIn('cellsched[otel]', error)


class TestSpans(base.TestCase):

    def setUp(self):
        super().setUp()
        self.exporter = in_memory_span_exporter.InMemorySpanExporter()
        self.provider = trace.TracerProvider()
        self.provider.add_span_processor(
            export.SimpleSpanProcessor(self.exporter))
        self.addCleanup(tracing.start_with(
            lambda: (self.provider, True), run))

    def ended(self):
        return {span.name: span for span in
                self.exporter.get_finished_spans()}

    def test_spans_have_the_request_and_the_servers(self):
        with tracing.span('a', CONTEXT, ['1']), tracing.span(
                'b', uuids=['1', '2']) as span:
            span.set(tracing.CELL, None)

        found = self.ended()
        self.assertEqual(
            {'openstack.request_id': 'req-1', 'cellsched.server.uuid': '1',
             'cellsched.server.count': 1}, dict(found['a'].attributes))
        self.assertEqual(
            {'cellsched.server.uuids': ('1', '2'),
             'cellsched.server.count': 2}, dict(found['b'].attributes))
        self.assertEqual(found['a'].context.span_id,
                         found['b'].parent.span_id)

    def test_the_uuids_of_a_large_request_are_cut(self):
        with tracing.span('a', uuids=[*map(str, range(1000))]):
            pass

        attributes = self.ended()['a'].attributes
        self.assertEqual(100, len(attributes['cellsched.server.uuids']))
        self.assertEqual(1000, attributes['cellsched.server.count'])

    def test_errors_have_no_passwords_and_no_traceback(self):
        def fail():
            with tracing.span('a'):
                raise ValueError('no answer of mysql://me:secret@host/db')

        self.assertRaises(ValueError, fail)

        span = self.ended()['a']
        self.assertEqual(api.StatusCode.ERROR, span.status.status_code)
        self.assertEqual('ValueError', span.attributes['error.type'])
        self.assertNotIn('secret', span.to_json())
        self.assertEqual((), span.events)

    def test_a_span_in_a_later_attempt_has_its_parent(self):
        with tracing.span('a'):
            kept = tracing.current()
        with tracing.span('b', parent=kept):
            pass
        with tracing.span('c', parent='nonsense'):
            pass

        found = self.ended()
        self.assertEqual(found['a'].context.span_id,
                         found['b'].parent.span_id)
        self.assertIsNone(found['c'].parent)

    def test_messages_sent_by_another_thread_are_in_the_trace(self):
        with futures.ThreadPoolExecutor(1) as pool:
            send = client.BackgroundSender(pool, 60.0)
            found = []
            with tracing.span('a'):
                send(lambda: found.append(tracing.current()))
                self.assertEqual([tracing.current()], found)

    def test_spans_end_with_the_last_service_of_a_process(self):
        end = tracing.start_with(mock.Mock(side_effect=AssertionError), run)
        end()
        self.assertTrue(tracing.is_on())


class TestProvider(base.TestCase):

    def test_a_provider_of_the_embedding_service_is_used_and_stays(self):
        provider = trace.TracerProvider()
        exporter = in_memory_span_exporter.InMemorySpanExporter()
        provider.add_span_processor(export.SimpleSpanProcessor(exporter))
        with mock.patch.object(
                api, 'get_tracer_provider', return_value=provider):
            end = tracing.start(configuration(enabled=True), 'embedding', run)
        with tracing.span('a'):
            pass
        end()
        with provider.get_tracer('of the service').start_as_current_span('b'):
            pass

        self.assertEqual(['a', 'b'], [
            span.name for span in exporter.get_finished_spans()])

    def test_a_failed_start_leaves_traces_off(self):
        self.assertRaises(exception.ConfigurationInvalid, tracing.start_with,
                          mock.Mock(side_effect=exception.ConfigurationInvalid(
                              field='[tracing]', expected='something else')),
                          run)
        self.assertFalse(tracing.is_on())
        end = tracing.start_with(lambda: (trace.TracerProvider(), True), run)
        self.assertTrue(tracing.is_on())
        end()
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
        self.assertEqual(tracing.STOP_S, seconds)
        # The exporter ends during another test, and must not log there.
        library = logging.getLogger('opentelemetry')
        library.addHandler(logging.NullHandler())
        library.propagate = False
        threading.Thread(target=shutdown, daemon=True).start()
        self.assertFalse(tracing.is_on())

    def test_the_sampling_ratio_and_the_service_are_used(self):
        made = []

        def start_with(make, run_within):
            made.append(make()[0])
            return lambda: None

        with mock.patch.object(tracing, 'start_with', start_with):
            tracing.start(
                configuration(enabled=True, sampling_ratio=0.0), 'conductor',
                run)
        self.addCleanup(made[0].shutdown)

        span = made[0].get_tracer('x').start_span('a')
        self.assertFalse(span.is_recording())
        with mock.patch.dict(os.environ):
            os.environ.pop('OTEL_SERVICE_NAME', None)
            self.assertEqual('cellsched-conductor',
                             made[0].resource.attributes['service.name'])
