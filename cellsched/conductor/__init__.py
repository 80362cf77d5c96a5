# SPDX-License-Identifier: Apache-2.0
"""The conductors: build requests to servers, and recovery.

``service`` has the RPC endpoints and ``tasks`` the work that they start.
``recovery`` is the periodic work above the cells and of a cell's conductor.
"""
