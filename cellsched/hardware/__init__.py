# SPDX-License-Identifier: Apache-2.0
"""NUMA cells, CPUs, memory pages and PCI devices, as pure functions.

A server asks for a guest topology (:mod:`.guest`) and devices
(:mod:`.devices`). A host has cells (:mod:`.host`) and pools of devices.
:mod:`.fit` places the guest cells on host cells, as Nova does.
"""
