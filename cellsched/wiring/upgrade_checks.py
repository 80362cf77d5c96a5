# SPDX-License-Identifier: Apache-2.0
"""The checks of a deployment that is upgraded."""

from oslo_config import cfg

from cellsched.claims import base as claims_base
from cellsched import embedding
from cellsched.upgrade import checks
from cellsched.wiring import factory


@factory.factory(embedding.ConductorParts)
def upgrade_checks(
    conf: cfg.ConfigOpts, parts: embedding.ConductorParts
) -> checks.UpgradeChecks:
    """Return the checks; nothing is asked before they are made."""
    def claims() -> claims_base.ClaimStore | None:
        store = parts.claims
        shared = claims_base.Capability.SHARED in store.capabilities
        return store if shared else None

    return checks.UpgradeChecks(checks.CheckedDeployment(
        parts.database, parts.cells, parts.gatherer, claims))
