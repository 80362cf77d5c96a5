# SPDX-License-Identifier: Apache-2.0
"""Host manager: hosts read from the cells and from the claim store.

``source`` is the contract of a source of hosts. ``manager`` implements it: it
fills the host table of ``hosts`` and keeps it up to date. A ``cell_follower``
reads the changes in one cell. ``host_reader`` reads the hosts of one request.
"""
