# SPDX-License-Identifier: Apache-2.0
"""The process of the service."""

import logging
import signal
import sys
import threading

from cellsched import embedding
from oslo_config import cfg

from embedding_service import machines
from embedding_service import service

OPTS = [cfg.StrOpt('database', default='machines.sqlite',
                   help='SQLite file that stores the machines.')]


def configuration(args: list[str]) -> cfg.ConfigOpts:
    """Return the configuration with the service's and cellsched's options."""
    conf = cfg.ConfigOpts()
    conf.register_opts(OPTS, group='machines')
    embedding.register_opts(conf)
    conf(args, project='embedding-service')
    return conf


def main() -> None:
    """Run the service until SIGTERM or SIGINT."""
    logging.basicConfig(level=logging.INFO)
    conf = configuration(sys.argv[1:])
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *args: stopping.set())
    with embedding.EmbeddedConductor(conf) as conductor:
        machine_service = service.MachineService(
            machines.MachineStore(conf.machines.database), conductor)
        machine_service.start()
        stopping.wait()
        machine_service.stop()
