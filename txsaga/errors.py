"""
Every error that txsaga raises on purpose, as one tree below `TxSagaError`; docs/reference/errors.md says what to do.

Each carries `code`, the answer of the half-message protocol that it stands for, and `retryable`: the same call may
succeed later. If one is caught and dropped, nothing is lost: a half without a decision stays invisible and is settled
by the evidence later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar


class TxSagaError(Exception):
    """Base of all errors that txsaga raises on purpose."""

    retryable: bool = False
    code: str = "SYSTEM_ERROR"

    def __init_subclass__(
        cls, *, retryable: bool | None = None, code: str | None = None, number: int | None = None
    ) -> None:
        """Take what a class gives in its header; what it does not give is that of its base."""
        super().__init_subclass__()
        for name, given in {"retryable": retryable, "code": code, "number": number}.items():
            if given is not None:
                setattr(cls, name, given)

    def __reduce__(self) -> tuple[Any, ...]:
        """Be made of text and fields, not of what the text was made of."""
        return _again, (type(self), *self.args), self.__dict__


def _again(kind: type[TxSagaError], *told: object) -> TxSagaError:
    return kind.__new__(kind, *told)


class ConfigError(TxSagaError):
    """A setting or an argument is missing, malformed or contradictory."""


class KeyInUse(ConfigError):
    """Flows, sagas and other transactions of a group can't have the same key."""

    def __init__(self, key: str, what: str) -> None:
        super().__init__(f"key {key!r} belongs to {what}; flows, sagas and transactions of a group need different keys")


class CheckerMissing(ConfigError):
    """Work that leaves no evidence needs a checker that can say later what became of it."""

    def __init__(self, group: str) -> None:
        super().__init__(
            f"producer group {group!r} has no checker; pass checker=… to broker.producer({group!r}, …): if "
            "this process crashes, txsaga asks the checker whether the work was done"
        )
        self.group = group


class ExecutorMissing(ConfigError):
    """A half message needs local work."""

    def __init__(self, group: str) -> None:
        super().__init__(
            f"tranExecutor is null: producer group {group!r} needs local work and its check; "
            "give TransactionMQProducer a listener, or give it checker=… and each call executor=…"
        )
        self.group = group


class FlowRefused(ConfigError):
    """A flow asks for something that can't be guaranteed."""


class InvalidMessage(TxSagaError, code="MESSAGE_ILLEGAL"):
    """The message can't be stored as it is."""


class UnknownTopic(TxSagaError):
    """The topic does not exist, or not any more."""

    def __init__(self, topic: str, what: str = "does not exist;") -> None:
        super().__init__(f"topic {topic!r} {what} create it with `txsaga topic create {topic}`")
        self.topic = topic


class TopicExists(TxSagaError):
    """The topic exists with other settings."""


class TopicInUse(TxSagaError):
    """The topic can't be deleted, or get another type, yet."""


class TopicTypeMismatch(TxSagaError):
    """The topic's type forbids this way of sending."""


