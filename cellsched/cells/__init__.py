# SPDX-License-Identifier: Apache-2.0
"""Cells: which there are, how to reach one or all, and what lives where.

``registry`` knows the cells, ``target`` aims a context at one, ``gather`` asks
many at once, ``cell0`` buries what could not be built, ``discovery`` maps
hosts to cells.
"""
