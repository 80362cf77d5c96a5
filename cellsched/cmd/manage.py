# SPDX-License-Identifier: Apache-2.0
"""The command ``cellsched-manage``."""

from typing import NoReturn

from cellsched import cmd


def main() -> NoReturn:
    """Run one command for operators."""
    cmd.run_command('Manage')
