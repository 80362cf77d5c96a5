# SPDX-License-Identifier: Apache-2.0
"""Host manager: hosts read from the cells and from the claim store.

``loader`` fills the host table of ``hosts`` and keeps it up to date; a
``cell_follower`` reads what changed in one cell."""
