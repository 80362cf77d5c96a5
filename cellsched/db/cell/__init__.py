# SPDX-License-Identifier: Apache-2.0
"""A cell's database: its services, compute nodes and servers."""

from cellsched.db.cell import models
from cellsched.db import schema

SCHEMA = schema.Schema('cell', __name__, models.METADATA, '5e9a2d7c41b6')
