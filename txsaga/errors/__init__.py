"""
Every error that txsaga raises on purpose, as one tree.

TxSagaError
├── ConfigError                      a setting or an argument is missing, malformed or contradictory; never retry
│   ├── CheckerMissing               a transactional call on a producer without a checker
│   ├── ExecutorMissing              a half message without local work
│   └── FlowRefused                  a flow asks for what can't be kept; the text names all of it
├── InvalidMessage                   the message can't be stored as it is; never retry
├── UnknownTopic                     create the topic first
├── TopicExists                      the topic exists with other settings
├── TopicTypeMismatch                the topic's type forbids this way of sending
├── ReservedName                     a system name was used for something of the user's
├── GroupKindMismatch                a group is transactional or plain, a stream or work; never both
├── UnknownProducerGroup             no such producer group
├── UnknownGroup                     no such consumer group
│   └── TopicNotRead                 the group does not read this topic
├── GroupInUse                       members of the group are at work; stop them first
├── UnknownLetter                    no such dead letter
├── SignatureRefused                 a request does not come from who knows the secret; answer it 401
├── TransactionError                 what was asked can't be done with this transaction
│   ├── UnknownTransaction           there is no such transaction, or the token is not its own
│   │   └── NumberLapsed             the number that it was to begin under was given out too long ago
│   ├── NotParked                    only what is parked can be resumed
│   ├── TransactionClosed            its end was written; nothing can be added any more
│   ├── IllegalTransition            the lifecycle forbids the move
│   ├── DecidedOtherwise             another decision stands
│   │   └── AlreadyCommitted         the key was used by a transaction that committed
│   ├── Superseded                   a later owner of the key took the transaction over
│   ├── TransactionsRejected         this store takes no transactional messages now (NO_PERMISSION)
│   ├── InDoubt                      its fate can't be known yet; try again later
│   ├── EndRefused                   the store refused the end of a half message, with its code
│   ├── VotedOtherwise               a voter has said the opposite before, and that vote stands
│   ├── Unfinished                   it stands committed; resources that were away are told by recovery
│   └── EffectConflict               a home effect can't be applied; it rolls back, or is parked
│       ├── NotCarried               a ballot does not stand for COMMIT
│       ├── TableMoved               the table was changed since an overwrite saw it, or is another one
│       └── PointerMoved             other writers were first each time; decide again
├── SendFailed                       the half could not be stored; local work did not run
├── ResourceUnknown                  a resource name or an engine that was never registered
├── EvidenceMissing                  the evidence table is absent and can't be created here
├── BrokerClosed                     the broker was closed; open another
├── LeaseLost                        another member owns the queue or the transaction now; drop the work
├── ClaimLost                        the time of a claim ran out; another member may have the message
├── AlreadyDone                      the inbox knows the message: its effect is there
├── OutOfOrder                       what is consumed or committed does not follow what the group has read
├── OffsetOutOfRange                 reading below the tail or above the head of a queue
├── ClusterError                     a cluster did not take what was sent to it; its transaction rolls back
│   ├── TooFewBrokers                fewer brokers than the policy needs; retry later
│   ├── BadDestination               no broker will ever take it; never retry
│   └── PinRefused                   the node list of a message can't be followed
└── StoreError                       the home database said no
    ├── StoreUnavailable             connection level or a time-out; safe to retry
    ├── OutcomeUnknown               the connection broke at COMMIT, or the broker was closed; read back first
    ├── StoreBusy                    too many calls wait already; retry later
    ├── NotPrimary                   a standby was asked to write (SLAVE_NOT_AVAILABLE)
    ├── ChunkDamaged                 stored messages can't be read; the text says how to leave them behind
    ├── SchemaMissing                run `txsaga db migrate`
    ├── SchemaTooNew                 the schema is newer than this program; upgrade txsaga
    ├── ServerTooOld                 PostgreSQL 15 or later is needed
    ├── RightsMissing                the database user lacks a right
    ├── IdentityChanged              the server is not the one this store was created on; `txsaga db adopt`
    └── EmbeddedDatabaseError        the embedded PostgreSQL can't run
        └── DataFolderDamaged        its data folder is not whole; restore it from a backup

Each carries `code`, the answer of the half-message protocol that it stands for.

What happens if one of these is caught and dropped: nothing is lost. A half without a decision stays
invisible and is settled by the evidence later.
"""

from collections.abc import Sequence

