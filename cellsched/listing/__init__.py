# SPDX-License-Identifier: Apache-2.0
"""Servers as users see them, wherever they are.

``server`` is one server's record, ``merge`` puts sorted sequences of them
together, ``servers`` reads them from the API database and the cells.
"""
