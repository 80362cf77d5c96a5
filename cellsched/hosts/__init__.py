# SPDX-License-Identifier: Apache-2.0
"""Hosts as the scheduler sees them: the rows of a table of columns.

``columns`` defines the columns, ``table`` holds them, and ``state`` presents
one row as an object with Nova's attribute names. This package reads no
database: ``cellsched.host_manager`` fills the table. A plug-in adds columns
with entry points of the group ``cellsched.hosts.columns``.
"""
