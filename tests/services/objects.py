"""
An object store of its own for the tests of tables: S3's API, in memory, on a free port.

It is given what a bucket holds and forgets it when it ends. If `stop` never ran, the leftover check of the session
would end the server.
"""

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec

from pyarrow.fs import FileSelector, FileType, S3FileSystem

from tests.services.absent import ci_or_skip
from tests.services.free_port import free_port

INSTALL_LINE = "pip install 'moto[s3]' flask flask-cors"
START_SECONDS = 60
KEY = "test"
SERVE = "import sys; from moto.server import main; main(sys.argv[1:])"


@dataclass(slots=True)
class ObjectStore:
    """A running store with one bucket."""

    port: int
    process: subprocess.Popen[bytes]
    bucket: str = "lake"

    @property
    def settings(self) -> Mapping[str, str]:
        """How PyIceberg reaches it."""
        return {
            "s3.endpoint": f"http://127.0.0.1:{self.port}",
            "s3.access-key-id": KEY,
            "s3.secret-access-key": KEY,
            "s3.region": "us-east-1",
            "s3.path-style-access": "true",
        }

    def files(self) -> list[str]:
        """Return the names of all objects."""
        found = self._opened().get_file_info(FileSelector(self.bucket, recursive=True))
        return sorted(each.path for each in found if each.type == FileType.File)

    def put(self, name: str, data: bytes) -> None:
        """Store an object."""
        with self._opened().open_output_stream(f"{self.bucket}/{name}") as stream:
            stream.write(data)

    def await_ready(self) -> None:
        """Make the bucket, as soon as the server answers."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self._opened().create_dir(self.bucket)
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    def stop(self) -> None:
        """End the server and wait until it is gone."""
        self.process.kill()
        self.process.wait()

    def _opened(self) -> S3FileSystem:
        return S3FileSystem(
            access_key=KEY,
            secret_key=KEY,
            region="us-east-1",
            endpoint_override=f"http://127.0.0.1:{self.port}",
            allow_bucket_creation=True,
        )


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Run an object store for this block."""
    if not all(map(find_spec, ("moto", "flask", "flask_cors"))):
        ci_or_skip("moto", INSTALL_LINE)
    port = free_port()
    command = [sys.executable, "-c", SERVE, "-H", "127.0.0.1", "-p", str(port)]
    store = ObjectStore(port, subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    try:
        store.await_ready()
        yield store
    finally:
        store.stop()
