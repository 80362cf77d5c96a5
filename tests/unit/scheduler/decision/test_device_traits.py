# SPDX-License-Identifier: Apache-2.0
"""Traits that stand for devices that flavors and images ask for."""

from cellsched import exception
from cellsched.scheduler.decision import device_traits
from cellsched.testing import builders
from tests.unit.scheduler import prefiltering


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
            self.assertIn(expected, error.expected)


class TestPackedVirtqueue(DeviceTestCase):

    kind = device_traits.PackedVirtqueue

    def test_flavor_or_image_asks(self):
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
            'what hw:virtio_packed_ring of the flavor says',
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

    kind = device_traits.EphemeralEncryption

    def test_format_is_a_trait_too(self):
        encrypts = 'COMPUTE_EPHEMERAL_ENCRYPTION'
        self.assertRequires([encrypts], hw__ephemeral_encryption='true')
        self.assertRequires(
            [encrypts, f'{encrypts}_LUKSV2'], hw_ephemeral_encryption=True,
            hw__ephemeral_encryption_format='luksv2')
        self.assertRequires([], hw_ephemeral_encryption=False,
                            hw_ephemeral_encryption_format='luks')

    def test_format_that_there_is_not_is_refused(self):
        self.assertRefused(
            'image.properties.hw_ephemeral_encryption_format',
            'one of luks, luksv2, plain', hw__ephemeral_encryption='true',
            hw_ephemeral_encryption_format='rot13')


class TestVirtioSound(DeviceTestCase):

    kind = device_traits.VirtioSound

    def test_of_other_models_nothing_is_required(self):
        self.assertRequires(
            ['COMPUTE_SOUND_MODEL_VIRTIO'], hw__sound_model='virtio')
        self.assertRequires(
            ['COMPUTE_SOUND_MODEL_VIRTIO'], hw_sound_model='virtio')
        self.assertRequires([], hw_sound_model='ich9')

    def test_flavor_and_image_agree(self):
        self.assertRefused(
            'image.properties.hw_sound_model', 'of the flavor says',
            hw__sound_model='ac97', hw_sound_model='sb16')
        self.assertRefused(
            'flavor.extra_specs.hw:sound_model', 'one of ac97',
            hw__sound_model='gramophone')


class TestVTPM(DeviceTestCase):

    kind = device_traits.VTPM

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

    def test_tpm_that_there_is_not_is_refused(self):
        self.assertRefused('flavor.extra_specs.hw:tpm_version',
                           'one of 1.2, 2.0', hw__tpm_version='3')
        self.assertRefused('flavor.extra_specs.hw:tpm_model', 'tpm-tis',
                           hw__tpm_version='1.2', hw_tpm_model='tpm-crb')
        self.assertRefused(
            'flavor.extra_specs.hw:tpm_secret_security',
            'one of deployment, host, user', hw_tpm_version='2.0',
            hw__tpm_secret_security='nobody')

    def test_aggregate_may_be_kept_for_servers_with_one(self):
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
