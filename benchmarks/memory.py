# SPDX-License-Identifier: Apache-2.0
"""What a scheduler's memory grows by for each host that it knows.

Parameters: ``hosts`` and ``cells``. The table is filled from databases as in
production; what is printed as milliseconds are bytes for each host, divided
by a thousand.
"""

import gc
import tracemalloc

import populated

from cellsched import context
from cellsched.scheduler.drivers import filter_scheduler


def run(parameters, repeat):
    """Return bytes for each host, as thousandths of a unit."""
    samples = []
    with populated.parts(parameters['hosts'], parameters['cells']) as parts:
        for _ in range(repeat):
            driver = filter_scheduler.FilterScheduler(parts.conf, parts)
            gc.collect()
            tracemalloc.start()
            driver.loader.refresh(context.admin())
            # What is read again goes to the same place.
            driver.loader.refresh(context.admin())
            gc.collect()
            size, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            known = len(driver.loader.table)
            if known != parameters['hosts']:
                raise RuntimeError(f'{known} hosts are known')
            samples.append(size / known / 1e6)
    return {'bytes for each host': samples}
