"""The input pipeline: `tf.data` over step numbers, every batch a function of (data, seed, step).

A run that is killed at any step and resumed sees the batches it would have seen: the permutation of an epoch follows
from (seed, epoch), every augmentation draw from (seed, step), through the stateless random ops.
"""

from typing import Dict, NamedTuple, Optional, Tuple

import numpy as np

from senet_tf1 import replicas
from senet_tf1.compat import tf

PADDING = 4  # pixels of zeros on each side before the random crop, as the original
# Streams of random numbers, apart from each other whatever the step.
_SHUFFLE, _CROP, _FLIP = 1, 2, 3
_EPOCHS_WITHOUT_END = 1 << 30


class Standardisation(NamedTuple):
    """Mean and standard deviation of each channel over all pixels of the training images (0 to 255)."""

    mean: Tuple[float, ...]
    deviation: Tuple[float, ...]

    def apply(self, images: np.ndarray) -> np.ndarray:
        """uint8 `[n, height, width, channels]` to float32 of the same shape."""
        mean, deviation = np.float32(self.mean), np.float32(self.deviation)
        return (images.astype(np.float32) - mean) / deviation


class Share(NamedTuple):
    """Which parts of every update's batch a worker takes, and in how many goes."""

    micro_batches: int = 1
    workers: int = 1
    worker: int = 0
    replicas: int = 1  # of each worker

    def parts(self) -> int:
        """How many parts an update's batch has (see `replicas`)."""
        return self.micro_batches * self.workers * self.replicas

    def is_whole(self) -> bool:
        """Whether it is all of the batch at once."""
        return self.micro_batches * self.workers == 1


class Pipeline(NamedTuple):
    """Tensors of the next micro-batch, and what starts them."""

    images: tf.Tensor  # float32 [examples, height, width, channels], standardised
    labels: tf.Tensor  # int32 [examples]
    total: Optional[tf.Tensor]  # examples of the update's batch, int32 []; None where these are all
    part: Optional[tf.Tensor]  # number of the first part that it holds, int32 []; None where it is all
    initializer: tf.Operation  # run it with `feeds(...)` first
    placeholders: Tuple[tf.Tensor, tf.Tensor, tf.Tensor]  # images, labels, first step

    def feeds(self, images: np.ndarray, labels: np.ndarray, first_step: int) -> Dict[tf.Tensor, np.ndarray]:
        """What to feed to `initializer`, so that the next micro-batch is the first of step `first_step`."""
        return dict(zip(self.placeholders, (images, labels, first_step)))


def standardisation(images: np.ndarray) -> Standardisation:
    """Of uint8 images `[n, height, width, channels]`, exactly: sums of bytes fit in 64 bits.

    A channel without any variation is left at deviation 1, not divided by 0.
    """
    count, values = images[..., 0].size, np.arange(256, dtype=np.float64)
    # A histogram of 256 values per channel is as exact as float64 over every pixel, and needs no copy of the images.
    histograms = [np.bincount(images[..., channel].ravel(), minlength=256) for channel in range(images.shape[-1])]
    means = [float(np.dot(histogram, values) / count) for histogram in histograms]
    variances = [float(np.dot(h, (values - mean) ** 2) / count) for h, mean in zip(histograms, means)]
    return Standardisation(tuple(means), tuple(float(np.sqrt(variance)) or 1.0 for variance in variances))


