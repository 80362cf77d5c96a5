# SPDX-License-Identifier: Apache-2.0
"""Nova's manager of schedulers, and the one in its place."""

from nova import thread_pool_factory

#: Whose managers there are. That of this project needs ``PYTHONPATH`` as
#: ``integrations/nova/tools/environment.py`` has it.
NAMES = ('nova', 'ours')


def start(name, hosts=()):
    """Return a manager, started as Nova's service does it.

    :param hosts: a list for each cell, of those that it knows to run nothing,
        as if all computes had told it
    """
    if name == 'nova':
        from nova.scheduler import manager as scheduler

        manager = scheduler.SchedulerManager()
    else:
        from cellsched_nova import manager as scheduler

        manager = scheduler.ColumnSchedulerManager()
    # So it is before processes are made of that of a service. It waits for
    # the instances of all hosts, which are read in the background: that must
    # not go on while something is timed.
    thread_pool_factory.reset_all_executors()
    manager.init_host(None)
    for members in hosts:
        for host in members:
            manager.host_manager._instance_info[host['host']] = {
                'instances': {}, 'updated': True}
    return manager
