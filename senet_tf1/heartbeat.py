"""Noticing that a worker died or stopped answering, which TensorFlow's collectives may wait for for ever.

Each worker holds a connection to the chief over which both say that they are alive, once a second. Who closes it
without a goodbye, or is silent for too long, is lost; the chief tells everybody who it was, and all end at once,
without saving: the last checkpoint stands.
"""

import contextlib
import os
import random
import socket
import sys
import threading
import time
from typing import Optional, Sequence, TextIO, Tuple

_BEAT_SECONDS = 1.0
_ALIVE, _BYE, _LOST = "alive", "bye", "lost"
_LONGEST_LINE = 64


class Listener:
    """The chief's socket, and the number that proves that who connects was at the meeting."""

    def __init__(self):
        self.socket = socket.socket()
        self.socket.bind(("", 0))
        self.socket.listen(128)
        self.port = self.socket.getsockname()[1]
        self.token = random.SystemRandom().randrange(1, 2**62)


class Pulse:
    """This worker's side of the heartbeat; runs in threads until `leave`."""

    def __init__(
        self,
        names: Sequence[str],
        index: int,
        listener: Optional[Listener],
        address: Tuple[str, int],
        token: int,
        timeout: float,
    ):
        """
        Args:
          names: of the workers, for messages.
          index: this one's.
          listener: the chief's own; None in the others.
          address: the chief's, host and port.
          token: the chief's.
          timeout: seconds of silence after which a worker is lost.
        """
        self._names, self._index, self._timeout, self._token = names, index, timeout, token
        self._lock, self._left = threading.Lock(), False
        self._peers = {}  # type: Dict[int, socket.socket]
        if listener is None:
            connection = socket.create_connection(address, timeout)
            self._peers[0] = connection
            _send(connection, "%d %d" % (token, index))
            self._start(self._listen, 0, connection, connection.makefile("r"))
        else:
            self._start(self._accept, listener.socket)
        self._start(self._beat)

    def leave(self) -> None:
        """Says goodbye; from then on nobody misses this worker, nor does it miss anybody."""
        with self._lock:
            self._left = True
            for connection in self._peers.values():
                _send(connection, _BYE)

    def wait_for_verdict(self) -> None:
        """Waits as long as it takes to find a lost worker, which ends the process."""
        time.sleep(self._timeout + 2 * _BEAT_SECONDS)

    def _start(self, target, *args) -> None:
        threading.Thread(target=target, args=args, daemon=True).start()

    def _accept(self, listening: socket.socket) -> None:
        """Takes the workers' connections; whoever does not know the token is turned away."""
        arrived, deadline = set(), time.monotonic() + self._timeout
        listening.settimeout(_BEAT_SECONDS)
        while len(arrived) < len(self._names) - 1 and not self._left:
            try:
                connection, _ = listening.accept()
                connection.settimeout(_BEAT_SECONDS)
                lines = connection.makefile("r")
                token, _, index = lines.readline(_LONGEST_LINE).strip().partition(" ")
                if token != str(self._token) or not index.isdigit() or not 0 < int(index) < len(self._names):
                    connection.close()
                    continue
            except (OSError, ValueError):
                if time.monotonic() > deadline:
                    missing = set(range(1, len(self._names))) - arrived
                    return self._lost(min(missing), "it sent no heartbeat")
                continue
            arrived.add(int(index))
            with self._lock:
                self._peers[int(index)] = connection
            self._start(self._listen, int(index), connection, lines)
        listening.close()
        return None

    def _beat(self) -> None:
        while not self._left:
            with self._lock:
                for connection in self._peers.values():
                    _send(connection, _ALIVE)
            time.sleep(_BEAT_SECONDS)

    def _listen(self, peer: int, connection: socket.socket, lines: TextIO) -> None:
        connection.settimeout(self._timeout)
        while True:
            try:
                words = lines.readline(_LONGEST_LINE).split()
            except OSError as error:
                reason = "it did not answer for %g s" % self._timeout
                return self._lost(peer, reason if isinstance(error, socket.timeout) else str(error))
            if words == [_BYE]:
                return None
            if words[:1] == [_LOST]:
                return self._lost(int(words[1]), "says the chief")
            if words != [_ALIVE]:
                return self._lost(peer, "its process has ended")

    def _lost(self, worker: int, reason: str) -> None:
        """Ends this process, and has the chief tell the others first."""
        with self._lock:
            if self._left:
                return
            self._left = True
            if self._index == 0:
                for connection in self._peers.values():
                    _send(connection, "%s %d" % (_LOST, worker))
        print(
            "ERROR: %s was lost (%s). Nothing was saved since the last checkpoint; start all workers again with the "
            "same command and the run goes on from there." % (self._names[worker], reason),
            file=sys.stderr,
            flush=True,
        )
        # The main thread may be waiting inside TensorFlow for the lost worker, and can't be woken.
        os._exit(1)


def _send(connection: socket.socket, line: str) -> None:
    # Where it fails, whoever reads from the same connection finds out, and says who is lost.
    with contextlib.suppress(OSError):
        connection.sendall((line + "\n").encode())
