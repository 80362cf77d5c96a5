# SPDX-License-Identifier: Apache-2.0
"""The command ``cellsched-manage``."""

from typing import NoReturn

from cellsched.cli import app


def main() -> NoReturn:
    """Run one command for operators."""
    app.main(app.Manage)
