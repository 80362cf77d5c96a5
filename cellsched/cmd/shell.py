# SPDX-License-Identifier: Apache-2.0
"""The command ``cellsched``."""

from typing import NoReturn

from cellsched.cli import app


def main() -> NoReturn:
    """Run one command for users."""
    app.main(app.Shell)
