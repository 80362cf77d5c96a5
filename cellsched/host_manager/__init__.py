# SPDX-License-Identifier: Apache-2.0
"""Host manager: hosts read from the cells and from the claim store.

``manager`` fills the host table of ``hosts`` and keeps it up to date. A
``cell_follower`` reads the changes in one cell.
"""
