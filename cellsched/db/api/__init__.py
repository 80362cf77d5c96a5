# SPDX-License-Identifier: Apache-2.0
"""The API database: cells, mappings, and builds that have no cell yet."""

from cellsched.db.api import models
from cellsched.db import migration

SCHEMA = migration.Schema('API', __name__, models.METADATA)
