# SPDX-License-Identifier: Apache-2.0
"""The memory of a scheduler for each host.

Parameters: ``hosts`` and ``cells``. The table is filled from databases as in
production. The printed milliseconds are bytes per host divided by 1000.
"""

import gc
import tracemalloc

import host_databases

from cellsched import context
from cellsched.scheduler.drivers import filter_scheduler


def run(parameters, repeat):
    """Return the bytes per host, in millionths of a second."""
    samples = []
    with host_databases.parts(
            parameters['hosts'], parameters['cells']) as parts:
        for _ in range(repeat):
            driver = filter_scheduler.FilterScheduler(parts.conf, parts)
            gc.collect()
            tracemalloc.start()
            driver.loader.refresh(context.admin())
            # A second refresh must not need more memory.
            driver.loader.refresh(context.admin())
            gc.collect()
            size, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            known = len(driver.loader.table)
            if known != parameters['hosts']:
                raise RuntimeError(f'{known} hosts are known')
            samples.append(size / known / 1e6)
    return {'bytes for each host': samples}
