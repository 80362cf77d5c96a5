# SPDX-License-Identifier: Apache-2.0
"""The environment that alembic runs migrations in."""

from cellsched.db import migration

migration.run()
