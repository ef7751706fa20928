"""What sharing a batch costs: `python benchmarks/scaling.py [--arch se_resnext] [--batch_size 32] [--steps 4]`.

Prints, in one run on one machine: the time that two local workers need to add up buffers of several sizes, and the
latency and bandwidth that follow; images/s of one and two towers and of one and two workers; and, by the model

    seconds of a reduction = 2 (n - 1) * latency + 2 (n - 1) / n * bytes / bandwidth      (a ring of n members)

what 8 GPUs in a machine and 4 machines of 8 would reach, for each network. The model's GPU and links are flags. It
counts no overlap of the reduction with the backward pass, so it is a lower bound.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

from senet_tf1 import environment, launch  # noqa: E402

environment.prepare(os.environ)
ARCHS = ("se_resnext", "se_inception_v4", "se_inception_resnet_v2")
SIZES = (4096, 4 * 1024 * 1024, 16 * 1024 * 1024, 64 * 1024 * 1024)  # bytes


def reduction_seconds():
    """{bytes: seconds} of adding up a buffer of float32 over the workers that TF_CONFIG names, in one of them."""
    from senet_tf1 import cluster, collectives, config
    from senet_tf1.compat import tf, use_graph_mode

    use_graph_mode()
    settings = config.resolve({})
    place = cluster.find(settings, os.environ)
    workers = cluster.Workers(place, settings, tf.ConfigProto(), lambda line: None)
    group, seconds = collectives.Group("scaling", len(place.hosts)), {}
    with tf.Graph().as_default(), tf.device(place.device() + "/cpu:0"):
        values = [tf.get_variable("v%d" % size, [size // 4], use_resource=True) for size in SIZES]
        sums = [
            collectives.packed(
                [value.read_value()], lambda x, name, v=value: collectives.all_reduce(x, group, v.op.name + name)
            )
            for value in values
        ]
        ops = [total[0].op for total in sums]
        with tf.Session(workers.target, config=workers.session_config) as session:
            session.run(tf.global_variables_initializer())
            for size, op in zip(SIZES, ops):
                times = []
                for _ in range(8):
                    started = time.perf_counter()
                    session.run(op)
                    times.append(time.perf_counter() - started)
                seconds[size] = min(times)
    workers.leave()
    return seconds


def measure_reduction():
    """The chief's figures of two local workers."""
    ports, command = launch.free_ports(2), [sys.executable, os.path.abspath(__file__), "--role", "reduce"]
    started = [
        subprocess.Popen(
            command, env=dict(os.environ, TF_CONFIG=launch.tf_config(ports, index)), stdout=subprocess.PIPE
        )
        for index in range(2)
    ]
    outputs = [process.communicate()[0].decode() for process in started]
    return {int(size): seconds for size, seconds in json.loads(outputs[0].splitlines()[-1]).items()}


def images_per_second(options, towers, workers):
    """Of a short run of the program; the first step, which optimises the graph, does not count."""
    with tempfile.TemporaryDirectory() as directory:
        flags = ["--arch=%s" % options.arch, "--dataset=synthetic", "--train_examples=%d" % options.batch_size]
        flags += ["--batch_size=%d" % options.batch_size, "--train_steps=%d" % options.steps, "--log_every=1"]
        flags += ["--num_gpus=%d" % towers, "--model_dir=%s/run" % directory, "--epochs_between_evals=1000000"]
        ports = launch.free_ports(workers)
        started = [launch.start(flags, ports, index, dict(os.environ)) for index in range(workers)]
        outputs = [process.communicate()[0] for process in started]
        if any(process.returncode for process in started):
            raise SystemExit("a run failed:\n" + "\n".join(outputs))
        with open(os.path.join(directory, "run", "metrics.jsonl"), encoding="utf-8") as handle:
            records = [json.loads(line) for line in handle]
        return max(record["images_per_second"] for record in records[1:] if record["split"] == "train")


def ring_seconds(members, size, latency, bandwidth):
    """The model above."""
    return 2 * (members - 1) * latency + 2 * (members - 1) / members * size / bandwidth


def network_parts(arch):
    """Parameters and multiply-adds of each part of a network."""
    from senet_tf1 import config, info
    from senet_tf1.compat import use_graph_mode

    use_graph_mode()
    return info.parts(config.resolve({"arch": arch}))


def gradient_bytes(parts):
    """Size of the gradients, float32."""
    return 4 * sum(part.parameters for part in parts)


def predictions(options):
    """Lines of images/s and efficiency for one GPU, 8, and 4 machines of 8, each GPU with a batch of 128."""
    lines = ["%-24s %10s %12s %14s %18s" % ("network", "MB", "1 GPU", "8 GPUs", "4 machines of 8")]
    for arch in ARCHS:
        parts = network_parts(arch)
        size = gradient_bytes(parts)
        compute = 128 * 6 * sum(part.multiply_adds for part in parts) / (options.gpu_tflops * 1e12)
        inside = ring_seconds(8, size, options.gpu_latency, options.gpu_bandwidth * 1e9)
        between = ring_seconds(4, size, options.network_latency, options.network_bandwidth * 1e9)
        columns = [(1, compute), (8, compute + inside), (32, compute + inside + between)]
        texts = ["%.0f (%.0f %%)" % (gpus * 128 / seconds, 100 * compute / seconds) for gpus, seconds in columns]
        lines.append("%-24s %10.1f %12s %14s %18s" % (arch, size / 1e6, texts[0], texts[1], texts[2]))
    return lines


def main():
    """Prints the whole page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", default="se_resnext", choices=ARCHS)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--gpu_tflops", type=float, default=8.0, help="what a GPU sustains on convolutions")
    parser.add_argument("--gpu_latency", type=float, default=1e-5, help="seconds, between GPUs of a machine")
    parser.add_argument("--gpu_bandwidth", type=float, default=10.0, help="GB/s, between GPUs of a machine")
    parser.add_argument("--network_latency", type=float, default=5e-5, help="seconds, between machines")
    parser.add_argument("--network_bandwidth", type=float, default=1.1, help="GB/s, between machines")
    parser.add_argument("--role", choices=["reduce"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        print(json.dumps(reduction_seconds()))
        return
    seconds = measure_reduction()
    latency = seconds[SIZES[0]] / 2
    bandwidth = (SIZES[-1] - SIZES[1]) / (seconds[SIZES[-1]] - seconds[SIZES[1]])
    for size, value in seconds.items():
        print("two workers add up %8.3f MB in %7.2f ms" % (size / 1e6, 1e3 * value), flush=True)
    print("latency %.2f ms, bandwidth %.2f GB/s" % (1e3 * latency, bandwidth / 1e9), flush=True)
    print("%s, batch %d:" % (options.arch, options.batch_size), flush=True)
    for towers, workers in ((1, 1), (2, 1), (1, 2)):
        rate = images_per_second(options, towers, workers)
        line = "%d towers, %d workers: %.2f images/s" % (towers, workers, rate)
        if workers > 1:
            size = gradient_bytes(network_parts(options.arch))
            share = ring_seconds(2, size, latency, bandwidth) / (options.batch_size / rate)
            line += "; reducing takes %.1f %% of a step by the model" % (100 * share)
        print(line, flush=True)
    print("\n".join(predictions(options)))


if __name__ == "__main__":
    main()
