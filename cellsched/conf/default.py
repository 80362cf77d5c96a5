# SPDX-License-Identifier: Apache-2.0
"""Options of services.

They are in the groups ``[DEFAULT]``, ``[compute]``, ``[monitoring]``,
``[tracing]``, ``[cells]`` and ``[upgrade_levels]``.
"""

import socket

from oslo_config import cfg

GROUP = cfg.OptGroup('DEFAULT')

OPTS = [
    cfg.HostAddressOpt('host', default=socket.gethostname(),
                       sample_default='<current hostname>', help="""
Name of this host in the services, compute nodes and host mappings.

Compute hosts need names that are unique across all cells.
"""),
    cfg.StrOpt('state_path', default='/var/lib/cellsched', help="""
Directory in which a compute agent keeps the identity of its host.

The file ``compute_id`` has the uuid of the host and of its compute node. The
file ``compute_nodes`` has the uuids of all nodes whose driver gives them none.
The directory ``places`` has the NUMA cells and the devices of servers. All of
them must survive restarts and upgrades of the machine, and must not be copied
to another one. If several agents run on one machine, each needs its own
directory.

Related options:

* ``host``
* ``[compute] adopt_guests``
"""),
    cfg.IntOpt('report_interval', default=10, min=1, help="""
Seconds between two reports of a service that it is alive.

Related options:

* ``service_down_time`` must be at least twice as long. Set it in the files of
  all services, because others read it.
"""),
    cfg.IntOpt('service_down_time', default=60, min=1, help="""
Seconds without a report after which a service counts as down.
"""),
    cfg.StrOpt('default_availability_zone', default='nova', regex='^[^:]*$',
               max_length=255, help="""
Availability zone of hosts that are in no aggregate with a zone.

Related options:

* ``default_schedule_zone``
"""),
    cfg.StrOpt('default_schedule_zone', regex='^[^:]*$', max_length=255,
               help="""
Availability zone of new servers whose user names none.

Set it to keep special zones free of servers that do not ask for them. The
server stays in this zone when it is moved. Unset, such a server may be in any
zone, and may change it. Set it in the files of the API.

Related options:

* ``default_availability_zone``
"""),
    cfg.IntOpt('cell_worker_thread_pool_size', default=5, min=1, help="""
Threads that read from cells at the same time.

A cell that hangs occupies the threads that read from it until its ``[cells]
timeout`` has passed, and gets no further requests until it answers. Raise this
if many requests read from cells at the same time.
"""),
    cfg.IntOpt('long_rpc_timeout', default=1800, min=1, help="""
Seconds to wait for a long call, such as a request for 100 servers or more.

Meanwhile the scheduler sends heartbeats, at least one in
``rpc_response_timeout`` seconds. Other calls wait for that time.

Related options:

* ``rpc_response_timeout``
"""),
    cfg.StrOpt('compute_driver', default='fake', help="""
Virtualisation driver of a compute agent.

Names are entry points in ``cellsched.virt``; ``cellsched plugin list`` shows
the installed drivers.
"""),
    cfg.StrOpt('network_driver', default='noop', help="""
Network plug-in of the agents and the conductors of a cell.

All services of a cell must have the same plug-in. The plug-in of a scheduler
selects the hosts that can connect to the networks of a request. Names are
entry points in ``cellsched.network``; ``cellsched plugin list`` shows the
installed plug-ins.
"""),
    cfg.IntOpt('max_concurrent_builds', default=10, min=0, help="""
Builds of an agent at the same time; 0 means no limit.

Further builds wait, and can be deleted meanwhile.
"""),
    cfg.IntOpt('resume_interval', default=60, min=1, help="""
Seconds between two searches of an agent for interrupted work.

That is a build or a deletion on its host that no thread works on, because the
agent was killed or could not reach a database, and a server that should not be
on the host. The first search is at the start.
"""),
    cfg.FloatOpt('cpu_allocation_ratio', min=0.0, help="""
Virtual CPUs to offer for each physical CPU.

Unset, ``initial_cpu_allocation_ratio`` is used.
"""),
    cfg.FloatOpt('ram_allocation_ratio', min=0.0, help="""
Memory to offer as a multiple of the physical memory.

Unset, ``initial_ram_allocation_ratio`` is used.
"""),
    cfg.FloatOpt('disk_allocation_ratio', min=0.0, help="""
Disk to offer as a multiple of the physical disk.

Unset, ``initial_disk_allocation_ratio`` is used.
"""),
    cfg.FloatOpt('initial_cpu_allocation_ratio', default=4.0, min=0.0, help="""
Virtual CPUs to offer for each physical one, unless set otherwise.
"""),
    cfg.FloatOpt('initial_ram_allocation_ratio', default=1.0, min=0.0, help="""
Memory to offer as a multiple of the physical memory, unless set otherwise.
"""),
    cfg.FloatOpt('initial_disk_allocation_ratio', default=1.0, min=0.0,
                 help="""
Disk to offer as a multiple of the physical disk, unless set otherwise.
"""),
    cfg.IntOpt('reserved_host_cpus', default=0, min=0, help="""
Physical CPUs that are reserved for the compute host.
"""),
    cfg.IntOpt('reserved_host_memory_mb', default=512, min=0, help="""
Memory, in MB, that is reserved for the compute host.
"""),
    cfg.IntOpt('reserved_host_disk_mb', default=0, min=0, help="""
Disk, in MB, that is reserved for the compute host.
"""),
]

