# SPDX-License-Identifier: Apache-2.0
"""The archiver of all cells."""

from oslo_config import cfg

from cellsched.archive.archiver import Archiver
from cellsched.claims import base as claims_base
from cellsched.db import api as api_schema
from cellsched import embedding
from cellsched.wiring import factory


@factory.factory(embedding.ConductorParts)
def archiver(
    conf: cfg.ConfigOpts, parts: embedding.ConductorParts
) -> Archiver:
    """Return what archives deleted rows.

    Claims that only another process sees are not looked at.
    """
    api_schema.SCHEMA.check(parts.database)
    parts.claims.check()
    shared = claims_base.Capability.SHARED in parts.claims.capabilities
    return Archiver(
        parts.database, parts.cells, parts.gatherer,
        parts.claims if shared else None)
