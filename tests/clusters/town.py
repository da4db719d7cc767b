"""Three brokers on stores of their own, each behind a network that can be down, and the store that coordinates them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count

import txsaga
from tests.clusters.outage import Outage
from tests.scene.stored import Stored
from txsaga import Broker
from txsaga.checkback.profile import CheckProfile
from txsaga.clusters.broker_cluster import BrokerCluster
from txsaga.consume.dispatcher import Dispatcher
from txsaga.flows.branch import BranchState
from txsaga.flows.recovery import Recovery
from txsaga.testing.checking import check_once

ORDERS = "orders"
NAMES = ("b1", "b2", "b3")
LONG_AGO = 3_600.0
AT_ONCE = CheckProfile(min_age=timedelta(0), interval=timedelta(0))

_readers = count()


@dataclass(slots=True)
class Town:
    """Brokers, what is between them and their clients, and their coordinator."""

    coordinator: Broker
    home: Stored
    direct: Mapping[str, Broker]
    stored: Mapping[str, Stored]
    networks: Mapping[str, Outage]
    urls: Mapping[str, str]
    clusters: list[BrokerCluster] = field(default_factory=list)

    def cluster(self, policy: str = "round-robin", *, names: tuple[str, ...] = NAMES, **more: object) -> BrokerCluster:
        """Open a cluster under XA; weights, a log and a clock of retries may be given."""
        own = {key: more.pop(key) for key in ("tx_log", "seed", "retry") if key in more}
        settings = {"brokers": list(names), "policy": policy, "xa": True, **more}
        return self.opened(settings, names=names, coordinator=self.coordinator, **own)

    def plain(self, policy: str = "round-robin", *, names: tuple[str, ...] = NAMES, **more: object) -> BrokerCluster:
        """Open a cluster without a coordinator."""
        return self.opened({"brokers": list(names), "policy": policy, **more}, names=names)

    def opened(self, settings: Mapping[str, object], *, names: tuple[str, ...] = NAMES, **own: object) -> BrokerCluster:
        """Open a cluster by its settings; a broker that is away is looked at again at once."""
        urls = {name: self.urls[name] for name in names}
        options = {"name": "town", "retry": 0, **own}
        self.clusters.append(txsaga.cluster(settings, urls, **options))  # type: ignore[arg-type]  # as the test says
        return self.clusters[-1]

    def down(self, *names: str) -> None:
        """Take brokers off the net."""
        for name in names:
            self.networks[name].down()

    def up(self, *names: str) -> None:
        """Put them back."""
        for name in names:
            self.networks[name].up()

    def told(self, name: str) -> list[str]:
        """Return the messages that everybody sees on a broker."""
        broker = self.direct[name]
        self.tick(name)
        stream = broker.stream(f"reader-{next(_readers)}", [ORDERS], member="anna")
        found: list[str] = []
        while (batch := stream.poll()) is not None:
            found += [message.text() for message in batch.messages()]
        stream.close()
        return sorted(found)

    def all_told(self) -> list[list[str]]:
        """Return the messages that everybody sees, by broker."""
        return [self.told(name) for name in self.direct]

    def tick(self, *names: str) -> None:
        """Give offsets to what is decided."""
        for name in names or tuple(self.direct):
            dispatcher = Dispatcher(self.direct[name].kernel)
            while dispatcher.run_once():
                pass

    def lives(self, name: str) -> list[str]:
        """Return the states of the branches that a broker ever had, in their order."""
        return [state for (state,) in self.stored[name].rows("SELECT state FROM tx WHERE key <> '' ORDER BY txid")]

    def xids(self, name: str) -> list[str]:
        """Return the transaction ids of the branches on a broker."""
        rows = self.stored[name].rows("SELECT key FROM tx WHERE key <> '' ORDER BY txid")
        return [key.split(":")[1] for (key,) in rows]

    def states(self, txid: int | None) -> dict[str, BranchState]:
        """Return where the branches of a transaction stand in the coordinator, with all that waited to be noted."""
        assert txid is not None
        self.coordinator.kernel.notes.flush()
        return {each.resource: each.state for each in self.coordinator.kernel.store.work.branches(txid)}

    def recover(self) -> int:
        """Let whoever is gone be found, by the brokers and by their coordinator, and finish what is decided."""
        for name, broker in self.direct.items():
            self.stored[name].let_pass(LONG_AGO)
            check_once(broker, AT_ONCE)
        self.home.let_pass(LONG_AGO)
        check_once(self.coordinator, AT_ONCE)
        self.home.rows("UPDATE branch SET at = at - interval '1 hour'")
        return Recovery(self.coordinator.kernel).run_once()
