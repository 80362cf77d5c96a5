# SPDX-License-Identifier: Apache-2.0
"""Tasks of conductors, in steps that can be rolled back.

A task receives its stores, clients and clock as arguments and reads no global
state, so that other services can embed it.

* ``build_and_schedule`` takes accepted requests into cells. It leases the
  requests, makes a ``saga.Batch`` of them, and runs the batch through the
  list of ``steps`` with ``saga.Runner``. A step ends a build with a
  ``saga.Outcome``. The runner removes the build from the batch and rolls it
  back inside the task's fence, which checks that this conductor still owns
  the build. The outcome then decides: cell0, a retry, or nothing.
* ``lease`` renews the leases of this process and keeps the deferred retries.
* ``build_instances`` retries a build on another host of its cell.
* ``move`` moves a server to another host of its cell.

To add a step, see ``steps``.
"""
