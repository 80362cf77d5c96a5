# SPDX-License-Identifier: Apache-2.0
"""Archiving of what is deleted in cells, and its end.

``archiver`` goes through cells a batch at a time. What belongs to a server is
said in ``cellsched.db.cell.archive``, to add a table there.
"""
