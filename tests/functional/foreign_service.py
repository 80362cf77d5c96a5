# SPDX-License-Identifier: Apache-2.0
"""A service of another project that embeds a conductor.

It has its own configuration, its own transport and its own verbs, and knows
neither how our services are put together nor where they run.
"""

from oslo_config import cfg
import oslo_messaging

from cellsched import context
from cellsched import embedding
from cellsched.rpc import transport

OPTS = [cfg.StrOpt('listen'), cfg.StrOpt('placement'), cfg.StrOpt('api'),
        cfg.StrOpt('claims')]


class Orchestra:
    """Builds servers for its clients."""

    target = oslo_messaging.Target(namespace='orchestra', version='3.7')

    def __init__(self, conductor):
        self._conductor = conductor

    def perform(self, ctxt, pieces):
        self._conductor.run(
            context.RequestContext(user_id=ctxt['who'], is_admin=True),
            pieces)
        return len(pieces)


def make(conf):
    """Return the service, its transports and its conductor."""
    conf.register_opts(OPTS, group='orchestra')
    options = conf.orchestra
    transports = transport.Transports(conf)
    conductor = embedding.EmbeddedConductor(embedding.configuration(
        options.api, options.placement, options.claims, 'orchestra',
        quota={'driver': 'NoopQuotaDriver'}))
    server = oslo_messaging.get_rpc_server(
        transports.get(options.listen),
        oslo_messaging.Target(topic='orchestra', server='pit'),
        [Orchestra(conductor)],
        access_policy=oslo_messaging.DefaultRPCAccessPolicy)
    return server, transports, conductor
