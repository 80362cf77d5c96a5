# SPDX-License-Identifier: Apache-2.0
"""Capacity of large deployments: ``cellsched simulate``.

A scenario describes the deployment: hosts, schedulers, a claim store, load and
faults. The classes that decide and claim are those of production; the servers
of claim stores are models with delays that were measured on real servers.

* ``scenario``: scenarios, read and checked; ``schema.yaml`` has their keys.
* ``load`` and ``traces``: requests from distributions and from files.
* ``stores``: claim stores with simulated delays.
* ``schedulers``: schedulers with host tables of their own.
* ``cloud``: requests, servers and claims of a deployment.
* ``faults``: losses of parts of the deployment.
* ``measures``: figures and their series.
* ``run``: one run of a scenario.
* ``page``: results as a page of HTML.
"""