class ReservedName(TxSagaError):
    """A system name was used for something of the user's."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} is a system name and can't be used; choose another name")
        self.name = name


class GroupKindMismatch(TxSagaError):
    """A producer group is transactional or plain, a consumer group reads a stream or takes work: never both."""

    def __init__(self, group: str, *, stored: str, asked: str, change: str) -> None:
        told = f"group {group!r} is {stored} in this store and can't also be {asked}; use another group name"
        super().__init__(f"{told}, or {change}")
        self.group = group


class UnknownProducerGroup(TxSagaError):
    """The producer group does not exist."""

    def __init__(self, group: str) -> None:
        super().__init__(f"producer group {group!r} does not exist; `txsaga producer list` lists all groups")
        self.group = group


class SignatureRefused(TxSagaError):
    """A request has no valid signature, or its ids are missing."""


class TransactionError(TxSagaError):
    """The call is not possible with this transaction."""


class UnknownTransaction(TransactionError):
    """There is no such transaction, or the token is not its own."""


class NotParked(TransactionError):
    """Only a parked transaction can be resumed."""

    def __init__(self, txid: int) -> None:
        super().__init__(f"transaction {txid} is not parked; `txsaga tx pending --parked` lists parked transactions")
        self.txid = txid


class TransactionClosed(TransactionError):
    """The transaction is sealed; nothing can be added any more."""


class IllegalTransition(TransactionError):
    """The lifecycle forbids the move."""


class DecidedOtherwise(TransactionError):
    """Another decision is final; `standing` names it."""

    def __init__(self, txid: int, standing: str) -> None:
        super().__init__(f"transaction {txid} is already decided: {standing}")
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


class TransactionsRejected(TransactionError, code="NO_PERMISSION"):
    """This store takes no transactional messages now."""

    def __init__(self, store: str) -> None:
        super().__init__(f"NO_PERMISSION: store {store} rejects transactions; `txsaga tx reject off` ends that")
        self.store = store


class InDoubt(TransactionError, retryable=True):
    """Its outcome is not known yet; try again later."""


class EndRefused(TransactionError):
    """The store refused the end of a half message; `code` says why."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason


class Unfinished(TransactionError):
    """It is committed, and not every resource has acknowledged."""

    def __init__(self, txid: int, resources: Sequence[str]) -> None:
        away = ", ".join(map(repr, resources))
        super().__init__(f"transaction {txid} is COMMITTED, don't repeat it; recovery will commit it in {away}")
        self.txid, self.resources = txid, tuple(resources)


class EffectConflict(TransactionError):
    """A home effect can't be applied: the transaction rolls back, or is parked where its local work committed."""


class NotCarried(EffectConflict):
    """A ballot does not allow COMMIT."""

    def __init__(self, ballot: str, why: str) -> None:
        super().__init__(f"ballot {ballot!r} is not carried: {why}")
        self.ballot = ballot


class TableMoved(EffectConflict):
    """The table was changed since an overwrite saw it or its branch began, dropped, or is another one of that name."""


class PointerMoved(EffectConflict, retryable=True):
    """A table's pointer leads elsewhere than it did a moment ago; the same may be tried again."""


class SendFailed(TxSagaError):
    """The half could not be stored; local work did not run and nothing is visible."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(f"send message Exception: {reason}")
        self.code = getattr(reason, "code", self.code)
        self.retryable = getattr(reason, "retryable", False)


class ResourceUnknown(TxSagaError):
    """A resource that was never registered with this broker."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        settings = (
            f", or set TXSAGA_RESOURCE_{name.upper()} to its URL (TXSAGA_BROKER_{name.upper()} for a store, "
            f"TXSAGA_PARTICIPANT_{name.upper()} for a participant that is not a database)"
        )
        super().__init__(
            f"resource {name!r} is not registered (known: {', '.join(sorted(set(known))) or 'none'}); register it with "
            f"broker.register({name!r}, engine){settings if name.isidentifier() else ''}"
        )
        self.name = name


class EvidenceMissing(TxSagaError):
    """The evidence table is absent and can't be created here."""


class LeaseLost(TxSagaError):
    """Another member owns the queue or the transaction now; drop the work."""


class ClaimLost(TxSagaError):
    """The time of a claim ran out: the message comes again, or is another member's already."""


class AlreadyDone(TxSagaError):
    """The inbox knows the message: its effect has already happened."""

    def __init__(self, message: str, group: str) -> None:
        super().__init__(f"message {message} was already processed by group {group!r}")
        self.message, self.group = message, group


class OutOfOrder(TxSagaError):
    """A chunk is not the next one of its queue, or a commit would move the cursor back."""


class OffsetOutOfRange(TxSagaError):
    """The offset is below the tail or above the head of the queue."""

    def __init__(self, topic: str, queue: int, offset: int, *, tail: int, head: int) -> None:
        super().__init__(f"offset {offset} of {topic}/{queue} does not exist; the queue holds {tail} to {head}")
        self.offset, self.tail, self.head = offset, tail, head


