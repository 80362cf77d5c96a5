# SPDX-License-Identifier: Apache-2.0
"""Databases: one for the API, one for each cell, and how to get at them.

``session`` opens databases, ``migration`` keeps their schemas. ``api`` and
``cell`` each have the tables in ``models``, the history in ``migrations``, and
a module of queries for each noun. Nothing outside of this package and of
``claims.sql`` knows SQLAlchemy.
"""

from cellsched import silence_eventlet  # noqa: F401
