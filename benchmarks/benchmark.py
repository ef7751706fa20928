"""How fast, and how far from the roof: `python benchmarks/benchmark.py [--archs ...] [--peers] [--steps N]`.

Prints, in one run on one machine: the rate of a plain matrix product (the roof), the input pipeline's rate on one core,
the overhead of a session step, and for each network training and inference images/s, the share of the roof that they
reach, peak memory, and seconds from the start of the process to the end of the first step. Each network runs in a
process of its own, with the roof measured in that process too, before and after. `--peers` adds SE_ResNeXt in PyTorch.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time

STARTED = time.time()
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

from senet_tf1 import environment  # noqa: E402

environment.prepare(os.environ)
ARCHS = ("se_resnext", "se_inception_v4", "se_inception_resnet_v2")
MATRIX = 4096


def best_seconds(run, times):
    """The fastest of several calls: what the machine can do when nothing else disturbs it."""
    seconds = []
    for _ in range(times):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def matmul_rate(tf, session):
    """GFLOP/s of a float32 matrix product of 4096 x 4096; the session's graph must be open."""
    a = tf.get_variable("a", [MATRIX, MATRIX], initializer=tf.random_normal_initializer(), use_resource=True)
    product = tf.matmul(a, a).op
    session.run(a.initializer)
    session.run(product)
    return 2 * MATRIX**3 / best_seconds(lambda: session.run(product), 5) / 1e9


def measure_network(arch, batch_size, steps):
    """Figures of one network, in this process."""
    import numpy as np

    from senet_tf1 import config, devices, graph, info
    from senet_tf1.compat import tf, use_graph_mode

    use_graph_mode()
    settings = config.resolve({"arch": arch, "batch_size": batch_size})
    images = tf.constant(np.random.RandomState(0).standard_normal((batch_size, 32, 32, 3)).astype(np.float32))
    built = graph.training(settings, (images, tf.zeros([batch_size], tf.int32)), 10)
    chosen = devices.choose("auto", 1, lambda line: None)
    with tf.Session(config=devices.session_config(chosen)) as session:
        session.run(tf.global_variables_initializer())
        session.run(built.update, {built.learning_rate: 1e-6})
        first_step = time.time() - STARTED
        train = best_seconds(lambda: session.run(built.update, {built.learning_rate: 1e-6}), steps)
        predict = [built.predictions.logits.op]
        session.run(predict)
        inference = best_seconds(lambda: session.run(predict), steps)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
    with tf.Graph().as_default(), tf.Session() as session:
        roof = matmul_rate(tf, session)
    flops = 2 * sum(part.multiply_adds for part in info.parts(settings))
    return {
        "train": batch_size / train,
        "inference": batch_size / inference,
        "train_share": 3 * flops * batch_size / train / 1e9 / roof,
        "inference_share": flops * batch_size / inference / 1e9 / roof,
        "roof": roof,
        "memory": memory,
        "first_step": first_step,
    }


def measure_peer(arch, batch_size, steps):
    """SE_ResNeXt in PyTorch, channels last, one training step as ours."""
    import peer_se_resnext
    import torch

    network = peer_se_resnext.SEResNeXt().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), 1e-6, momentum=0.9, nesterov=True, weight_decay=5e-4)
    images = torch.randn(batch_size, 3, 32, 32).to(memory_format=torch.channels_last)
    labels = torch.zeros(batch_size, dtype=torch.long)

    def step():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(images), labels).backward()
        optimizer.step()

    step()
    return {"train": batch_size / best_seconds(step, steps)}


def measure_overhead():
    """Milliseconds of a training step of a one-layer model: what a session, a feed and an update cost."""
    from senet_tf1.compat import tf, use_graph_mode

    use_graph_mode()
    with tf.Graph().as_default(), tf.Session() as session:
        rate = tf.placeholder(tf.float32, [])
        weights = tf.get_variable("w", [10, 10], initializer=tf.zeros_initializer(), use_resource=True)
        loss = tf.reduce_mean(tf.matmul(tf.ones([8, 10]), weights))
        update = tf.train.MomentumOptimizer(rate, 0.9).minimize(loss)
        session.run(tf.global_variables_initializer())
        seconds = best_seconds(lambda: [session.run([loss, update], {rate: 0.1}) for _ in range(100)], 10)
    return {"milliseconds": 1000 * seconds / 100}


def measure_input():
    """Augmented images/s of the input pipeline on one core."""
    import numpy as np

    from senet_tf1.compat import tf, use_graph_mode
    from senet_tf1.data import pipeline

    use_graph_mode()
    images = np.random.RandomState(0).randint(0, 256, (50000, 32, 32, 3)).astype(np.uint8)
    batches = pipeline.training_batches((32, 32, 3), 50000, 128, 0, True, pipeline.standardisation(images))
    one = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    with tf.Session(config=one) as session:
        session.run(batches.initializer, batches.feeds(images, np.zeros(50000, np.int32), 0))
        session.run(batches.images.op)
        cpu, count = time.process_time(), 300
        for _ in range(count):
            session.run(batches.images.op)
        return {"images": 128 * count / (time.process_time() - cpu)}


def in_process(*arguments):
    """The result of one measurement, made by this script in a process of its own."""
    command = [sys.executable, os.path.abspath(__file__), "--measure"] + [str(argument) for argument in arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=os.path.dirname(command[1]))
    if done.returncode:
        raise SystemExit("%s ended with exit code %d" % (" ".join(command), done.returncode))
    return json.loads(done.stdout.decode().splitlines()[-1])


MEASURES = {"network": measure_network, "peer": measure_peer, "overhead": measure_overhead, "input": measure_input}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--archs", nargs="*", default=ARCHS)
    parser.add_argument("--batch_size", type=int, default=128)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--peers", action="store_true", help="SE_ResNeXt in PyTorch too, if it is installed")
    parser.add_argument("--measure", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        name, rest = arguments.measure[0], arguments.measure[1:]
        print(json.dumps(MEASURES[name](*[int(value) if value.isdigit() else value for value in rest])))
        return
    print("session step of a one-layer model: %.2f ms" % in_process("overhead")["milliseconds"])
    print("input pipeline, one core: %.0f images/s" % in_process("input")["images"])
    row = "%-24s %10s %8s %10s %8s %10s %10s %11s"
    print(row % ("network", "train/s", "of roof", "predict/s", "of roof", "GFLOP/s", "peak MB", "first step"))
    for arch in arguments.archs:
        found = in_process("network", arch, arguments.batch_size, arguments.steps)
        shares = "%.2f" % found["train_share"], "%.2f" % found["inference_share"]
        rates = "%.1f" % found["train"], "%.1f" % found["inference"]
        rest = "%.0f" % found["roof"], "%.0f" % found["memory"], "%.1f s" % found["first_step"]
        print(row % (arch, rates[0], shares[0], rates[1], shares[1], rest[0], rest[1], rest[2]))
    if arguments.peers:
        found = in_process("peer", "se_resnext", arguments.batch_size, arguments.steps)
        print("SE_ResNeXt in PyTorch: %.1f images/s in training" % found["train"])


if __name__ == "__main__":
    main()
