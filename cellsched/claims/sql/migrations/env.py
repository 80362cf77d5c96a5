# SPDX-License-Identifier: Apache-2.0
"""What alembic runs."""

from cellsched.db import migration

migration.run()
