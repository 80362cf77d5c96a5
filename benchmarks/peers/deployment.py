# SPDX-License-Identifier: Apache-2.0
"""Nova's databases and Placement over PostgreSQL.

Each cell has its own database; all databases are in one server. There is no
broker, and notifications are not sent, which is Nova's default. Services stay
up for as long as the benchmark takes.
"""

import native  # noqa: F401

import contextlib
import dataclasses
import pathlib

from nova import config
from nova.db.api import api as api_db
from nova.db.main import api as main_db
from nova.db import migration
from nova import objects

import contents
import servers

CONFIGURATION = """\
[DEFAULT]
transport_url = fake:///
service_down_time = 1000000
state_path = {directory}
[oslo_concurrency]
lock_path = {directory}
[database]
connection = {main}
[api_database]
connection = {api}
[placement]
auth_type = admin_token
token = admin
endpoint = {placement}
[scheduler]
max_placement_results = {results}
"""

#: Nova's default filters, and those of NUMA cells and devices.
_HARDWARE = """\
[filter_scheduler]
enabled_filters = ComputeFilter, ComputeCapabilitiesFilter, \
ImagePropertiesFilter, ServerGroupAntiAffinityFilter, \
ServerGroupAffinityFilter, NUMATopologyFilter, PciPassthroughFilter
[workarounds]
disable_fallback_pcpu_query = True
"""


@dataclasses.dataclass(frozen=True)
class Deployment:
    """A running deployment.

    :param conf: the path of ``nova.conf``
    """

    conf: pathlib.Path
    postgres: servers.PostgreSQL
    placement: servers.Placement


@contextlib.contextmanager
def deployed(
        hosts, results=1000, own=None, with_hardware=False, **placement):
    """Run a deployment, and configure this process as its scheduler.

    :param hosts: a list of hosts for each cell
    :param results: the largest number of candidates in Nova's query
    :param own: custom ``resource_classes`` and ``traits`` of the hosts
    :param with_hardware: whether filters check NUMA cells and devices
    :param placement: further arguments of :func:`servers.placement`
    :returns: a :class:`Deployment`
    """
    with servers.placement(**placement) as (directory, postgres, server):
        for kind, names in (own or {}).items():
            for name in names:
                server.create(kind, name)
        conf = directory / 'nova.conf'
        configure(conf, postgres, server, results,
                  _HARDWARE if with_hardware else '')
        fill(postgres, hosts)
        yield Deployment(conf, postgres, server)


def configure(conf, postgres, placement, results, more=''):
    """Write Nova's configuration, and read it."""
    conf.write_text(CONFIGURATION.format(
        directory=conf.parent, main=postgres.create('cell0'),
        api=postgres.create('api'), placement=placement.url,
        results=results) + more)
    read(conf)


def read(conf):
    """Configure this process as Nova's scheduler."""
    config.parse_args(['nova-scheduler'], default_config_files=[str(conf)])
    objects.register_all()


def fill(postgres, hosts):
    """Create the tables, and write the hosts."""
    for database in ('main', 'api'):
        migration.db_sync(database=database)
    # A database with an open connection cannot be copied.
    main_db.get_engine().dispose()
    urls = []
    for number, members in enumerate(hosts):
        urls.append(postgres.create(f'cell-{number}', template='cell0'))
        contents.write_cell(urls[-1], members)
    contents.map_cells(
        postgres.url('api'), postgres.url('cell0'), urls, hosts)
    api_db.get_engine().dispose()
    contents.write_providers(postgres.url('placement'), hosts)
