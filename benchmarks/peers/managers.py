# SPDX-License-Identifier: Apache-2.0
"""Nova's scheduler manager, and the manager in its place."""

from nova import thread_pool_factory

#: The managers by name. That of this project needs the ``PYTHONPATH`` of
#: ``integrations/nova/tools/environment.py``.
NAMES = ('nova', 'ours')


def start(name, hosts=()):
    """Return a manager, started like in Nova's service.

    :param hosts: a list for each cell, of hosts that run no instances. The
        manager knows this as if all compute services had reported it
    """
    if name == 'nova':
        from nova.scheduler import manager as scheduler

        manager = scheduler.SchedulerManager()
    else:
        from cellsched_nova import manager as scheduler

        manager = scheduler.ColumnSchedulerManager()
    # Nova's service does this before it forks. It waits until the instances
    # of all hosts are read, which must not happen in the background while
    # requests are timed.
    thread_pool_factory.reset_all_executors()
    manager.init_host(None)
    for members in hosts:
        for host in members:
            manager.host_manager._instance_info[host['host']] = {
                'instances': {}, 'updated': True}
    return manager
