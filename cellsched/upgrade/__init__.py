# SPDX-License-Identifier: Apache-2.0
"""Upgrades of a deployment.

``checks`` says whether one is ready. To add a check, write a function of
:class:`.CheckedDeployment` there and name it in :class:`.UpgradeChecks`.
"""
