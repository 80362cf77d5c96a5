# SPDX-License-Identifier: Apache-2.0
"""Tasks: what a conductor does, in steps that can be undone.

A task is handed its stores, clients and clock and reads no global, so that
other services can embed it. ``base`` runs steps, ``steps`` are those of
``build_and_schedule``; ``build_instances`` tries a build on another host of
its cell.
"""
