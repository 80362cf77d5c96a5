# SPDX-License-Identifier: Apache-2.0
"""Hosts as the scheduler sees them: columns of a table.

``columns`` says which there are, ``table`` holds them, ``state`` shows one row
as an object with Nova's attribute names. Nothing here reads a database:
``cellsched.host_manager`` fills the table. A plug-in may bring columns of its
own by the entry points of ``cellsched.hosts.columns``.
"""
