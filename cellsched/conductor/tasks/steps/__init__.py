# SPDX-License-Identifier: Apache-2.0
"""Steps of ``build_and_schedule``, a module for each.

A step is a subclass of ``saga.Step``, named for what it does, and has its
place in ``BuildAndSchedule._make_steps``. Its ``do`` ends builds by
``Build.end`` or ``Build.fail``; its ``undo`` leaves nothing of it behind,
where it was done in part or not at all too. A step that must not be done for
a build which another conductor has taken up renews its lease in the same
transaction, by ``ownership``, and ends what is lost.
"""
