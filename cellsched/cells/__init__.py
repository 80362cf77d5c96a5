# SPDX-License-Identifier: Apache-2.0
"""Cells: their registry, access to them, and their maintenance.

``registry`` knows the cells, ``target`` connects to them, and ``gather``
queries many at once. ``discovery`` maps hosts, ``maintenance`` changes and
removes cells, and ``cell0`` records failed builds. ``service_records`` has
the heartbeats of services.
"""
