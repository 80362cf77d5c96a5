# SPDX-License-Identifier: Apache-2.0
"""The process of the scheduler."""

import sys

from cellsched import cmd

with cmd.ended_by_interrupts():
    from cellsched.cmd import launch
    from cellsched.wiring import scheduler


def main() -> None:
    """Run the scheduler until a signal stops it."""
    sys.exit(launch.run(
        scheduler.scheduler, lambda conf: conf.scheduler.workers,
        scheduler.PLUGINS, 'scheduler'))
