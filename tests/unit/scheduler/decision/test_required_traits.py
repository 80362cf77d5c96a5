# SPDX-License-Identifier: Apache-2.0
"""Traits that a request requires of its host, by name or by image."""

from cellsched import exception
from cellsched.scheduler.decision import required_traits
from cellsched.testing import builders
from tests.unit.scheduler import prefiltering


def level(**names):
    return {'nova_object.name': 'RequestLevelParams',
            'nova_object.data': {f'root_{name}': traits
                                 for name, traits in names.items()}}


class TestTraits(prefiltering.PrefilterTestCase):

    hosts_ = property(lambda self: builders.hosts(traits=[
        frozenset({'GPU', 'SSD'}), frozenset({'GPU'}),
        frozenset({'COMPUTE_IMAGE_TYPE_QCOW2'}), frozenset()]))

    def kept_rows(self, image=None, fields=None, **extra_specs):
        rows, by = self.kept(
            self.hosts_, builders.request(extra_specs={
                f'trait:{name}': value
                for name, value in extra_specs.items()}, image=image,
                **(fields or {})))
        self.assertEqual(['Traits'] * (len(rows) < 4), by)
        return rows

    def test_host_has_all_required_traits(self):
        for wanted, left in (({}, [0, 1, 2, 3]), ({'GPU': 'required'}, [0, 1]),
                             ({'GPU': 'required', 'SSD': 'required'}, [0]),
                             ({'CUSTOM_X': 'required'}, [])):
            self.assertEqual(left, self.kept_rows(**wanted))

    def test_host_has_no_forbidden_trait(self):
        self.assertEqual([1, 2, 3], self.kept_rows(SSD='forbidden'))
        self.assertEqual([1], self.kept_rows(GPU='required', SSD='forbidden'))

    def test_reasons_name_missing_and_forbidden_traits(self):
        ssd, raid = 'CUSTOM_SSD', 'CUSTOM_RAID'
        hosts = builders.hosts(traits=[
            frozenset({ssd, raid}), frozenset({raid}), frozenset()])
        stage = self.stage(required_traits.Traits)
        for specs, expected in (
                ({ssd: 'forbidden', raid: 'required'},
                 [('has the forbidden trait CUSTOM_SSD', [0]),
                  ('lacks the trait CUSTOM_RAID', [2])]),
                ({ssd: 'required', raid: 'required'},
                 [('lacks the trait CUSTOM_RAID', [2]),
                  ('lacks the trait CUSTOM_SSD', [1])]),
                # A name that is no trait is not repeated.
                ({'%(a)s\0': 'required'},
                 [('lacks a required trait', [0, 1, 2])])):
            request = builders.request(extra_specs={
                f'trait:{name}': value for name, value in specs.items()})
            rejected = hosts.at((~stage.keep(hosts, request)).nonzero()[0])

            self.assertEqual(expected, [
                (each.text, rejected.rows[each.hosts].tolist())
                for each in stage.reasons(rejected, request)])

    def test_unknown_values_require_no_trait(self):
        self.assertEqual([0, 1, 2, 3], self.kept_rows(GPU='preferred', SSD=''))

    def test_image_may_require_traits(self):
        self.assertEqual([0], self.kept_rows(
            image={'traits_required': ['SSD']}, GPU='required'))

    def test_services_may_require_and_forbid_traits(self):
        for params, left in ((level(required=['GPU']), [0, 1]),
                             (level(forbidden=['SSD']), [1, 2, 3]),
                             (level(required=['GPU'], forbidden=['SSD']), [1]),
                             (level(), [0, 1, 2, 3]), ({}, [0, 1, 2, 3])):
            self.assertEqual(left, self.kept_rows(
                fields={'request_level_params': params}))

    def test_policies_of_cpus_and_devices_require_traits(self):
        hosts = builders.hosts(traits=[
            frozenset({'HW_CPU_HYPERTHREADING'}),
            frozenset({'COMPUTE_SOCKET_PCI_NUMA_AFFINITY'}), frozenset()])
        for key, value, rows in (
                ('cpu_thread_policy', 'require', [0]),
                ('cpu_thread_policy', 'isolate', [1, 2]),
                ('cpu_thread_policy', 'prefer', [0, 1, 2]),
                ('pci_numa_affinity_policy', 'socket', [1]),
                ('pci_numa_affinity_policy', 'required', [0, 1, 2])):
            for request in (
                    builders.request(extra_specs={f'hw:{key}': value}),
                    builders.request(image={f'hw_{key}': value})):
                self.assertEqual(rows, self.kept(hosts, request)[0], value)

    def test_invalid_list_of_traits_is_refused(self):
        stage = self.stage(required_traits.Traits)
        for bad in ('GPU', [1], {'GPU': 1}):
            for field, said in (
                    ('request_level_params.root_required',
                     {'request_level_params': level(required=bad)}),
                    ('image.properties.traits_required',
                     {'image': {'traits_required': bad}})):
                error = self.assertRaises(
                    exception.InvalidField, stage.applies,
                    builders.request(**said))
                self.assertEqual(field, error.field)


