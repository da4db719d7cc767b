"""Errors about consumer groups and what they gave up."""

from txsaga.errors.root import TxSagaError


class UnknownGroup(TxSagaError):
    """The consumer group does not exist."""

    def __init__(self, group: str) -> None:
        super().__init__(
            f"consumer group {group!r} does not exist; it is registered by its first reader, "
            f"or by `txsaga group create {group}`"
        )
        self.group = group


class TopicNotRead(UnknownGroup):
    """The consumer group does not read the topic."""

    def __init__(self, group: str, topic: str) -> None:
        TxSagaError.__init__(
            self, f"group {group!r} does not read topic {topic!r}; `txsaga group show {group}` shows what it reads"
        )
        self.group, self.topic = group, topic


class GroupInUse(TxSagaError):
    """Members of the consumer group are at work."""

    def __init__(self, group: str) -> None:
        super().__init__(
            f"members of group {group!r} are at work, or were a moment ago; "
            "stop them and wait until what they hold runs out, then try again"
        )
        self.group = group


class UnknownLetter(TxSagaError):
    """The dead letter does not exist."""

    def __init__(self, id: int) -> None:
        super().__init__(f"there is no dead letter {id}; `txsaga dlq list` shows those that there are")
        self.id = id
