# SPDX-License-Identifier: Apache-2.0
"""The trace of a build across real processes and RabbitMQ."""

from http import server
import threading

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from tests.integration import base
from tests.integration import deployment
from tests.integration import processes
from tests.integration import servers
from tests import profile


class Collector(server.ThreadingHTTPServer):
    """Receives spans by OTLP: pairs of a service and a span."""

    def __init__(self):
        super().__init__(('127.0.0.1', 0), Handler)
        self.spans = []


class Handler(server.BaseHTTPRequestHandler):

    def do_POST(self):
        message = trace_service_pb2.ExportTraceServiceRequest.FromString(
            self.rfile.read(int(self.headers['Content-Length'])))
        for each in message.resource_spans:
            [service] = [
                attribute.value.string_value
                for attribute in each.resource.attributes
                if attribute.key == 'service.name']
            self.server.spans += [
                (service, span) for scope in each.scope_spans
                for span in scope.spans]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args):
        """Log nothing."""


class Traced(deployment.Deployment):
    """A deployment whose processes send spans to a collector."""

    def __init__(self, endpoint, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._endpoint = endpoint

    def _write(self, name, groups):
        super()._write(name, {**groups, 'tracing': {
            'enabled': 'true', 'endpoint': self._endpoint}})


class TestTraces(base.TestCase):

    @profile.full_only('the same trace in one process is a default test')
    def test_build_is_a_single_trace_across_processes(self):
        collector = Collector()
        self.addCleanup(collector.server_close)
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        self.addCleanup(collector.shutdown)
        world = self.useFixture(Traced(
            f'http://127.0.0.1:{collector.server_port}/v1/traces',
            self.part_of(servers.RabbitMQ), self.part_of(servers.PostgreSQL),
            {'cell1': {'c1': {'vcpus': 8}}}))

        [created] = world.create('server', '--flavor=small')

        self.assertEqual('ACTIVE', created['Status'])

        def of_build():
            roots = {span.trace_id for _, span in [*collector.spans]
                     if span.name == 'accept'}
            found = {(service, span.name) for service, span
                     in [*collector.spans] if span.trace_id in roots}
            return found if len(roots) == 1 and {
                ('cellsched-api', 'accept'),
                ('cellsched-conductor', 'build and schedule'),
                ('cellsched-conductor', 'schedule'),
                ('cellsched-scheduler', 'decide'),
                ('cellsched-scheduler', 'claim'),
                ('cellsched-compute', 'build on host'),
                ('cellsched-compute', 'spawn')} <= found else None

        processes.wait_until(of_build, 'the spans of all processes', 60.0)
