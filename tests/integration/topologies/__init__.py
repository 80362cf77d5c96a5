# SPDX-License-Identifier: Apache-2.0
"""Highly available databases and brokers, as the administrator's guide shows.

Each module of tests executes the examples of one section of the page
``highly-available.rst``, and then has a deployment build servers while a part
of the topology fails. ``tools/topologies.sh`` runs one and prints its figures.
To add a topology, add a section to the page, a fixture for its servers, and a
module of tests whose class is in ``tools/topologies.py``.
"""
