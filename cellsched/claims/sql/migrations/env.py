# SPDX-License-Identifier: Apache-2.0
"""The environment of alembic's migrations of the claim store."""

from cellsched.db import migration

migration.run()
