# SPDX-License-Identifier: Apache-2.0
"""Options that oslo.messaging registers on the global configuration only.

It reads them from the configuration of the transport, and does not list them.
Names, types and defaults are those of version 18.3.
"""

from oslo_config import cfg

METRICS = [
    cfg.BoolOpt('metrics_enabled', default=False,
                help='Send metrics of RPC to oslo.metrics.'),
    cfg.IntOpt('metrics_buffer_size', default=1000,
               help='Metrics that can wait to be sent.'),
    cfg.StrOpt('metrics_socket_file',
               default='/var/tmp/metrics_collector.sock',  # nosec
               help='Unix domain socket of oslo.metrics.'),
    cfg.StrOpt('metrics_process_name', default='',
               help='Name of this process in metrics.'),
    cfg.IntOpt('metrics_thread_stop_timeout', default=10,
               help='Seconds without metrics after which the thread that '
                    'sends them ends.'),
]

TRACING = [
    cfg.BoolOpt('tracing_enabled', default=False,
                help='Trace RPC by OpenTelemetry.'),
    cfg.StrOpt('tracing_service_name', default='openstack',
               help='Name of the service in traces.'),
    cfg.StrOpt('otel_exporter_otlp_endpoint', default='http://localhost:4318',
               help='URL that traces are sent to.'),
    cfg.StrOpt('otlp_protocol', default='http/protobuf',
               choices=['http/protobuf', 'grpc'],
               help='Protocol by which traces are sent.'),
    cfg.BoolOpt('insecure', default=False,
                help='Send traces by gRPC without TLS.'),
]

#: The names of the options of oslo.messaging that most files have. A list of
#: all names would import its drivers.
EVERYDAY = frozenset({
    'control_exchange', 'executor_thread_pool_size', 'rpc_response_timeout',
    'transport_url'})

#: How the names of its groups begin.
GROUPS = 'oslo_messaging_'

#: Options of oslo.messaging with other defaults: name, group and default.
DEFAULTS = [
    # Without a bound, a process that is stopped holds unacknowledged messages
    # until the broker closes its connection.
    ('rabbit_qos_prefetch_count', 'oslo_messaging_rabbit', 10),
]


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options by their groups."""
    return [('oslo_messaging_metrics', METRICS),
            ('oslo_messaging_tracing', TRACING)]
