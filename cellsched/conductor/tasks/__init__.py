# SPDX-License-Identifier: Apache-2.0
"""Tasks: what a conductor does, in steps that can be undone.

A task is handed its stores, clients and clock and reads no global, so that
other services can embed it.

``build_and_schedule`` takes accepted requests into cells. It leases them,
makes a ``build.Batch`` of ``build.Build``, and has ``saga.Runner`` take that
through the list of ``steps``. A step ends a build by giving it a
``build.Outcome``; the runner takes it out of the batch and undoes the steps,
inside the task's fence, which finds out whether the build is ours to undo.
Then the outcome says what follows: it is buried, tried again by way of
``retries``, or left alone. ``leases`` keeps requests ours while that lasts.

``build_instances`` tries a build on another host of its cell, which
``alternates`` claims. ``move`` takes a server to another host, by a
``move_request``.

To add a step, see ``steps``.
"""
