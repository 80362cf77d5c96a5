# SPDX-License-Identifier: Apache-2.0
"""IoOpsFilter and its form for aggregates."""

from cellsched.filters import io_ops
from tests.unit import base
from tests.unit.filters import limits


class TestIoOpsFilter(limits.LimitTests, base.TestCase):

    plugin = io_ops.IoOpsFilter
    column, option, default = 'num_io_ops', 'max_io_ops_per_host', 8


class TestAggregateIoOpsFilter(limits.AggregateLimitTests, base.TestCase):

    plugin = io_ops.AggregateIoOpsFilter
    column, option, default = 'num_io_ops', 'max_io_ops_per_host', 8
