# SPDX-License-Identifier: Apache-2.0
"""Measure Nova's listing of the servers of several cells; print a JSON list.

Run this with the Python that ``environment.py`` prints. The databases are
SQLite files with Nova's tables. The servers are those of ``server_rows.py``.
They have no faults, tags or metadata, and only their rows are read, which is
an advantage for Nova.
"""

import native  # noqa: F401

import argparse
import json
import logging
import pathlib
import sys
import tempfile
import time
import uuid

from nova.compute import instance_list
from nova import config
from nova import context
from nova.db.api import api as api_db
from nova.db.api import models as api_models
from nova.db.main import api as main_db
from nova.db.main import models
from nova import objects
import oslo_messaging
import sqlalchemy

import server_rows

CONF = config.CONF


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('parameters', type=json.loads)
    parser.add_argument('--repeat', type=int, default=3)
    args = parser.parse_args()
    limit = args.parameters['limit']
    count = args.parameters['cells'] * args.parameters['servers']
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as path:
        prepare(pathlib.Path(path), server_rows.rows(
            args.parameters['cells'], args.parameters['servers']))
        page(limit)
        samples = []
        for _ in range(args.repeat):
            began = time.perf_counter()
            found = page(limit)
            samples.append(time.perf_counter() - began)
            if len(found) != (limit or count):
                sys.exit(f'{len(found)} servers were listed')
    print(json.dumps(samples))


def prepare(directory, cells):
    """Create the databases, and map the cells."""
    config.parse_args(['benchmark'], default_config_files=[],
                      configure_db=False, init_rpc=False)
    CONF.set_override('connection', f'sqlite:///{directory}/api',
                      'api_database')
    CONF.set_override('connection', f'sqlite:///{directory}/main', 'database')
    api_db.configure(CONF)
    main_db.configure(CONF)
    objects.register_all()
    # Registers the option that completes the URLs of mappings.
    oslo_messaging.get_rpc_transport(CONF, 'fake:///')
    api_models.BASE.metadata.create_all(
        sqlalchemy.create_engine(f'sqlite:///{directory}/api'))
    for number, servers in enumerate(cells):
        url = f'sqlite:///{directory}/cell{number}'
        engine = sqlalchemy.create_engine(url)
        models.BASE.metadata.create_all(engine)
        with engine.begin() as connection:
            for start in range(0, len(servers), server_rows.CHUNK):
                connection.execute(
                    models.Instance.__table__.insert(),
                    servers[start:start + server_rows.CHUNK])
        engine.dispose()
        objects.CellMapping(
            context.get_admin_context(), uuid=str(uuid.uuid4()),
            name=f'cell{number}', transport_url='none:///',
            database_connection=url).create()


def page(limit):
    found, down = instance_list.get_instance_objects_sorted(
        context.get_admin_context(), {'deleted': False}, limit, None, [],
        ['created_at', 'uuid'], ['desc', 'desc'])
    if down:
        sys.exit(f'{down} did not answer')
    return found


if __name__ == '__main__':
    main()