from txsaga.errors.cluster import BadDestination as BadDestination
from txsaga.errors.cluster import ClusterError as ClusterError
from txsaga.errors.cluster import PinRefused as PinRefused
from txsaga.errors.cluster import TooFewBrokers as TooFewBrokers
from txsaga.errors.groups import GroupInUse as GroupInUse
from txsaga.errors.groups import TopicNotRead as TopicNotRead
from txsaga.errors.groups import UnknownGroup as UnknownGroup
from txsaga.errors.groups import UnknownLetter as UnknownLetter
from txsaga.errors.root import TxSagaError as TxSagaError
from txsaga.errors.store import ChunkDamaged as ChunkDamaged
from txsaga.errors.store import DataFolderDamaged as DataFolderDamaged
from txsaga.errors.store import EmbeddedDatabaseError as EmbeddedDatabaseError
from txsaga.errors.store import IdentityChanged as IdentityChanged
from txsaga.errors.store import NotPrimary as NotPrimary
from txsaga.errors.store import OutcomeUnknown as OutcomeUnknown
from txsaga.errors.store import RightsMissing as RightsMissing
from txsaga.errors.store import SchemaMissing as SchemaMissing
from txsaga.errors.store import SchemaTooNew as SchemaTooNew
from txsaga.errors.store import ServerTooOld as ServerTooOld
from txsaga.errors.store import StoreBusy as StoreBusy
from txsaga.errors.store import StoreError as StoreError
from txsaga.errors.store import StoreUnavailable as StoreUnavailable


class ConfigError(TxSagaError):
    """A setting or an argument is missing, malformed or contradictory."""


class CheckerMissing(ConfigError):
    """A transactional call needs a checker that can say later what became of the local work."""

    def __init__(self, group: str) -> None:
        super().__init__(
            f"tranExecutor is null: producer group {group!r} has no checker; "
            f"pass checker=… to broker.producer({group!r}, …) to send in transactions"
        )
        self.group = group


class ExecutorMissing(ConfigError):
    """A half message needs local work that shares its fate."""

    def __init__(self, group: str) -> None:
        super().__init__(
            f"tranExecutor is null: producer group {group!r} has no local work to run; "
            "pass local=… to send_in_transaction, or give the producer a listener"
        )
        self.group = group


class FlowRefused(ConfigError):
    """A flow asks for what can't be kept."""


class InvalidMessage(TxSagaError):
    """The message can't be stored as it is."""

    code = "MESSAGE_ILLEGAL"


class UnknownTopic(TxSagaError):
    """The topic does not exist."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} does not exist; create it with `txsaga topic create {topic}`")
        self.topic = topic


class TopicExists(TxSagaError):
    """The topic exists with other settings."""


class TopicTypeMismatch(TxSagaError):
    """The topic's type forbids this way of sending."""


class ReservedName(TxSagaError):
    """A system name was used for something of the user's."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} is a system name and can't be used; choose another name")
        self.name = name


class GroupKindMismatch(TxSagaError):
    """A producer group is transactional or plain, a consumer group reads a stream or takes work: never both."""

    def __init__(self, group: str, *, stored: str, asked: str) -> None:
        super().__init__(f"group {group!r} is {stored} in this store and can't also be {asked}; use another group name")
        self.group = group


class UnknownProducerGroup(TxSagaError):
    """The producer group does not exist."""

    def __init__(self, group: str) -> None:
        super().__init__(f"producer group {group!r} does not exist; `txsaga producer list` shows those that there are")
        self.group = group


class SignatureRefused(TxSagaError):
    """A request is not signed by who knows the secret, or its ids are missing."""


class TransactionError(TxSagaError):
    """What was asked can't be done with this transaction."""


class UnknownTransaction(TransactionError):
    """There is no such transaction, or the token is not its own."""


class NumberLapsed(UnknownTransaction):
    """The number that a transaction was to begin under can't be used any more; nothing was written."""

    def __init__(self, txid: int) -> None:
        super().__init__(
            f"number {txid} was given out too long ago, or by another store, and nothing can begin under it any more; "
            "nothing was written: begin the transaction anew"
        )
        self.txid = txid


class NotParked(TransactionError):
    """Only what is parked can be resumed."""

    def __init__(self, txid: int) -> None:
        super().__init__(f"transaction {txid} is not parked; `txsaga doubt list` shows what is")
        self.txid = txid


class TransactionClosed(TransactionError):
    """The end of the transaction was written; nothing can be added any more."""


class IllegalTransition(TransactionError):
    """The lifecycle forbids the move."""


class DecidedOtherwise(TransactionError):
    """Another decision stands; `standing` tells which."""

    def __init__(self, txid: int, standing: str, advice: str = "") -> None:
        super().__init__(f"transaction {txid} is already decided: {standing} stands{advice and '; '}{advice}")
        self.txid = txid
        self.standing = standing