def training_batches(
    shape: Tuple[int, int, int],
    examples: int,
    batch_size: int,
    seed: int,
    augment: bool,
    scale: Standardisation,
    share: Optional[Share] = None,
) -> Pipeline:
    """Adds the training pipeline to the graph: shuffled, augmented, standardised batches, without end.

    Args:
      shape: height, width and channels of an image.
      examples: size of the training set; an epoch has ceil(examples / batch_size) batches, the last one smaller where
        it does not divide.
      batch_size: examples of an update's batch.
      seed: everything random follows from it.
      augment: whether to flip and crop.
      scale: the training set's standardisation.
      share: the part of each batch to deliver, by default all. What a batch is does not depend on it.
    """
    share, steps_per_epoch = share or Share(), -(-examples // batch_size)
    with tf.device("/cpu:0"), tf.name_scope("input"):
        images = tf.placeholder(tf.uint8, (examples,) + tuple(shape), "all_images")
        labels = tf.placeholder(tf.int32, [examples], "all_labels")
        first_step = tf.placeholder(tf.int64, [], "first_step")

        def epoch_steps(epoch):
            order = tf.argsort(tf.random.stateless_uniform([examples], [_stream(seed, _SHUFFLE), epoch]))
            first = tf.maximum(first_step - epoch * steps_per_epoch, 0)
            return tf.data.Dataset.range(first, steps_per_epoch).map(
                lambda index: (epoch * steps_per_epoch + index, order[index * batch_size : (index + 1) * batch_size])
            )

        def micro_batches(step, indices):
            numbers = tf.data.Dataset.range(share.micro_batches)
            return numbers.map(lambda number: (step, tf.cast(number, tf.int32), indices))

        def batch_of(step, number, indices):
            total = tf.size(indices)
            part = (number * share.workers + share.worker) * share.replicas
            first, last = replicas.span(total, share.parts(), part, share.replicas)
            if augment:
                batch = augmented(images, indices, step, seed, scale, first, last)
            else:
                gathered = tf.gather(images, indices[first:last])
                batch = tf.reshape(_standardised(gathered, scale, shape), (-1,) + tuple(shape))
            return batch, tf.gather(labels, indices[first:last]), total, part

        epochs = tf.data.Dataset.range(first_step // steps_per_epoch, _EPOCHS_WITHOUT_END)
        steps = epochs.flat_map(epoch_steps).flat_map(micro_batches).map(batch_of, num_parallel_calls=2).prefetch(4)
        iterator = tf.data.make_initializable_iterator(steps)
        batch, batch_labels, total, part = iterator.get_next()
    batch.set_shape((None,) + tuple(shape))
    batch_labels.set_shape([None])
    if share.is_whole():
        total = part = None
    return Pipeline(batch, batch_labels, total, part, iterator.initializer, (images, labels, first_step))


def augmented(
    images: tf.Tensor,
    indices: tf.Tensor,
    step: tf.Tensor,
    seed: int,
    scale: Standardisation,
    first: tf.Tensor = 0,
    last: Optional[tf.Tensor] = None,
) -> tf.Tensor:
    """Images number `indices[first:last]`, standardised, each flipped or not, zero-padded by 4 and cropped at random.

    One gather does it all: each pixel of the result knows the pixel it comes from. What lies in the padding is 0 after
    standardisation, as in the original.

    Args:
      images: uint8 [n, height, width, channels].
      indices: of the whole batch, int [batch]; the draws are made for all of it.
      step: int [], which draws to make.
      seed: which sequence of draws.
      scale: the standardisation.
      first, last: positions in the batch, int [].

    Returns:
      float32 [last - first, height, width, channels].
    """
    _, height, width, channels = images.shape.as_list()
    batch = tf.size(indices)
    offsets = tf.random.stateless_uniform([batch, 2], [_stream(seed, _CROP), step], 0, 2 * PADDING + 1, tf.int32)
    flips = tf.random.stateless_uniform([batch, 1], [_stream(seed, _FLIP), step]) < 0.5
    indices, offsets, flips = indices[first:last], offsets[first:last], flips[first:last]
    rows = tf.range(height) + offsets[:, :1] - PADDING
    columns = tf.range(width) + offsets[:, 1:] - PADDING
    rows_inside, columns_inside = _inside(rows, height), _inside(columns, width)
    columns = tf.where(tf.tile(flips, [1, width]), width - 1 - columns, columns)
    rows, columns = tf.clip_by_value(rows, 0, height - 1), tf.clip_by_value(columns, 0, width - 1)
    rows = tf.cast(indices, tf.int32)[:, tf.newaxis] * height + rows
    pixels = rows[:, :, tf.newaxis] * width + columns[:, tf.newaxis, :]
    cropped = _standardised(tf.gather(tf.reshape(images, [-1, channels]), pixels), scale, (height, width, channels))
    # Two masks, each constant along the innermost axis or all but it: a broadcast over the three channels is slow.
    rows_inside = tf.cast(rows_inside, tf.float32)[:, :, tf.newaxis]
    columns_inside = tf.tile(tf.cast(columns_inside, tf.float32)[:, :, tf.newaxis], [1, 1, channels])
    cropped = tf.reshape(cropped, [-1, height, width * channels])
    cropped = cropped * rows_inside * tf.reshape(columns_inside, [-1, 1, width * channels])
    return tf.reshape(cropped, [-1, height, width, channels])


def _stream(seed: int, stream: int) -> int:
    """The first half of a stateless seed; the second is the step or the epoch."""
    return (stream << 32) + seed


def _inside(positions: tf.Tensor, size: int) -> tf.Tensor:
    return (positions >= 0) & (positions < size)


def _standardised(images: tf.Tensor, scale: Standardisation, shape: Tuple[int, int, int]) -> tf.Tensor:
    """uint8 images of `shape` to float32 `[batch, height * width * channels]`, which broadcasts along whole rows."""
    pixels = shape[0] * shape[1]
    flat = tf.cast(tf.reshape(images, [-1, pixels * shape[2]]), tf.float32)
    mean, deviation = np.tile(np.float32(scale.mean), pixels), np.tile(np.float32(scale.deviation), pixels)
    return (flat - mean) / deviation