COMPUTE_GROUP = cfg.OptGroup('compute', title='Compute agent')

COMPUTE_OPTS = [
    cfg.StrOpt('provider_config_location',
               default='/etc/cellsched/provider_config/', help="""
Directory of provider configuration files for the nodes of this host.

Each file whose name ends with ``.yaml`` is read, in the format of Nova. Its
traits are added to those of the driver. A section ``hardware`` describes the
NUMA cells and the PCI devices of a node. The files are read when the agent
starts, and again when one changes. The directory may be missing.
"""),
    cfg.BoolOpt('adopt_guests', default=False, help="""
Whether the agent adopts guests of its machine that belong to another host.

An agent does not start if its machine has guests that the cell places on
another host name, or if it is new in its cell and the cell does not know its
guests. After you renamed the host, set this to start it once: the rows of the
former name, or of these guests, get the name of this host. The agent of the
other host must be down, or must have reported that it does not have the
guests. Guests that the cell does not know run on, and the audit lists them.

Related options:

* ``[DEFAULT] host``
* ``[DEFAULT] state_path``
"""),
    cfg.BoolOpt('packing_host_numa_cells_allocation_strategy', default=False,
                help="""
Whether NUMA cells with less free room are tried first.

Free CPUs count, and free memory among equal cells; free PCI devices always
come first. By default the servers of a host are spread over its cells. Packing
keeps whole cells free for large servers. It does not affect the choice of
hosts. Schedulers and agents read the option, and should have the same value.
"""),
]

MONITORING_GROUP = cfg.OptGroup('monitoring', title='Health and metrics')


def _port(service, program):
    return cfg.PortOpt(f'{service}_port', help=f"""
HTTP port of ``{program}`` for its health, readiness and metrics.

Unset, the service has no port. All workers of the service share it. Services
on one machine need different ports.

Related options:

* ``address``
""")


MONITORING_OPTS = [
    cfg.HostAddressOpt('address', default='127.0.0.1', help="""
Address of the HTTP ports of services.

The ports have no authentication and no encryption, and show names of cells and
of plug-ins, and the addresses of servers that do not answer. Set an address
that only the monitoring can reach.
"""),
    _port('scheduler', 'cellsched-scheduler'),
    _port('conductor', 'cellsched-conductor'),
    _port('compute', 'cellsched-compute'),
    cfg.FloatOpt('check_timeout', default=5.0, min=0.1, max=300.0, help="""
Seconds of all checks of a request of ``/healthz``.

A server that does not answer in this time counts as failed. Keep it below the
timeout of the client.
"""),
]

TRACING_GROUP = cfg.OptGroup('tracing', title='Traces of builds')

TRACING_OPTS = [
    cfg.BoolOpt('enabled', default=False, help="""
Record the builds of servers as traces of OpenTelemetry.

It needs the packages of the extra ``otel``. Without them the service does not
start. Enable it in all services, and in the API, for whole traces.

Related options:

* ``endpoint``
* ``sampling_ratio``
"""),
    cfg.URIOpt('endpoint', schemes=['http', 'https'], help="""
URL to which spans are sent, by OTLP over HTTP.

For example ``http://127.0.0.1:4318/v1/traces``. Unset, the environment
variables ``OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`` and
``OTEL_EXPORTER_OTLP_ENDPOINT`` decide, and then the default of OpenTelemetry,
a collector on this machine. A collector that does not answer delays no build;
its spans are lost.

Do not write a password here. ``OTEL_EXPORTER_OTLP_HEADERS`` in the environment
has the headers for authentication.
"""),
    cfg.FloatOpt('sampling_ratio', default=1.0, min=0.0, max=1.0, help="""
The share of traces that are recorded, from 0 to 1.

The process where a trace begins decides, usually the API. The others record
what it records.
"""),
]

CELLS_GROUP = cfg.OptGroup('cells', title='Cells')

CELLS_OPTS = [
    cfg.FloatOpt('timeout', default=10.0, min=0.1, help="""
Seconds to wait for the answer of a cell.

A cell that does not answer in time is skipped. Raise this where databases of
cells are slow or far away.
"""),
    cfg.FloatOpt('refresh_interval', default=10.0, min=0.0, help="""
Seconds between two readings of the list of cells.

New, disabled and changed cells are used after this time, without a restart.
Schedulers use them at the next request.
"""),
]

UPGRADE_LEVELS_GROUP = cfg.OptGroup(
    'upgrade_levels', title='Versions during an upgrade')

UPGRADE_LEVELS_OPTS = [
    cfg.StrOpt('scheduler', help="""
Newest version of messages that may be sent to schedulers.

A version or the name of a release, such as ``4.4`` or ``pike``. Set it while
some schedulers are older than their callers. A conductor of this project needs
``4.5`` and does not start with less.
"""),
    cfg.StrOpt('compute', help="""
Newest version of messages that may be sent to compute agents.

A version, such as ``6.0``, or ``auto``, which finds the version of the oldest
agent in all cells; a service without the API database reads its cell only. A
cell that does not answer within ``[cells] timeout`` is skipped. The version is
found again at SIGHUP.
"""),
    cfg.StrOpt('conductor', help="""
Newest version of messages that may be sent to conductors.

A version, such as ``1.19``. A compute agent needs ``1.19`` to return builds,
and does not start with less.
"""),
]
