# SPDX-License-Identifier: Apache-2.0
"""The auditor of all databases."""

from oslo_config import cfg

from cellsched.audit import checks
from cellsched.audit import facts
from cellsched.audit import repairs
from cellsched.claims import base as claims_base
from cellsched.db import api as api_schema
from cellsched import embedding
from cellsched.wiring import factory


@factory.factory(embedding.ConductorParts)
def auditor(
    conf: cfg.ConfigOpts, parts: embedding.ConductorParts
) -> checks.Auditor:
    """Return what looks for what must not be, in all databases.

    Claims that only another process sees are not looked at.
    """
    api_schema.SCHEMA.check(parts.database)
    parts.claims.check()
    shared = claims_base.Capability.SHARED in parts.claims.capabilities
    reader = facts.Reader(
        parts.database, parts.cells, parts.gatherer,
        parts.claims if shared else None)
    return checks.Auditor(
        reader, repairs.Repairs(
            reader, parts.targets, parts.cell0, parts.clock, conf.host),
        parts.clock)