class TestImageTypeSupport(prefiltering.PrefilterTestCase):

    hosts_ = property(lambda self: builders.hosts(traits=[
        frozenset({'COMPUTE_IMAGE_TYPE_QCOW2'}), frozenset()]))

    def kept_rows(self, on=True, **fields):
        rows, by = self.kept(
            self.hosts_, builders.request(**fields),
            query_placement_for_image_type_support=on)
        self.assertEqual(['ImageTypeSupport'] * (len(rows) < 2), by)
        return rows

    def test_disk_format_requires_a_trait_if_enabled(self):
        image = {'disk_format': 'qcow2', 'properties': {}}

        self.assertEqual([0, 1], self.kept_rows(False, image=image))
        self.assertEqual([0], self.kept_rows(image=image))
        self.assertEqual([], self.kept_rows(
            image={'disk_format': 'raw', 'properties': {}}))

    def test_server_booting_from_a_volume_requires_no_format(self):
        self.assertEqual([0, 1], self.kept_rows(
            image={'disk_format': 'raw', 'properties': {}}, is_bfv=True))

    def test_format_without_a_trait_rejects_no_host(self):
        for name in ('parallels', 'QCOW9', '', None):
            self.assertEqual([0, 1], self.kept_rows(
                image={'disk_format': name, 'properties': {}}), name)
        self.assertEqual([0, 1], self.kept_rows(image={'properties': {}}))
        self.assertEqual([0, 1], self.kept_rows(image=None))


class TestImageMetadata(prefiltering.PrefilterTestCase):

    def required(self, properties):
        stage = self.stage(required_traits.ImageMetadata,
                           image_metadata_prefilter=True)
        return set(stage.required(builders.request(image=properties)))

    def test_devices_of_the_image_are_traits(self):
        properties = {
            'hw_cdrom_bus': 'ide', 'hw_disk_bus': 'scsi',
            'hw_video_model': 'qxl', 'hw_vif_model': 'ne2k-pci',
            'hw_architecture': 'AMD64', 'hw_viommu_model': 'intel',
            'hw_emulation_architecture': 'aarch64', 'os_distro': 'linux'}

        self.assertEqual(
            {'COMPUTE_STORAGE_BUS_IDE', 'COMPUTE_STORAGE_BUS_SCSI',
             'COMPUTE_GRAPHICS_MODEL_QXL', 'COMPUTE_NET_VIF_MODEL_NE2K_PCI',
             'HW_ARCH_X86_64', 'COMPUTE_VIOMMU_MODEL_INTEL',
             'COMPUTE_ARCH_AARCH64'}, self.required(properties))

    def test_older_names_of_network_devices_are_read(self):
        self.assertEqual({'COMPUTE_NET_VIF_MODEL_VMXNET3'}, self.required(
            {'hw_vif_model': 'VirtualVmxnet3'}))

    def test_value_without_a_trait_requires_no_trait(self):
        self.assertEqual({'COMPUTE_STORAGE_BUS_SATA'}, self.required(
            {'hw_architecture': 'armv7l', 'hw_disk_bus': 'sata'}))

    def test_property_other_than_text_is_refused_by_name(self):
        error = self.assertRaises(
            exception.InvalidField, self.required, {'hw_disk_bus': 5})
        self.assertEqual('image.properties.hw_disk_bus', error.field)

    def test_host_without_the_device_is_out(self):
        hosts = builders.hosts(traits=[
            frozenset({'COMPUTE_STORAGE_BUS_SCSI'}), frozenset()])

        self.assertEqual(([0], ['ImageMetadata']), self.kept(
            hosts, builders.request(image={'hw_disk_bus': 'scsi'}),
            image_metadata_prefilter=True))
        for image in (None, {}):
            self.assertEqual(([0, 1], []), self.kept(
                hosts, builders.request(image=image),
                image_metadata_prefilter=True))


