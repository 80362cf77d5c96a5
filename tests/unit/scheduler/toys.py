# SPDX-License-Identifier: Apache-2.0
"""Plug-ins that answer what a test says."""

import numpy as np

from cellsched.filters import base as filters
from cellsched.weighers import base as weighers


class Filter(filters.Filter):
    """Keeps what ``answer`` says, and notes about which rows it is asked.

    A list has an answer for each host of the table.
    """

    reason = 'is no toy'

    def __init__(self, answer, once=False, applies=True, located=(), hints=(),
                 local=False, by_row=False, rebuild=False):
        super().__init__(options=None)
        self.answer = answer
        self.run_filter_once_per_request = once
        self.located_instances = located
        self.hints = frozenset(hints)
        self.care = applies
        self.local = local
        self.by_row = by_row
        self.run_on_rebuild = rebuild
        self.rows = []

    @property
    def asked(self):
        return len(self.rows)

    def applies(self, request):
        return self.care

    def located(self, request):
        return (instance for instance in self.located_instances)

    def keep(self, hosts, request):
        self.rows.append(hosts.rows.tolist())
        if isinstance(self.answer, list):
            return _of_rows(np.array(self.answer, dtype=bool), hosts)
        return self.answer(hosts) if callable(self.answer) else self.answer


class Weigher(weighers.Weigher):
    """Scores as ``answer`` says; a list has a score for each host."""

    multiplier_name = 'toy_weight_multiplier'

    def __init__(self, answer, times=1.0, minval=None, maxval=None):
        super().__init__(options=None)
        self.answer = answer
        self.times = times
        self.minval, self.maxval = minval, maxval

    def multiplier(self, hosts):
        return (_of_rows(self.times, hosts)
                if isinstance(self.times, np.ndarray) else self.times)

    def score(self, hosts, request):
        if isinstance(self.answer, list):
            return _of_rows(np.array(self.answer), hosts)
        return self.answer(hosts) if callable(self.answer) else self.answer


def _of_rows(column, hosts):
    whole = column.shape == (len(hosts.whole),)
    return column[hosts.rows] if whole else column


def fail(*args):
    raise KeyError('as told')
