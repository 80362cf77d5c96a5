# SPDX-License-Identifier: Apache-2.0
"""The steps of ``build_and_schedule``, each in a module of its own.

A step is a subclass of ``saga.Step``, and is done where
``BuildAndSchedule`` lists it. Its ``do`` ends builds by ``Build.end`` and
``Build.fail``; its ``undo`` leaves nothing of it behind. One that writes
where another conductor could write too renews the lease in the same
transaction, by ``ownership``, and leaves alone what is not its any more.
"""