class BrokerClosed(TxSagaError):
    """The broker, the consumer or the cluster was closed before this call; nothing was done."""

    def __init__(self, what: str = "broker", another: str = "txsaga.connect()") -> None:
        super().__init__(f"this {what} is closed; open another with {another}")


class StoreError(TxSagaError):
    """The home database reported an error."""


class StoreUnavailable(StoreError, code="SERVICE_NOT_AVAILABLE", retryable=True):
    """The home database can't be reached or did not answer in time; safe to retry."""


class OutcomeUnknown(StoreError):
    """The connection broke, or the broker was closed, while a commit was under way; read back before anything else."""


class StoreBusy(StoreError, retryable=True):
    """Too many calls wait already."""


class NotPrimary(StoreError, code="SLAVE_NOT_AVAILABLE"):
    """A standby received a write."""


class ChunkDamaged(StoreError):
    """A stored chunk of messages can't be read: it is not what was written, or was written wrong."""


class SchemaMissing(StoreError):
    """The namespace holds no schema of txsaga, or an older one."""


class SchemaTooNew(StoreError):
    """The schema is newer than this program."""


class ServerTooOld(StoreError):
    """The server is older than txsaga can work with."""


class RightsMissing(StoreError):
    """The database user lacks a right."""


class IdentityChanged(StoreError):
    """The server is not the one this store was created on."""


class EmbeddedDatabaseError(StoreError):
    """The embedded PostgreSQL can't run; the message says what to do."""


class DataFolderDamaged(EmbeddedDatabaseError):
    """The data folder of the embedded PostgreSQL is not whole."""


class UnknownGroup(TxSagaError):
    """The consumer group does not exist."""

    def __init__(self, group: str) -> None:
        super().__init__(f"consumer group {group!r} does not exist; open a reader, or `txsaga group create {group}`")
        self.group = group


class TopicNotRead(UnknownGroup):
    """The consumer group does not read the topic."""

    def __init__(self, group: str, topic: str) -> None:
        TxSagaError.__init__(
            self, f"group {group!r} does not read topic {topic!r}; `txsaga group show {group}` shows what it reads"
        )
        self.group, self.topic = group, topic


class GroupInUse(TxSagaError):
    """Members of the group are at work, or transactions of the producer group are undecided."""

    def __init__(self, group: str, what: str = "has active members; stop them, wait until their claims expire") -> None:
        super().__init__(f"group {group!r} {what}, then try again")
        self.group = group


class UnknownLetter(TxSagaError):
    """The dead letter does not exist."""

    def __init__(self, id: int) -> None:
        super().__init__(f"dead letter {id} does not exist; `txsaga dlq list` lists dead letters")
        self.id = id


class ClusterError(TxSagaError):
    """A cluster did not take what was sent to it; its transaction rolls back."""


class TooFewBrokers(ClusterError, code="SERVICE_NOT_AVAILABLE", retryable=True):
    """Fewer brokers are there, or accepted, than the policy needs."""


class BadDestination(ClusterError):
    """No broker will ever take it: the topic or the message is wrong."""


class PinRefused(ClusterError):
    """The node list of a message can't be followed, and nothing else is tried."""


class ClientSilent(TxSagaError, retryable=True):
    """No gateway has the client, or the client does not answer."""


class UnknownSuite(TxSagaError):
    """There is no such suite of expectations."""

    def __init__(self, suite: str, folder: str, known: Sequence[str]) -> None:
        there = f"there are {', '.join(known)}" if known else "there is none"
        super().__init__(
            f"suite {suite!r} is not in {folder} ({there}); save it there as JSON, or set TXSAGA_SUITES to its folder"
        )
        self.suite = suite


class HostFailed(TxSagaError, retryable=True):
    """Airflow can't be started, stopped or asked."""


class XaError(TransactionError):
    """A resource manager answered something else than yes."""

    number: ClassVar[int]


