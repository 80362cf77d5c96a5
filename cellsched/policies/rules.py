# SPDX-License-Identifier: Apache-2.0
"""All rules, as oslo.policy's commands and the enforcer want them."""

import itertools

from oslo_policy import policy

from cellsched.policies import aggregates
from cellsched.policies import base
from cellsched.policies import flavors
from cellsched.policies import moves
from cellsched.policies import providers
from cellsched.policies import quotas
from cellsched.policies import server_groups
from cellsched.policies import servers
from cellsched.policies import services


def list_rules() -> list[policy.RuleDefault]:
    """Return all rules; those that others are made of come first."""
    return list(itertools.chain.from_iterable(
        module.RULES for module in (
            base, servers, moves, server_groups, flavors, aggregates,
            providers, quotas, services)))
