# SPDX-License-Identifier: Apache-2.0
"""The process of the scheduler."""

import sys

from cellsched import assembly
from cellsched.cmd import launch


def main() -> None:
    """Run the scheduler until it is told to stop."""
    sys.exit(launch.run(
        assembly.scheduler, lambda conf: conf.scheduler.workers))
