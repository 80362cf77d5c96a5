# SPDX-License-Identifier: Apache-2.0
"""The API database: cells, mappings, and builds that have no cell yet."""

from cellsched.db.api import models
from cellsched.db import schema

SCHEMA = schema.Schema('API', __name__, models.METADATA, '1a0c5e7d9b32')