class VotedNo(XaError, number=100):
    """The branch is rolled back, or can only be; so is its transaction."""


class RolledBack(VotedNo, number=100):
    """Rolled back for a reason of the resource's own (XA_RBROLLBACK)."""


class CommunicationFailed(VotedNo, number=101):
    """A connection inside the resource was lost (XA_RBCOMMFAIL)."""


class Deadlocked(VotedNo, number=102):
    """A deadlock was found (XA_RBDEADLOCK)."""


class IntegrityViolated(VotedNo, number=103):
    """A constraint that is checked at the end does not hold (XA_RBINTEGRITY)."""


class OtherReason(VotedNo, number=104):
    """A reason that has no code of its own (XA_RBOTHER)."""


class ProtocolBroken(VotedNo, number=105):
    """The resource found calls out of order (XA_RBPROTO)."""


class TimedOut(VotedNo, number=106):
    """The branch took too long (XA_RBTIMEOUT)."""


class TransientFailure(VotedNo, number=107, retryable=True):
    """The branch may be tried again from its beginning (XA_RBTRANSIENT)."""


class Heuristic(XaError, number=8):
    """A branch was decided outside txsaga."""


class HeuristicMixed(Heuristic, number=5):
    """Part of the branch is committed, part rolled back (XA_HEURMIX)."""


class HeuristicRollback(Heuristic, number=6):
    """The branch was rolled back although its transaction commits (XA_HEURRB)."""


class HeuristicCommit(Heuristic, number=7):
    """The branch was committed although its transaction rolls back (XA_HEURCOM)."""


class HeuristicHazard(Heuristic, number=8):
    """The outcome of the branch can't be known (XA_HEURHAZ)."""


class ReadOnly(XaError, number=3):
    """The branch changed nothing: it is done, without a second phase (XA_RDONLY)."""


class RetryLater(XaError, number=4, retryable=True):
    """The resource can't do it now and holds the branch (XA_RETRY)."""


class NoMigration(XaError, number=9):
    """The branch must be finished where it was begun (XA_NOMIGRATE)."""


class AsyncPending(XaError, number=-2):
    """An asynchronous call is under way (XAER_ASYNC)."""


class ResourceManagerError(XaError, number=-3):
    """The resource failed and the branch with it (XAER_RMERR)."""


class UnknownBranch(XaError, number=-4):
    """The resource knows no such branch (XAER_NOTA)."""


class InvalidArguments(XaError, number=-5):
    """The call can't be read (XAER_INVAL)."""


class ProtocolError(XaError, number=-6):
    """The call is out of order (XAER_PROTO)."""


class ResourceManagerFailed(XaError, number=-7, retryable=True):
    """The resource can't be reached; what it holds stays as it is (XAER_RMFAIL)."""


class DuplicateBranch(XaError, number=-8):
    """The branch exists already (XAER_DUPID)."""


class OutsideTransaction(XaError, number=-9):
    """The resource is in another, unrelated transaction (XAER_OUTSIDE)."""


class FlowUnknown(TransactionError):
    """No flow of that key or number is under way here."""


class StepDone(TransactionError):
    """The step was done before, by the try `attempt`."""

    def __init__(self, txid: int, name: str, attempt: int) -> None:
        super().__init__(f"step {name!r} of transaction {txid} is done (attempt {attempt}); continue with the next")
        self.txid, self.name, self.attempt = txid, name, attempt


class StepsOpen(TransactionError):
    """A step is not done, and what it belongs to can't be settled without it."""

    def __init__(self, txid: int, what: str, steps: Sequence[str]) -> None:
        named = ", ".join(map(repr, steps))
        super().__init__(
            f"{what} of transaction {txid} can't be settled: step {named} is not done; run it again, add it to "
            "handled=[…] if its failure was handled, or roll back"
        )
        self.txid, self.steps = txid, tuple(steps)


