# SPDX-License-Identifier: Apache-2.0
"""Servers as users see them, wherever they are.

``server`` is one server's record, ``query`` says which are asked for and in
what order; ``servers`` finds one or many, ``pages`` reads a page of all cells
at once, and ``merge`` puts sorted sequences together.
"""
