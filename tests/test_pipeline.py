"""The input pipeline: exact crop sets, every example once an epoch, batches that follow from the step number."""

import numpy as np
import pytest

from senet_tf1.compat import tf
from senet_tf1.data import pipeline

PLAIN = pipeline.Standardisation((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


def images(count, size=32):
    return np.random.RandomState(0).randint(0, 256, (count, size, size, 3)).astype(np.uint8)


def batches(count, first_step=0, examples=10, batch_size=4, seed=0, augment=True, size=8):
    """`count` batches of a set whose labels number the examples."""
    with tf.Graph().as_default():
        pipe = pipeline.training_batches((size, size, 3), examples, batch_size, seed, augment, PLAIN)
        with tf.Session() as session:
            labels = np.arange(examples, dtype=np.int32)
            session.run(pipe.initializer, pipe.feeds(images(examples, size), labels, first_step))
            return [session.run([pipe.images, pipe.labels]) for _ in range(count)]


class TestStandardisation:
    def test_against_numpy(self):
        data = images(7)
        scale = pipeline.standardisation(data)
        np.testing.assert_allclose(scale.mean, data.reshape(-1, 3).mean(0), rtol=1e-12)
        np.testing.assert_allclose(scale.deviation, data.reshape(-1, 3).std(0), rtol=1e-12)
        applied = scale.apply(data).reshape(-1, 3)
        assert applied.dtype == np.float32
        np.testing.assert_allclose(applied.mean(0), 0, atol=1e-6)
        np.testing.assert_allclose(applied.std(0), 1, atol=1e-5)

    def test_a_channel_without_variation_is_not_divided_by_zero(self):
        scale = pipeline.standardisation(np.full((2, 4, 4, 3), 9, np.uint8))
        assert scale == ((9.0, 9.0, 9.0), (1.0, 1.0, 1.0))


class TestBatches:
    def test_every_example_once_an_epoch_and_a_smaller_last_batch(self):
        labels = [batch_labels for _, batch_labels in batches(6)]
        assert [len(batch) for batch in labels] == [4, 4, 2, 4, 4, 2]
        epochs = [np.concatenate(labels[:3]), np.concatenate(labels[3:])]
        assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
        assert epochs[0].tolist() != epochs[1].tolist() != list(range(10))

    @pytest.mark.parametrize("first_step", [1, 3, 5, 7])
    def test_starting_at_a_step_gives_that_step_s_batches(self, first_step):
        whole, part = batches(9), batches(9 - first_step, first_step)
        for (a_images, a_labels), (b_images, b_labels) in zip(whole[first_step:], part):
            np.testing.assert_array_equal(a_images, b_images)
            np.testing.assert_array_equal(a_labels, b_labels)

    def test_the_seed_changes_order_and_crops(self):
        (a_images, a_labels), (b_images, b_labels) = batches(1, seed=0)[0], batches(1, seed=1)[0]
        assert a_labels.tolist() != b_labels.tolist()
        assert (a_images != b_images).any()

    def test_without_augmentation_the_images_are_the_images(self):
        data = images(10, 8)
        for batch, labels in batches(3, augment=False):
            np.testing.assert_array_equal(batch, data[labels])

    def test_a_set_smaller_than_a_batch(self):
        assert [len(labels) for _, labels in batches(2, examples=3, batch_size=128)] == [3, 3]

    def test_the_same_on_every_tensorflow(self):
        first, second = batches(2, seed=5)
        assert first[1].tolist() == ORDER[0] and second[1].tolist() == ORDER[1]
        assert first[0].sum(dtype=np.float64) == PIXELS


ORDER, PIXELS = [[0, 9, 1, 5], [8, 6, 2, 4]], 47195.0


class TestAugmentation:
    SIZE, DRAWS = 6, 4000

    def _crops(self):
        """Many augmented versions of one image, and the exact set of those there can be."""
        data = images(1, self.SIZE)
        with tf.Graph().as_default(), tf.Session() as session:
            indices = tf.zeros([self.DRAWS], tf.int32)
            found = session.run(pipeline.augmented(tf.constant(data), indices, tf.constant(3, tf.int64), 0, PLAIN))
        possible = {}
        for flip in (False, True):
            image = data[0, :, ::-1] if flip else data[0]
            padded = np.pad(image, [(4, 4), (4, 4), (0, 0)], mode="constant").astype(np.float32)
            for row in range(9):
                for column in range(9):
                    crop = padded[row : row + self.SIZE, column : column + self.SIZE]
                    possible[crop.tobytes()] = (flip, row, column)
        return [crop.tobytes() for crop in found], possible

    def test_every_flip_and_offset_occurs_and_nothing_else(self):
        found, possible = self._crops()
        assert len(possible) == 2 * 9 * 9
        assert set(found) == set(possible)

    def test_draws_are_uniform(self):
        found, possible = self._crops()
        flips, rows, columns = zip(*[possible[crop] for crop in found])
        # Four standard deviations of a binomial of 4,000 draws.
        assert abs(np.mean(flips) - 0.5) < 4 * 0.5 / np.sqrt(self.DRAWS)
        for offsets in (rows, columns):
            shares = np.bincount(offsets, minlength=9) / self.DRAWS
            assert np.abs(shares - 1 / 9).max() < 4 * np.sqrt(8 / 81 / self.DRAWS)

    def test_padding_is_zero_after_standardisation(self):
        """As the original: what is padded is the standardised image, so the border is the mean colour."""
        scale = pipeline.Standardisation((100.0, 110.0, 120.0), (50.0, 60.0, 70.0))
        data = np.full((1, 4, 4, 3), 200, np.uint8)
        with tf.Session() as session:
            indices = tf.zeros([200], tf.int32)
            found = session.run(pipeline.augmented(tf.constant(data), indices, tf.constant(0, tf.int64), 0, scale))
        values = np.unique(found.reshape(-1, 3), axis=0)
        np.testing.assert_allclose(values, [[0, 0, 0], [2.0, 1.5, 80 / 70]], rtol=1e-6)
