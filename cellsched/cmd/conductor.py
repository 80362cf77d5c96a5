# SPDX-License-Identifier: Apache-2.0
"""The process of a conductor."""

import sys

from cellsched import cmd

with cmd.ended_by_interrupts():
    from cellsched.cmd import launch
    from cellsched.wiring import conductor


def main() -> None:
    """Run a conductor until a signal stops it."""
    sys.exit(launch.run(
        conductor.conductor, lambda conf: conf.conductor.workers,
        conductor.PLUGINS, 'conductor'))
