# SPDX-License-Identifier: Apache-2.0
"""The command ``cellsched``."""

from typing import NoReturn

from cellsched import cmd


def main() -> NoReturn:
    """Run one command for users."""
    cmd.run_command('Shell')
