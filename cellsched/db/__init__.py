# SPDX-License-Identifier: Apache-2.0
"""Databases: the API database and one database for each cell.

``session`` opens databases and ``migration`` upgrades their schemas. ``api``
and ``cell`` each have their tables in ``models``, their history in
``migrations``, and a module of queries for each noun. Only this package and
``claims.sql`` import SQLAlchemy.
"""

from cellsched import silence_eventlet  # noqa: F401
