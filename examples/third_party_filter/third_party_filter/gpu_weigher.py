# SPDX-License-Identifier: Apache-2.0
"""Prefer hosts by the free memory of their GPUs."""

from cellsched.weighers import base
from third_party_filter import gpu_memory


class GPUMemoryWeigher(base.Weigher):
    """Score a host by its free GPU memory, which spreads servers.

    Set ``[gpu_memory] gpu_memory_weight_multiplier`` below zero to pack them
    instead. Servers without the scheduler hint ``gpu_memory_mb`` ignore it.
    """

    multiplier_name = 'gpu_memory_weight_multiplier'
    group = 'gpu_memory'
    minval = 0
    # The statistics do not change while the request is decided.
    local = True
    fixed = True

    def applies(self, request):
        return bool(request.hint(gpu_memory.HINT))

    def score(self, hosts, request):
        return hosts.each('stats', gpu_memory.free_mb, 'float64')
