# SPDX-License-Identifier: Apache-2.0
"""Policy rules of every operation of the API.

Everything is called by everybody. What is allowed may fail for other reasons:
the server was never built, so that it cannot be moved.
"""

from cellsched import context
from cellsched import exception
from tests.functional import base

ALLOWED, REFUSED, MISSING = 'allowed', 'refused', 'not there'

UUID = '4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e'


def user(project_id, *roles):
    return context.RequestContext(
        user_id='user', project_id=project_id, roles=roles)


ADMIN = user('admin', 'admin', 'member', 'reader')
MEMBER = user('project', 'member', 'reader')
READER = user('project', 'reader')
NOBODY = user('project', 'fireman')
STRANGER = user('other', 'member', 'reader')
EVERYBODY = (ADMIN, MEMBER, READER, NOBODY, STRANGER)

#: What is answered to each of them, where something of the project is named.
OF_READERS = (ALLOWED, ALLOWED, ALLOWED, REFUSED, MISSING)
OF_MEMBERS = (ALLOWED, ALLOWED, REFUSED, REFUSED, MISSING)
OF_ADMINISTRATORS = (ALLOWED, REFUSED, REFUSED, REFUSED, MISSING)

#: The same, where nothing of a project is named.
ONES_OWN = (ALLOWED, ALLOWED, ALLOWED, REFUSED, ALLOWED)
MAKING = (ALLOWED, ALLOWED, REFUSED, REFUSED, ALLOWED)
OPERATING = (ALLOWED, REFUSED, REFUSED, REFUSED, REFUSED)
ANYBODY = (ALLOWED,) * 5


class TestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.deploy({'cell1': ['a1']})
        self.api = self.world.api

    def answer(self, call, who, *args, **kwargs):
        try:
            call(who, *args, **kwargs)
        except exception.PolicyNotAuthorized:
            return REFUSED
        except (exception.InstanceNotFound, exception.InstanceGroupNotFound,
                exception.ProjectQuotaNotFound):
            return MISSING
        except exception.CellschedException:
            return ALLOWED
        return ALLOWED

    def assertAnswers(self, expected, call, *args, **kwargs):
        self.assertEqual(expected, tuple(
            self.answer(call, who, *args, **kwargs) for who in EVERYBODY))


class TestServers(TestCase):

    def setUp(self):
        super().setUp()
        [self.server] = self.built(flavor='huge')
        self.uuid = self.server.uuid

    def test_server_is_shown_to_readers(self):
        api = self.api
        for call in (api.servers.get, api.details.get, api.history.actions,
                     api.history.migrations):
            self.assertAnswers(OF_READERS, call, self.uuid)
            self.assertAnswers(
                (MISSING, MISSING, MISSING, MISSING, MISSING), call, UUID)

    def test_server_is_changed_by_members(self):
        servers, moves = self.api.servers, self.api.moves
        self.assertAnswers(OF_MEMBERS, servers.update, self.uuid, 'name')
        self.assertAnswers(OF_MEMBERS, servers.set_tags, self.uuid, ['a'])
        for call in moves.rebuild, moves.shelve, moves.unshelve:
            self.assertAnswers(OF_MEMBERS, call, self.uuid)
        for who, expected in zip(EVERYBODY, OF_MEMBERS):
            for call in servers.retry, servers.delete:
                [found] = self.built(flavor='huge')
                self.assertEqual(
                    expected, self.answer(call, who, found.uuid))

    def test_server_is_moved_by_administrators(self):
        for call in self.api.moves.migrate, self.api.moves.evacuate:
            self.assertAnswers(OF_ADMINISTRATORS, call, self.uuid)
            self.assertAnswers(OF_ADMINISTRATORS, call, self.uuid, 'a1')
            self.assertAnswers(
                (MISSING, MISSING, MISSING, MISSING, MISSING), call, UUID)

    def test_servers_are_created_by_members_and_listed_by_readers(self):
        servers = self.api.servers
        self.assertAnswers(MAKING, servers.create, 'server', 'small')
        for host in ({'host': 'a1'}, {'hypervisor_hostname': 'a1'},
                     {'availability_zone': ':a1'},
                     {'availability_zone': '::a1'}):
            self.assertAnswers(
                OPERATING, servers.create, 'server', 'small', **host)
        self.assertAnswers(ONES_OWN, servers.list)
        self.assertAnswers(OPERATING, self.api.history.migrations)
        self.assertEqual({'project', 'other', 'admin'}, {
            each.project_id for each in servers.list(ADMIN).servers})
        for who in MEMBER, READER, STRANGER:
            self.assertEqual({who.project_id}, {
                each.project_id for each in servers.list(who).servers})

    def test_foreign_marker_and_project_are_not_found(self):
        self.assertRaises(exception.MarkerNotFound, self.api.servers.list,
                          STRANGER, marker=self.uuid)
        self.assertRaises(exception.InvalidField, self.api.servers.list,
                          STRANGER, {'project_id': 'project'})

    def test_hosts_and_tracebacks_are_shown_to_administrators(self):
        [found] = self.built()
        for who, host in ((ADMIN, 'a1'), (MEMBER, None), (READER, None)):
            self.assertEqual(
                host, self.api.servers.get(who, found.uuid).host)
            self.assertEqual(
                host, self.api.details.get(who, found.uuid).server.host)
            self.assertIn(host, [
                each.host for each in self.api.servers.list(who).servers
                if each.uuid == found.uuid])
            [fault] = self.api.details.get(who, self.uuid).faults
            self.assertEqual(host is not None, bool(fault.details))
        self.assertRaises(exception.InvalidField, self.api.history.migrations,
                          MEMBER, self.uuid, host='a1')


