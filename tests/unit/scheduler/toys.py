# SPDX-License-Identifier: Apache-2.0
"""Plug-ins that answer what a test says."""

import numpy as np

from cellsched.filters import base as filters
from cellsched.weighers import base as weighers


class Filter(filters.Filter):
    """Keeps what ``answer`` says, and counts how often it is asked."""

    reason = 'is no toy'

    def __init__(self, answer, once=False, applies=True, located=(), hints=()):
        super().__init__(options=None)
        self.answer = answer
        self.run_filter_once_per_request = once
        self.located_instances = located
        self.hints = frozenset(hints)
        self.care = applies
        self.asked = 0

    def applies(self, request):
        return self.care

    def located(self, request):
        return (instance for instance in self.located_instances)

    def keep(self, hosts, request):
        self.asked += 1
        if isinstance(self.answer, list):
            return np.array(self.answer, dtype=bool)
        return self.answer(hosts) if callable(self.answer) else self.answer


class Weigher(weighers.Weigher):
    """Scores as ``answer`` says."""

    multiplier_name = 'toy_weight_multiplier'

    def __init__(self, answer, times=1.0, minval=None, maxval=None):
        super().__init__(options=None)
        self.answer = answer
        self.times = times
        self.minval, self.maxval = minval, maxval

    def multiplier(self, hosts):
        return self.times

    def score(self, hosts, request):
        if isinstance(self.answer, list):
            return np.array(self.answer)
        return self.answer(hosts) if callable(self.answer) else self.answer


def fail(*args):
    raise KeyError('as told')
