# SPDX-License-Identifier: Apache-2.0
"""Listings of servers over all cells.

``server`` is the record of one server, ``query`` the filters and the order of
a listing, ``servers`` reads one server or a page of all cells, and ``merge``
merges sorted sequences.
"""