class TestGroupsAndQuotas(TestCase):

    def test_groups_are_read_by_readers_and_changed_by_members(self):
        groups = self.api.server_groups
        group = groups.create(MEMBER, 'group', 'affinity')
        self.assertAnswers(MAKING, groups.create, 'group', 'affinity')
        self.assertAnswers(ONES_OWN, groups.list_all)
        self.assertAnswers(OF_READERS, groups.get, group.uuid)
        self.assertEqual({'other'}, {
            each.project_id for each in groups.list_all(STRANGER)})
        self.assertEqual({'admin', 'project', 'other'}, {
            each.project_id for each in groups.list_all(ADMIN)})
        for who, expected in zip(EVERYBODY, OF_MEMBERS):
            one = groups.create(MEMBER, 'one', 'affinity')
            self.assertEqual(
                expected, self.answer(groups.delete, who, one.uuid))

    def test_quota_is_shown_to_readers_and_set_by_administrators(self):
        quotas = self.api.quotas
        self.assertAnswers(OF_READERS, quotas.get, 'project')
        self.assertAnswers(
            OF_ADMINISTRATORS, quotas.set, 'project', {'cores': 5})
        self.assertAnswers(OF_ADMINISTRATORS, quotas.unset, 'project')
        self.assertAnswers(OF_ADMINISTRATORS, quotas.by_cell, 'project')


class TestOperating(TestCase):

    def test_hosts_and_cells_are_for_administrators(self):
        api = self.api
        for call, args in (
                (api.cells.list, ()), (api.cells.get, ('cell1',)),
                (api.services.list, ()),
                (api.services.set, ('a1', 'nova-compute', False)),
                (api.services.delete, (UUID,)),
                (api.host_drain.drain, ('nix',)),
                (api.host_drain.evacuate, ('nix',))):
            self.assertAnswers(OPERATING, call, *args)

    def test_resource_providers_are_for_administrators(self):
        providers = self.api.providers
        for call, arguments in (
                (providers.create, ('pool', 'fast', {})),
                (providers.get, ('pool',)), (providers.list, ()),
                (providers.update, ('pool',)), (providers.delete, ('pool',))):
            self.assertAnswers(OPERATING, call, *arguments)

    def test_aggregates_are_for_administrators(self):
        aggregates = self.api.aggregates
        for call, args in (
                (aggregates.create, ('fast',)), (aggregates.get, ('fast',)),
                (aggregates.list_all, ()),
                (aggregates.set_metadata, ('fast', {'ssd': 'true'})),
                (aggregates.add_hosts, ('fast', ['a1'])),
                (aggregates.remove_hosts, ('fast', ['a1'])),
                (aggregates.delete, ('fast',))):
            self.assertAnswers(OPERATING, call, *args)

    def test_flavors_are_shown_to_all_and_changed_by_administrators(self):
        flavors = self.api.flavors
        for call, args in ((flavors.get, ('small',)), (flavors.list_all, ())):
            self.assertAnswers(ANYBODY, call, *args)
        for call, args in (
                (flavors.create, ('new', 1, 1)),
                (flavors.set_extra_specs, ('small', {'a': 'b'})),
                (flavors.delete, ('small',))):
            self.assertAnswers(OPERATING, call, *args)


class TestOperatorsFile(base.TestCase):

    def test_file_of_the_operator_precedes_the_defaults(self):
        self.deploy({'cell1': ['a1']})
        path = self.world.directory / 'etc' / 'policy.yaml'
        path.write_text('"cellsched:cells:index": "role:fireman"\n'
                        '"os_compute_api:servers:create": "!"\n')
        api = self.unheard()

        self.assertEqual(2, len(api.cells.list(NOBODY)))
        for who in MEMBER, ADMIN:
            self.assertRaises(exception.PolicyNotAuthorized,
                              api.servers.create, who, 'server', 'small')
        self.assertRaises(
            exception.PolicyNotAuthorized, api.cells.list, ADMIN)

    def test_wrong_file_is_refused_at_start(self):
        self.deploy({'cell1': ['a1']})
        path = self.world.directory / 'etc' / 'policy.yaml'
        path.write_text('"cellsched:cells:index": "rule:nix"\n')

        error = self.assertRaises(
            exception.ConfigurationInvalid, self.unheard)

        self.assertEqual('[oslo_policy] policy_file', error.field)
        self.assertIn('cellsched:cells:index', str(error))
