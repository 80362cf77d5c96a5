# SPDX-License-Identifier: Apache-2.0
"""Keep hosts that have free memory on their GPUs."""

import math

from oslo_config import cfg

from cellsched import exception
from cellsched.filters import base
from cellsched.hosts import state

HINT = 'gpu_memory_mb'
REQUESTED_MB_MAX = 2 ** 24


class GPUMemoryFilter(base.Filter):
    """Reject a host whose GPUs lack free memory.

    The scheduler hint ``gpu_memory_mb`` is the amount that a server needs. The
    free amount of a host is ``gpu_memory_free_mb`` in the statistics of its
    virtualisation driver, less ``[gpu_memory] reserve_mb``. A host that does
    not report it has 0 MB.
    """

    reason = 'lacks free GPU memory'
    # The statistics do not change while the request is decided.
    run_filter_once_per_request = True
    hints = frozenset({HINT})
    group = 'gpu_memory'

    @classmethod
    def opts(cls):
        return [cfg.IntOpt('reserve_mb', default=0, min=0, help="""
Free GPU memory of a host, in MB, that servers cannot use.
""")]

    def applies(self, request):
        return bool(request.hint(HINT))

    def keep(self, hosts, request):
        return self._missing_mb(hosts, request) <= 0

    def shortfall(self, hosts, request):
        return self._missing_mb(hosts, request), 'MB'

    def _missing_mb(self, hosts, request):
        free = hosts.each('stats', free_mb, 'float64')
        return _requested_mb(request) + self.options.reserve_mb - free


def _requested_mb(request):
    texts = request.hint(HINT)
    if len(texts) == 1 and texts[0].isdecimal() and len(texts[0]) < 10:
        requested_mb = int(texts[0])
        if requested_mb <= REQUESTED_MB_MAX:
            return requested_mb
    raise exception.InvalidField(
        where='request', field=f'scheduler_hints.{HINT}',
        expected=f'one whole number up to {REQUESTED_MB_MAX}')


def free_mb(stats):
    """Return the free GPU memory in a host's statistics.

    ``Hosts.each`` calls it once for each distinct text.
    """
    values = state.parsed(stats)
    try:
        free = float(values['gpu_memory_free_mb'])
    except (KeyError, OverflowError, TypeError, ValueError):
        return 0.0
    return free if math.isfinite(free) else 0.0
