# SPDX-License-Identifier: Apache-2.0
"""Prefer hosts by their instances, builds, failed builds or hypervisor."""

from cellsched.hosts import view
from cellsched import objects
from cellsched.weighers import base


class BuildFailureWeigher(base.Weigher):
    """Score a host by its number of consecutive failed builds.

    The score is multiplied by *minus* ``[filter_scheduler]
    build_failure_weight_multiplier``, or by minus the value in the metadata
    of an aggregate. A value above zero avoids hosts on which builds fail. The
    default is so large that other weighers hardly matter for these hosts;
    zero disables the weigher.
    """

    multiplier_name = 'build_failure_weight_multiplier'
    multiplier_default = 1000000.0
    local = True
    fixed = True
    by_columns = True

    def multiplier(self, hosts: view.Hosts) -> float | view.Column:
        return -super().multiplier(hosts)

    def score(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Column | None:
        some = hosts.most('failed_builds') > 0
        return hosts['failed_builds'] if some else None


class HypervisorVersionWeigher(base.Weigher):
    """Score a host by its hypervisor version; unknown versions are oldest.

    Set ``[filter_scheduler] hypervisor_version_weight_multiplier`` below zero
    to prefer old versions, for example during a rolling upgrade of hosts.
    """

    multiplier_name = 'hypervisor_version_weight_multiplier'
    local = True
    fixed = True
    by_columns = True

    def score(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Column:
        return hosts['hypervisor_version']


class IoOpsWeigher(base.Weigher):
    """Score a host by its builds and moves in progress.

    ``[filter_scheduler] io_ops_weight_multiplier`` is below zero by default
    and prefers hosts with few of them. Set it above zero to prefer busy hosts.
    """

    multiplier_name = 'io_ops_weight_multiplier'
    multiplier_default = -1.0
    minval = 0
    local = True
    by_columns = True

    def score(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Column:
        return hosts['num_io_ops']


class NumInstancesWeigher(base.Weigher):
    """Score a host by its number of instances.

    Set ``[filter_scheduler] num_instances_weight_multiplier`` above zero to
    pack instances, and below zero to spread them. The default disables the
    weigher.
    """

    multiplier_name = 'num_instances_weight_multiplier'
    multiplier_default = 0.0
    local = True
    by_columns = True

    def score(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Column:
        return hosts['num_instances']
