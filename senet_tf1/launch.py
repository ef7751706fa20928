"""Starts several workers on this machine, to try out what several machines do.

    python -m senet_tf1.launch --workers 2 -- --arch=se_resnext --dataset=sample

Each worker is the plain command with its own TF_CONFIG, on a free port; their output is joined, each line with its
worker's number. Between machines start the same command with such a TF_CONFIG yourself (docs/distributed.md).
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Dict, List

# Workers that lose one of them end by themselves within this time.
_SECONDS_TO_END = 60.0
_COMMAND = "import sys; from senet_tf1.main import main; sys.exit(main(['run_cifar10.py'] + sys.argv[1:]))"


def free_ports(count: int) -> List[int]:
    """Ports that nothing listened on a moment ago."""
    sockets = [socket.socket() for _ in range(count)]
    for opened in sockets:
        opened.bind(("localhost", 0))
    ports = [opened.getsockname()[1] for opened in sockets]
    for opened in sockets:
        opened.close()
    return ports


def tf_config(ports: List[int], index: int) -> str:
    """The TF_CONFIG of worker `index` on this machine."""
    hosts = ["localhost:%d" % port for port in ports]
    return json.dumps({"cluster": {"worker": hosts}, "task": {"type": "worker", "index": index}})


def start(flags: List[str], ports: List[int], index: int, environ: Dict[str, str]) -> subprocess.Popen:
    """Starts one worker; its standard error goes to its standard output."""
    return subprocess.Popen(
        [sys.executable, "-c", _COMMAND] + flags,
        env=dict(environ, TF_CONFIG=tf_config(ports, index)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        start_new_session=True,  # Ctrl-C reaches this process alone, which hands it on once
    )


def wait(workers: List[subprocess.Popen]) -> int:
    """Waits for all of them; once one has failed, not much longer. Returns the first exit code that is not 0."""
    deadline = float("inf")
    while any(worker.poll() is None for worker in workers):
        if any(worker.poll() for worker in workers):
            deadline = min(deadline, time.monotonic() + _SECONDS_TO_END)
        if time.monotonic() > deadline:
            for worker in workers:
                if worker.poll() is None:
                    worker.kill()
        time.sleep(0.1)
    codes = [worker.returncode for worker in workers if worker.returncode]
    return abs(codes[0]) if codes else 0


def _join_output(index: int, worker: subprocess.Popen) -> None:
    for line in worker.stdout:
        sys.stdout.write("[worker %d] %s" % (index, line))
        sys.stdout.flush()


def main(argv: List[str]) -> int:
    """Runs the workers. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m senet_tf1.launch", description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2, help="how many (default 2)")
    parser.add_argument("flags", nargs="*", help="after --: the flags of run_cifar10.py")
    options = parser.parse_args(argv[1:])
    if options.workers < 1:
        parser.error("--workers=%d: expected at least 1" % options.workers)
    ports = free_ports(options.workers)
    workers = [start(options.flags, ports, index, dict(os.environ)) for index in range(options.workers)]

    def hand_on(number, unused_frame):
        for worker in workers:
            if worker.poll() is None:
                worker.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, hand_on)
    readers = [threading.Thread(target=_join_output, args=item) for item in enumerate(workers)]
    for reader in readers:
        reader.start()
    code = wait(workers)
    for reader in readers:
        reader.join()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv))
