# SPDX-License-Identifier: Apache-2.0
"""Steps of ``build_and_schedule``.

A step is a subclass of ``saga.Step``, named after its action, and has its
place in ``BuildAndSchedule._make_steps``. ``do`` ends builds with
``Build.end`` or ``Build.fail``. ``undo`` rolls the step back, also after an
incomplete ``do``. A step that must not run for a build of another conductor
renews the lease in the same transaction with ``lease.renew`` and ends lost
builds with ``lease.resolve_lost``.
"""