class TestReads(prefiltering.PrefilterTestCase):

    def test_stage_is_enabled_by_its_option(self):
        """A disabled stage reads no requirement."""
        for kind, option in (
                (required_traits.ImageTypeSupport,
                 'query_placement_for_image_type_support'),
                (required_traits.ImageMetadata, 'image_metadata_prefilter')):
            self.assertNotIn(kind, map(type, self.stages()))
            self.assertEqual(
                kind.reads, self.stage(kind, **{option: True}).reads)
            self.assertNotEqual(frozenset(), kind.reads)


class DeviceTestCase(prefiltering.PrefilterTestCase):

    kind = None

    def request(self, said):
        """Return a request; names with a colon are of the flavor."""
        return builders.request(
            extra_specs={name: value for name, value in said.items()
                         if ':' in name},
            image={name: value for name, value in said.items()
                   if ':' not in name})

    def assertRequires(self, expected, **said):
        said = {name.replace('__', ':'): value for name, value in said.items()}
        stage = self.stage(self.kind)
        with self.subTest(said=said):
            self.assertEqual(
                set(expected), set(stage.required(self.request(said))))
            for name in said:
                where = ('flavor.extra_specs.' if ':' in name
                         else 'image.properties.')
                self.assertIn(where + name, stage.reads)

    def assertRefused(self, field, expected, **said):
        said = {name.replace('__', ':'): value for name, value in said.items()}
        with self.subTest(said=said):
            error = self.assertRaises(
                exception.InvalidField, self.stage(self.kind).applies,
                self.request(said))
            self.assertEqual(field, error.field)
            self.assertIn(expected, error.detail)


class TestPackedVirtqueue(DeviceTestCase):

    kind = required_traits.PackedVirtqueue

    def test_flavor_or_image_requires_packed_virtqueues(self):
        ring = 'COMPUTE_NET_VIRTIO_PACKED'
        self.assertRequires([])
        self.assertRequires([ring], hw__virtio_packed_ring='true')
        self.assertRequires([ring], hw_virtio_packed_ring=True)
        self.assertRequires([ring], hw_virtio_packed_ring='Yes',
                            hw__virtio_packed_ring='1')
        self.assertRequires([], hw__virtio_packed_ring='false')
        self.assertRequires([], hw__virtio_packed_ring='')

    def test_flavor_and_image_agree(self):
        self.assertRefused(
            'image.properties.hw_virtio_packed_ring',
            'the value of hw:virtio_packed_ring in the flavor',
            hw__virtio_packed_ring='true', hw_virtio_packed_ring=False)

    def test_other_values_are_refused(self):
        self.assertRefused(
            'flavor.extra_specs.hw:virtio_packed_ring', 'true or false',
            hw__virtio_packed_ring='maybe')
        self.assertRefused(
            'image.properties.hw_virtio_packed_ring', 'true or false',
            hw_virtio_packed_ring=['true'])

    def test_host_without_is_out(self):
        hosts = builders.hosts(traits=[
            frozenset({'COMPUTE_NET_VIRTIO_PACKED'}), frozenset()])

        self.assertEqual(([0], ['PackedVirtqueue']), self.kept(
            hosts, self.request({'hw:virtio_packed_ring': 'true'})))


