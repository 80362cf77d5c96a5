# SPDX-License-Identifier: Apache-2.0
"""Whole deployments in one thread of events, by a seed.

The services are those of production, made by ``cellsched.wiring``. Their
clock, transports, databases and claims are replaced, and everything that
happens in one order or another happens in the order that a seed says: which
thread goes on, which message arrives, who dies and what fails. So a run that
breaks a promise can be had again.

``simulation`` is one run, ``arena`` what runs share. ``baton`` has one thread
run at a time, and the locks of ``locks``, which clocks make, hand the baton on
where the services wait for each other;
``stores``, ``network`` and ``clocks`` stand for what is outside of a process,
``processes`` are those that live and die. ``faults`` says what goes wrong,
``users`` what is asked for, ``promises`` what must hold.
"""
