"""Makes senet_tf1/data/sample/ from CIFAR-10: `python tools/make_sample.py DATA_DIR`."""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from senet_tf1 import data  # noqa: E402
from senet_tf1.compat import tf, use_graph_mode  # noqa: E402
from senet_tf1.data import sample, sheets  # noqa: E402
from senet_tf1.files import atomic_file  # noqa: E402


def main(data_dir: str) -> None:
    """Writes train.png, test.png and labels.json."""
    use_graph_mode()
    dataset = data.load("cifar10", data_dir)
    labels = {}
    for name, split, examples in (
        ("train", dataset.train, 10 * sample.TRAIN_PER_CLASS),
        ("test", dataset.test, 10 * sample.TEST_PER_CLASS),
    ):
        chosen = data.subset(split, examples, 10)
        labels[name] = chosen.labels.tolist()
        with tf.Graph().as_default(), tf.Session() as session:
            sheet = chosen.images.reshape(examples, sheets.PIXELS, 3)
            png = session.run(tf.image.encode_png(sheet, compression=9))
        with atomic_file(os.path.join(sample.DIRECTORY, name + ".png")) as handle:
            handle.write(png)
    with atomic_file(os.path.join(sample.DIRECTORY, "labels.json"), "w") as handle:
        json.dump(labels, handle)


if __name__ == "__main__":
    main(sys.argv[1])