class TestEphemeralEncryption(DeviceTestCase):

    kind = required_traits.EphemeralEncryption

    def test_encryption_format_requires_a_trait(self):
        encrypts = 'COMPUTE_EPHEMERAL_ENCRYPTION'
        self.assertRequires([encrypts], hw__ephemeral_encryption='true')
        self.assertRequires(
            [encrypts, f'{encrypts}_LUKSV2'], hw_ephemeral_encryption=True,
            hw__ephemeral_encryption_format='luksv2')
        self.assertRequires([], hw_ephemeral_encryption=False,
                            hw_ephemeral_encryption_format='luks')

    def test_unknown_encryption_format_is_refused(self):
        self.assertRefused(
            'image.properties.hw_ephemeral_encryption_format',
            'one of luks, luksv2, plain', hw__ephemeral_encryption='true',
            hw_ephemeral_encryption_format='rot13')


class TestVirtioSound(DeviceTestCase):

    kind = required_traits.VirtioSound

    def test_other_sound_models_require_no_trait(self):
        self.assertRequires(
            ['COMPUTE_SOUND_MODEL_VIRTIO'], hw__sound_model='virtio')
        self.assertRequires(
            ['COMPUTE_SOUND_MODEL_VIRTIO'], hw_sound_model='virtio')
        self.assertRequires([], hw_sound_model='ich9')

    def test_flavor_and_image_agree(self):
        self.assertRefused(
            'image.properties.hw_sound_model', 'the flavor has another value',
            hw__sound_model='ac97', hw_sound_model='sb16')
        self.assertRefused(
            'flavor.extra_specs.hw:sound_model', 'one of ac97',
            hw__sound_model='gramophone')


class TestVTPM(DeviceTestCase):

    kind = required_traits.VTPM

    def assertTPM(self, version, model, secret, **said):
        begin = 'COMPUTE_SECURITY_TPM_'
        self.assertRequires(
            [begin + version, begin + model,
             f'{begin}SECRET_SECURITY_{secret}'], **said)

    def test_version_model_and_secret_are_traits(self):
        self.assertRequires([])
        self.assertRequires([], hw__tpm_model='tpm-crb')
        self.assertRequires([], hw__tpm_secret_security='host')
        self.assertTPM('1_2', 'TIS', 'USER', hw__tpm_version='1.2')
        self.assertTPM('2_0', 'CRB', 'USER', hw_tpm_version='2.0',
                       hw_tpm_model='tpm-crb')
        self.assertTPM('2_0', 'TIS', 'DEPLOYMENT', hw_tpm_version='2.0',
                       hw__tpm_version='2.0', hw__tpm_model='tpm-tis',
                       hw__tpm_secret_security='deployment')

    def test_unknown_tpm_is_refused(self):
        self.assertRefused('flavor.extra_specs.hw:tpm_version',
                           'one of 1.2, 2.0', hw__tpm_version='3')
        self.assertRefused('flavor.extra_specs.hw:tpm_model', 'tpm-tis',
                           hw__tpm_version='1.2', hw_tpm_model='tpm-crb')
        self.assertRefused(
            'flavor.extra_specs.hw:tpm_secret_security',
            'one of deployment, host, user', hw_tpm_version='2.0',
            hw__tpm_secret_security='nobody')

    def test_aggregate_can_be_isolated_for_servers_with_tpm(self):
        hosts = builders.hosts(
            aggregates=[(builders.aggregate(
                1, **{'trait:COMPUTE_SECURITY_TPM_2_0': 'required'}),), ()],
            traits=frozenset({
                'COMPUTE_SECURITY_TPM_2_0', 'COMPUTE_SECURITY_TPM_TIS',
                'COMPUTE_SECURITY_TPM_SECRET_SECURITY_USER'}))

        for version, left in (('2.0', [0, 1]), ('', [1])):
            self.assertEqual(left, self.kept(
                hosts, self.request({'hw:tpm_version': version}),
                enable_isolated_aggregate_filtering=True)[0])
