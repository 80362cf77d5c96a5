# SPDX-License-Identifier: Apache-2.0
"""The environment of alembic's migrations of the API database."""

from cellsched.db import migration

migration.run()
