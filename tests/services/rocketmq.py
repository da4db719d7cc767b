"""A RocketMQ of its own for tests and comparisons: name server, and broker with proxy, each disk write flushed.

Own folder, own ports of 127.0.0.1. `python -m tests.services.rocketmq transactionCheckInterval=30000` starts one,
prints its addresses as JSON, and stops it when its input or its process ends. If `stop` never runs in a test, the
leftover check of the session ends the servers.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.services.absent import ci_or_skip
from tests.services.free_port import free_port
from txsaga.gateway.remoting import NO_TOPIC, ROUTE, ask

JARS = Path(__file__).parents[2] / ".rocketmq"
INSTALL_LINE = "run .ci/rocketmq, which needs Maven and a JDK"
START_SECONDS, STEP_SECONDS = 100, 20
CREATE_TOPIC = 17
NAMES, SERVER = "org.apache.rocketmq.namesrv.NamesrvStartup", "org.apache.rocketmq.proxy.ProxyStartup"
SMALL: dict[str, object] = {
    "mappedFileSizeCommitLog": 64 * 2**20,
    "mappedFileSizeConsumeQueue": 60_000,
    "maxIndexNum": 500_000,
}
SMALL |= {"maxHashSlotNum": 100_000, "diskMaxUsedSpaceRatio": 95}
QUICK = {"transactionCheckInterval": 1000, "transactionTimeOut": 1000, "transactionOpBatchInterval": 100}
QUICK |= {"transactionCheckMax": 1000}
"""Checks that a test can wait for."""
SHORT_POLLS = {"grpcClientConsumerMinLongPollingTimeoutMillis": 500}


@dataclass(slots=True)
class RocketMqServer:
    """A running server."""

    folder: Path
    settings: Mapping[str, object]
    keys: Sequence[str] = ()
    ports: Sequence[int] = field(default_factory=lambda: [free_port() for _ in range(5)])
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def endpoint(self) -> str:
        """Where clients of gRPC call."""
        return f"127.0.0.1:{self.ports[0]}"

    @property
    def name_server(self) -> str:
        """Where clients of the remoting protocol learn about brokers."""
        return f"127.0.0.1:{self.ports[1]}"

    @property
    def broker(self) -> str:
        """Where the broker answers the remoting protocol."""
        return f"127.0.0.1:{self.ports[2]}"

    def topic(self, name: str, kind: str = "TRANSACTION", queues: int = 1) -> str:
        """Create a topic and return its name: NORMAL, FIFO, DELAY or TRANSACTION."""
        given = {"topic": name, "defaultTopic": "TBW102", "readQueueNums": str(queues), "writeQueueNums": str(queues)}
        given |= {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
        ask(self.broker, CREATE_TOPIC, {**given, "attributes": f"+message.type={kind}"}, keys=self.keys)
        end = time.monotonic() + STEP_SECONDS
        while not ask(self.name_server, ROUTE, {"topic": name}, NO_TOPIC):  # brokers tell them a little later
            assert time.monotonic() < end, f"no name server knows {name}"
            time.sleep(0.01)
        return name

    def start(self) -> None:
        """Start both processes and return once clients are answered."""
        self._write()
        names, server = self.folder / "names.conf", self.folder / "broker.conf"
        proxy = ["-pm", "local", "-pc", self.folder / "proxy.json", "-bc", server, "-n", self.name_server]
        self.processes = [
            self._run("names", "-Xmx64m", "-XX:TieredStopAtLevel=1", NAMES, "-c", names),
            self._run("server", "-Xmx448m", "-XX:MaxDirectMemorySize=256m", SERVER, *proxy),
        ]
        self._await()

    def restart(self) -> None:
        """Kill the servers, as a loss of power would, and start them where they were."""
        self.stop()
        self.start()

    def stop(self) -> None:
        """Kill both: an orderly end takes ten seconds, and nothing here outlives them but the folder."""
        for process in self.processes:
            process.kill()
            process.wait()

    def _write(self) -> None:
        grpc, names, broker, ha, remoting = self.ports
        (self.folder / "conf").mkdir(exist_ok=True)
        store = {"storePathRootDir": self.folder / "store", "storePathCommitLog": self.folder / "store/commitlog"}
        own = {"brokerClusterName": "tests", "brokerName": "broker", "brokerId": 0, "brokerIP1": "127.0.0.1"}
        own |= {"listenPort": broker, "haListenPort": ha, "bindAddress": "127.0.0.1", "flushDiskType": "SYNC_FLUSH"}
        own |= {"namesrvAddr": self.name_server, "autoCreateTopicEnable": "false"}
        lines = [f"{name}={value}\n" for name, value in {**own, **store, **SMALL, **self.settings}.items()]
        (self.folder / "broker.conf").write_text("".join(lines))
        (self.folder / "names.conf").write_text(f"listenPort={names}\nbindAddress=127.0.0.1\n")
        proxy = {"rocketMQClusterName": "tests", "namesrvAddr": self.name_server, "grpcServerPort": grpc}
        (self.folder / "proxy.json").write_text(json.dumps({**proxy, "remotingListenPort": remoting, **SHORT_POLLS}))

    def _run(self, output: str, *words: object) -> subprocess.Popen[bytes]:
        fixed = ["-XX:+UseSerialGC", f"-Duser.home={self.folder}", "-cp", f"{JARS}/*"]
        options = [str(each) for each in words if str(each).startswith("-X")]
        command = ["java", *fixed, *options, *map(str, words[len(options) :])]
        env = {**os.environ, "ROCKETMQ_HOME": str(self.folder)}
        with (self.folder / f"{output}.out").open("ab") as out:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, start_new_session=True
            )

    def _await(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not (_listens(self.ports[0]) and _listens(self.ports[2])):
            if any(each.poll() is not None for each in self.processes) or time.monotonic() > deadline:
                said = "".join((self.folder / f"{each}.out").read_text()[-2000:] for each in ("names", "server"))
                raise RuntimeError(f"RocketMQ did not start:\n{said}")
            time.sleep(0.1)


@contextmanager
def rocketmq_server(*keys: str, **settings: object) -> Iterator[RocketMqServer]:
    """Start a server with these settings of its broker, give it out, stop it and remove its folder.

    With an access key and a secret, its broker answers only who has them.
    """
    if not any(JARS.glob("rocketmq-proxy-*.jar")) or not shutil.which("java"):
        ci_or_skip("RocketMQ", INSTALL_LINE)
    folder = Path(tempfile.mkdtemp(prefix="txsaga-rocketmq-"))
    try:
        server = RocketMqServer(folder, {**settings, **(_authentication(*keys) if keys else {})}, keys)
        try:
            server.start()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _authentication(key: str, secret: str) -> Mapping[str, object]:
    package = "org.apache.rocketmq.auth.authentication.provider"
    return {
        "authenticationEnabled": "true",
        "authenticationProvider": f"{package}.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{package}.LocalAuthenticationMetadataProvider",
        "initAuthenticationUser": json.dumps({"username": key, "password": secret}),
        "innerClientAuthenticationCredentials": json.dumps({"accessKey": key, "secretKey": secret}),
    }


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def main() -> None:
    """Start one with the settings of the command line, and keep it until the input ends."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    began = time.monotonic()
    with rocketmq_server(**dict(each.split("=", 1) for each in sys.argv[1:])) as server:
        said = {"endpoint": server.endpoint, "name_server": server.name_server, "broker": server.broker}
        print(json.dumps({**said, "seconds": round(time.monotonic() - began, 1)}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
