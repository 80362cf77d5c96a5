# SPDX-License-Identifier: Apache-2.0
"""Options that several services read: ``[DEFAULT]``."""

import socket

from oslo_config import cfg

GROUP = cfg.OptGroup('DEFAULT')

OPTS = [
    cfg.HostAddressOpt('host', default=socket.gethostname(),
                       sample_default='<current hostname>', help="""
Name of this host in the services, compute nodes and host mappings.

Compute hosts need names that are unique across all cells.
"""),
    cfg.IntOpt('report_interval', default=10, min=1, help="""
Seconds between two reports of a service that it is alive.

Related options:

* ``service_down_time`` should be several times as long.
"""),
    cfg.IntOpt('service_down_time', default=60, min=1, help="""
Seconds without a report after which a service counts as down.
"""),
    cfg.StrOpt('default_availability_zone', default='nova', help="""
Availability zone of the hosts that no aggregate puts into one.
"""),
    cfg.IntOpt('cell_worker_thread_pool_size', default=5, min=1, help="""
Threads that ask cells something at the same time.

A cell that hangs keeps those that asked it before its ``[cells] timeout`` was
over, and is asked nothing more until it answers. Raise this where many ask at
the same time.
"""),
    cfg.IntOpt('long_rpc_timeout', default=1800, min=1, help="""
Seconds to wait for a call that may take long: a request for 100 servers or
more.

While it lasts, the scheduler sends heartbeats, at least one in
``rpc_response_timeout`` seconds. Other calls wait for that time.

Related options:

* ``rpc_response_timeout``
"""),
    cfg.StrOpt('compute_driver', default='fake', help="""
Virtualisation driver of a compute agent.

Names are entry points in ``cellsched.virt``; ``cellsched plugin list`` shows
those that are installed.
"""),
    cfg.StrOpt('network_driver', default='noop', help="""
Network plug-in of the agents and the conductors of a cell.

All of a cell must have the same one. Schedulers ask theirs which hosts suit
the networks of a request. Names are entry points in
``cellsched.network``; ``cellsched plugin list`` shows those that are
installed.
"""),
    cfg.IntOpt('max_concurrent_builds', default=10, min=0, help="""
Builds that an agent does at the same time; 0 for as many as come.

Others wait for their turn, and may be deleted meanwhile.
"""),
    cfg.IntOpt('resume_interval', default=60, min=1, help="""
Seconds between two looks of an agent for what it left lying.

Those are builds and deletions on its host that it does not work on, as when
it was killed or could not reach a database, and servers that are here and
should not be. The first look is when it starts.
"""),
    cfg.FloatOpt('cpu_allocation_ratio', min=0.0, help="""
Virtual CPUs to offer for each physical one.

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
Physical CPUs that a compute host keeps for itself.
"""),
    cfg.IntOpt('reserved_host_memory_mb', default=512, min=0, help="""
Memory, in MB, that a compute host keeps for itself.
"""),
    cfg.IntOpt('reserved_host_disk_mb', default=0, min=0, help="""
Disk, in MB, that a compute host keeps for itself.
"""),
]


def register_opts(conf):
    conf.register_opts(OPTS)


def list_opts():
    return {GROUP: OPTS}
