# SPDX-License-Identifier: Apache-2.0
"""The archiver, the auditor and the upgrade checks of a deployment."""

from cellsched.audit.archive import Archiver
from cellsched.audit.auditor import Auditor
from cellsched.audit import repairs
from cellsched.audit.state import StateReader
from cellsched.audit import upgrade
from cellsched.claims import base as claims_base
from cellsched.db import api as api_schema
from cellsched.wiring.components import Components


def archiver(parts: Components) -> Archiver:
    """Return the archiver of deleted rows, which ignores private claims."""
    api_schema.SCHEMA.check(parts.database)
    parts.claims.check()
    return Archiver(
        parts.database, parts.cells, parts.gatherer, shared_claims(parts))


def auditor(parts: Components) -> Auditor:
    """Return the auditor of all databases, which ignores private claims."""
    api_schema.SCHEMA.check(parts.database)
    parts.claims.check()
    conf = parts.conf
    reader = StateReader(
        parts.database, parts.cells, parts.gatherer, shared_claims(parts),
        down_s=conf.service_down_time)
    return Auditor(
        reader, repairs.Repairs(
            reader, parts.targets, parts.cell0, parts.clock, conf.host),
        parts.clock)


def shared_claims(parts: Components) -> claims_base.ClaimStore | None:
    """Return the claim store; None if only one other process sees it."""
    store = parts.claims
    shared = claims_base.Capability.SHARED in store.capabilities
    return store if shared else None


def upgrade_checks(parts: Components) -> upgrade.UpgradeChecks:
    """Return the upgrade checks; connects to nothing before they run."""
    return upgrade.UpgradeChecks(upgrade.CheckedDeployment(
        parts.database, parts.cells, parts.gatherer,
        lambda: shared_claims(parts), parts.conf.service_down_time))
