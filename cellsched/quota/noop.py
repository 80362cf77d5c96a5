# SPDX-License-Identifier: Apache-2.0
"""The driver without limits."""

from collections.abc import Iterable
from typing import Any

from cellsched import exception
from cellsched import objects
from cellsched.quota import base


class NoopQuotaDriver(base.QuotaDriver):
    """Limits nothing.

    Use it if another service limits users, or none does.
    """

    def limits(
        self, connection: Any, project_id: str | None,
        user_id: str | None = None,
    ) -> dict[str, int]:
        return {}

    def check(
        self, connection: Any, project_id: str | None, user_id: str | None,
        flavor: objects.Flavor, min_count: int, max_count: int,
    ) -> int:
        return max_count

    def admit_all(
        self, connection: Any, batches: Iterable[base.QuotaBatch]
    ) -> dict[str, exception.OverQuota]:
        return {}