class AlreadyCommitted(DecidedOtherwise):
    """The key was used by a transaction that committed; its work is done."""

    def __init__(self, txid: int, key: str) -> None:
        super().__init__(txid, "COMMIT")
        self.args = (f"key {key!r} is done: transaction {txid} committed it",)
        self.key = key


class Superseded(TransactionError):
    """A later owner of the key took the transaction over; drop the work."""

    def __init__(self, txid: int) -> None:
        super().__init__(f"transaction {txid} was taken over by a later owner of its key; drop this work")
        self.txid = txid


class TransactionsRejected(TransactionError):
    """This store takes no transactional messages now."""

    code = "NO_PERMISSION"

    def __init__(self, store: str) -> None:
        super().__init__(
            f"NO_PERMISSION: store {store} rejects transactional messages; `txsaga tx reject off` ends that"
        )
        self.store = store


class InDoubt(TransactionError):
    """Its fate can't be known yet; try again later."""

    retryable = True


class EndRefused(TransactionError):
    """The store refused the end of a half message; `code` says why."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason


class Unfinished(TransactionError):
    """It stands committed, and not every resource has acknowledged."""

    def __init__(self, txid: int, resources: Sequence[str]) -> None:
        away = ", ".join(map(repr, resources))
        super().__init__(
            f"transaction {txid} is COMMITTED, don't repeat it; {away} did not acknowledge and is told by recovery"
        )
        self.txid, self.resources = txid, tuple(resources)


class EffectConflict(TransactionError):
    """A home effect can't be applied: the transaction rolls back, or is parked where its local work committed."""


class NotCarried(EffectConflict):
    """A ballot does not stand for COMMIT."""

    def __init__(self, ballot: str, why: str) -> None:
        super().__init__(f"ballot {ballot!r} is not carried: {why}")
        self.ballot = ballot


class VotedOtherwise(TransactionError):
    """On the command line: a voter has said the opposite before, and the first vote stands; `vote` returns False."""

    def __init__(self, txid: int, ballot: str, voter: str) -> None:
        super().__init__(f"{voter!r} has voted otherwise in ballot {ballot!r} of transaction {txid}: that vote stands")
        self.txid, self.ballot, self.voter = txid, ballot, voter


class TableMoved(EffectConflict):
    """The table was changed since an overwrite saw it or its branch began, dropped, or is another one of that name."""


class PointerMoved(EffectConflict):
    """A table's pointer leads elsewhere than it did a moment ago; the same may be tried again."""

    retryable = True


class SendFailed(TxSagaError):
    """The half could not be stored; local work did not run and nothing is visible."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(f"send message Exception: {reason}")
        self.code = getattr(reason, "code", self.code)
        self.retryable = getattr(reason, "retryable", False)


class ResourceUnknown(TxSagaError):
    """A resource that was never registered with this broker."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(
            f"resource {name!r} is not registered (known: {', '.join(sorted(set(known))) or 'none'}); "
            f"register it with broker.register({name!r}, engine){_settings_for(name)}"
        )
        self.name = name


def _settings_for(name: str) -> str:
    """Tell how a resource is named from outside of a program; an engine has no name."""
    if not name.isidentifier():
        return ""
    upper = name.upper()
    return (
        f", or set TXSAGA_RESOURCE_{upper} to its URL (TXSAGA_BROKER_{upper} for a store, "
        f"TXSAGA_PARTICIPANT_{upper} for what is no database)"
    )


class EvidenceMissing(TxSagaError):
    """The evidence table is absent and can't be created here."""


class LeaseLost(TxSagaError):
    """Another member owns the queue or the transaction now; drop the work."""


class ClaimLost(TxSagaError):
    """The time of a claim ran out: the message comes again, or is another member's already."""


class AlreadyDone(TxSagaError):
    """The inbox knows the message: what it was to do is done."""

    def __init__(self, message: str, group: str) -> None:
        super().__init__(f"message {message} had its effect for group {group!r} before")
        self.message, self.group = message, group


class OutOfOrder(TxSagaError):
    """What is consumed or committed does not follow what the group has read of its queue."""


class OffsetOutOfRange(TxSagaError):
    """The offset lies below the tail or above the head of the queue."""

    def __init__(self, topic: str, queue: int, offset: int, *, tail: int, head: int) -> None:
        super().__init__(f"offset {offset} of {topic}/{queue} is gone or not there yet; it holds {tail} to {head}")
        self.offset, self.tail, self.head = offset, tail, head


class BrokerClosed(TxSagaError):
    """The broker, the consumer or the cluster was closed before this call; nothing was done."""

    def __init__(self, what: str = "broker", another: str = "txsaga.connect()") -> None:
        super().__init__(f"this {what} is closed; open another with {another}")
