# SPDX-License-Identifier: Apache-2.0
"""A whole deployment in one process: many cells, no server to start.

``deployment`` starts the services of every cell, with SQLite files and an
in-process transport in place of databases and brokers. ``scenario`` reads the
file that describes such a deployment and its requests. Demonstrations, tests
and benchmarks use it.
"""