class OwnLock(TransactionError):
    """Work waits for a lock of its own flow or its own transaction: it would wait for ever."""

    def __init__(
        self,
        waiter: str,
        resource: str,
        holder: str,
        *,
        whole: str = "flow",
        remedy: str = 'hold both with hold="journal", or make one step of them',
    ) -> None:
        super().__init__(
            f"{waiter} would wait forever in {resource!r} for a lock that its own {whole} holds in {holder}; {remedy}"
        )
        self.waiter, self.resource, self.holder = waiter, resource, holder


class RowsDiffer(OtherReason):
    """A journalled statement changed another number of rows than expected."""


class SagaError(TransactionError):
    """Something is wrong with a saga."""


class StepRefused(SagaError):
    """The step comes after its own compensation; nothing of it was done."""

    def __init__(self, transaction: str, number: int) -> None:
        super().__init__(f"step {number} of {transaction} comes after its compensation; drop this work")
        self.number = number


class StepLeftOut(SagaError):
    """Raised by a step that has nothing to do: nothing of it was done, and nothing is to be undone."""


class StepTimedOut(SagaError):
    """It exceeded its timeout; its outcome is unknown."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(f"{what} took longer than {seconds:g} s; its outcome is unknown")


class ServiceFailed(SagaError):
    """A service did not say that it is done."""


class ServiceRefused(ServiceFailed):
    """A service said no: nothing was done."""


class ServiceUnreachable(ServiceFailed):
    """A service refused the connection: nothing was done, and a retry may succeed."""


class AnswerLost(ServiceFailed):
    """A service said that it is done; what else it answered is too long, or ended early."""


class ReservationExpired(SagaError):
    """A reservation ran out before the decision."""

    def __init__(self, txid: int, name: str) -> None:
        super().__init__(f"the reservation of step {name!r} of transaction {txid} has expired; the saga rolls back")
        self.txid = txid


class CodeMissing(SagaError):
    """A function that the saga names is not registered in this process."""

    def __init__(self, name: str, unloaded: str = "") -> None:
        super().__init__(
            f"{name!r} is not registered in this process{unloaded}; "
            "name the module that registers it in TXSAGA_SAGAS, or with `txsaga engine --sagas`"
        )
        self.name = name


class UnknownStep(SagaError):
    """The saga has no such step."""

    def __init__(self, txid: int, step: object) -> None:
        super().__init__(f"transaction {txid} has no step {step}; `txsaga saga show {txid}` lists them")


class NotCompensated(SagaError, retryable=True):
    """Some steps of a saga are not undone yet."""

    def __init__(self, txid: int, why: str) -> None:
        super().__init__(f"saga {txid} is rolled back but not completely undone: {why}")
        self.txid = txid


class CompensationFailed(NotCompensated, retryable=False):
    """A compensation is out of retries; an operator resumes or skips it."""


class TableError(TxSagaError):
    """A write does not fit its table; nothing of it is visible."""


class UnknownTable(TableError):
    """There is no such table."""

    def __init__(self, table: str) -> None:
        super().__init__(f"table {table!r} does not exist; create it with tx.table({table!r}).create(columns)")
        self.table = table


class TableExists(TableError):
    """The table that was to be created is there."""


class OtherCatalog(TableError):
    """The table is in a catalog that the decision does not cover."""


class FormatRefused(TableError):
    """The table has a format that this way of writing can't keep."""


class ColumnsDiffer(TableError):
    """Columns are missing, or more than the table has."""


class TypeDiffers(TableError):
    """A column is of another type."""


class NullRefused(TableError):
    """NULL in a required column."""


class OutsideOverwrite(TableError):
    """Rows are outside of the partitions that an overwrite replaces."""


class BranchMissed(TableError):
    """A session wrote to a table directly instead of to its branch."""


class TableTaken(TableError, retryable=True):
    """Another undecided transaction overwrites the same part of a table."""


class LakeMissing(TableError):
    """A package, Java or a warehouse is missing."""

    INSTALL = "pip install 'txsaga[lake]'"


class WarehouseAway(InDoubt, retryable=True):
    """The files of a table can't be reached now."""
