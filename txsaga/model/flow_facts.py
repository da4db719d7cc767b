"""The facts of flows whose steps run in processes of their own."""

from txsaga.model.fact import Fact


class Declaring(Fact):
    """A flow is about to be begun or joined, with the resources that its steps may work in."""


class Declared(Fact):
    """Any process can join it by its key or its number."""


class Starting(Fact):
    """An attempt of a step is about to be written down, with the name of its branch."""


class Started(Fact):
    """The attempt before it counts no more: whatever that one prepared is rolled back."""


class Closing(Fact):
    """The end of a step is about to be written, with its journal and its messages."""


class Closed(Fact):
    """The step is done, or has failed; one that is done is not run again."""


class Touching(Fact):
    """A flow that waits is about to show that it is not forgotten."""


class Touched(Fact):
    """Its lease runs anew."""


class Settling(Fact):
    """A unit of a lane is about to be committed or rolled back by itself."""


class Settled(Fact):
    """That stands, whatever becomes of the flow."""


class Alarming(Fact):
    """Locks that a flow holds for longer than its budget are about to be written down."""


class Alarmed(Fact):
    """Whoever looks at the flow finds it."""
