# SPDX-License-Identifier: Apache-2.0
"""The parts of a process that finds servers, and counts them."""

import functools
from typing import TYPE_CHECKING

from cellsched.parts import api_database

if TYPE_CHECKING:
    from cellsched.listing import servers
    from cellsched.quota import base as quota_base


class ServerParts(api_database.APIDatabaseParts):
    """The parts of a process that knows the servers of all cells."""

    @functools.cached_property
    def quotas(self) -> 'quota_base.QuotaDriver':
        """The quota driver."""
        from cellsched import quota

        return quota.load(self.conf, self.clock)

    @functools.cached_property
    def listing(self) -> 'servers.ServerListing':
        """Finds servers wherever they are."""
        from cellsched.listing import servers as listing

        return listing.ServerListing(
            self.database, self.cells, self.gatherer)
