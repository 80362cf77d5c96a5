# SPDX-License-Identifier: Apache-2.0
"""The process of the compute agent of this host."""

import sys

from cellsched import cmd

with cmd.ended_by_interrupts():
    from cellsched.cmd import launch
    from cellsched.wiring import compute


def main() -> None:
    """Run the compute agent of this host until a signal stops it."""
    sys.exit(launch.run(
        compute.compute, lambda conf: 1, compute.PLUGINS,
        'compute'))
