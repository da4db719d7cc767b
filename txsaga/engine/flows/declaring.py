"""What undoes a step whose work is a block of its own, as it is written down before the block runs."""

from __future__ import annotations

from collections.abc import Mapping

from txsaga.engine.kernel import Kernel
from txsaga.engine.saga.naming import Doing, undoing
from txsaga.errors import ConfigError
from txsaga.model.arguments import check_kind
from txsaga.model.flow_step import HOME
from txsaga.model.keeping import as_json
from txsaga.model.saga import Undo
from txsaga.model.step import StepKind
from txsaga.ports.steps import Start


def declared(
    kernel: Kernel, name: str, where: str | None, compensate: Doing | Undo | None, input: Mapping[str, object] | None
) -> Start | None:
    """Check what undoes a step that works there; None where nothing does."""
    undo = undoing(compensate, where)
    if undo is None:
        if input is not None:
            raise ConfigError(f"step {name!r} has an input and no compensation to get it; give compensate= too")
        return None
    if where == HOME:
        raise ConfigError(f"step {name!r} writes with COMMIT alone, nothing is to be undone; leave compensate= out")
    if input is not None:
        check_kind(input, Mapping, "the input of a step", "give a mapping of names to JSON values")
    if undo.resource is not None:
        kernel.resource(undo.resource)
    kept = as_json(dict(input or {}), f"the input of step {name!r}")
    kind = StepKind.CALL if where is None else StepKind.HELD
    return Start(0, name, kind, where, kept, undo.written())
