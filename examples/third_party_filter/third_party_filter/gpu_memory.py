# SPDX-License-Identifier: Apache-2.0
"""Keep hosts that have free memory on their GPUs."""

import math

from oslo_config import cfg

from cellsched import exception
from cellsched.filters import base
from cellsched.hosts import state

HINT = 'gpu_memory_mb'
WANTED_MB_MAX = 2 ** 24


class GPUMemoryFilter(base.Filter):
    """Reject a host whose GPUs lack free memory.

    The scheduler hint ``gpu_memory_mb`` says how much a server will use. What
    is free is ``gpu_memory_free_mb`` in the statistics that the host's
    virtualisation driver reports, and ``[gpu_memory] reserve_mb`` of that is
    not offered. A host that says nothing has nothing.
    """

    reason = 'lacks free GPU memory'
    # The statistics stay as they are while the request is decided.
    run_filter_once_per_request = True
    hints = frozenset({HINT})
    group = 'gpu_memory'

    @classmethod
    def opts(cls):
        return [cfg.IntOpt('reserve_mb', default=0, min=0, help="""
Free memory of a host's GPUs that is offered to nobody.
""")]

    def applies(self, request):
        return bool(request.hint(HINT))

    def keep(self, hosts, request):
        return self._missing_mb(hosts, request) <= 0

    def shortfall(self, hosts, request):
        return self._missing_mb(hosts, request), 'MB'

    def _missing_mb(self, hosts, request):
        free_mb = hosts.each('stats', _free_mb, 'float64')
        return _wanted_mb(request) + self.options.reserve_mb - free_mb


def _wanted_mb(request):
    texts = request.hint(HINT)
    if len(texts) == 1 and texts[0].isdecimal() and len(texts[0]) < 10:
        wanted_mb = int(texts[0])
        if wanted_mb <= WANTED_MB_MAX:
            return wanted_mb
    raise exception.InvalidField(
        where='request', field=f'scheduler_hints.{HINT}',
        expected=f'one whole number up to {WANTED_MB_MAX}')


def _free_mb(stats):
    """Return what a host's statistics say; it is asked once for each text."""
    said = state.parsed(stats)
    try:
        free_mb = float(said['gpu_memory_free_mb'])
    except (KeyError, OverflowError, TypeError, ValueError):
        return 0.0
    return free_mb if math.isfinite(free_mb) else 0.0
