"""The kill matrix of coordinated transactions: which program dies, what is done after it, what must then be true."""

from __future__ import annotations

from dataclasses import replace

from tests.chaos import coordinated, looping, members
from tests.chaos.agreement import agreed, all_of, cursor_follows, exactly, orders_follow
from tests.chaos.coordinated import BOTH, TAKEN
from tests.chaos.houses import CLUSTER, MYSQL, POSTGRESQL, SERVICE, SQLITE
from tests.chaos.matrix import Scenario, nothing_more
from tests.chaos.world import BANK

ROLES = "Publishing:1"
"""The news that the roles begin with: their own facts are those of another program."""
TWO_PHASES = tuple(
    f"{fact}:1"
    for step in ("Naming Named", "Voting Voted", "Deciding Decided", "Finishing Finished", "Noting Noted")
    for fact in step.split()
)
ONE_PHASE = tuple(
    f"{fact}:{n}" for fact in ("Ending", "Ended", "Working", "Worked", "Deciding", "Decided") for n in (1, 2)
)

PAY = Scenario(
    name="two databases and a message, recovered by two at once",
    roles_from=ROLES,
    sure=TWO_PHASES,
    run=coordinated.pay,
    after=(coordinated.recover,),
    copies=2,
    check=agreed(*BOTH),
    end=nothing_more,
)
BY_JOURNAL = replace(PAY, name="two journals and a message, recovered by two at once", run=coordinated.pay_by_journal)
AT_ONCE = replace(PAY, name="many journals at once", run=coordinated.pay_at_once)
BY_KEY = Scenario(
    name="the same under a key, recovered, then tried again",
    roles_from=ROLES,
    sure=TWO_PHASES,
    run=coordinated.pay_by_key,
    after=(coordinated.recover, coordinated.pay_by_key),
    check=agreed(*BOTH),
    end=exactly("1"),
)
BY_KEY_AT_ONCE = Scenario(
    name="the same under a key, tried again at once",
    roles_from=ROLES,
    sure=TWO_PHASES,
    run=coordinated.pay_by_key,
    after=(coordinated.pay_by_key,),
    check=agreed(*BOTH),
    end=exactly("1"),
)
ALONE = Scenario(
    name="one database alone, in one phase",
    roles_from=ROLES,
    sure=ONE_PHASE,
    run=coordinated.pay_alone,
    after=(coordinated.recover,),
    check=agreed(BANK),
    end=nothing_more,
)
ONE = Scenario(
    name="one database and a message",
    roles_from=ROLES,
    sure=ONE_PHASE,
    run=coordinated.pay_one,
    after=(coordinated.recover,),
    copies=2,
    check=agreed(BANK),
    end=nothing_more,
)
IN_LOOP = Scenario(
    name="two databases and a message within an event loop",
    roles_from=ROLES,
    sure=TWO_PHASES,
    run=looping.pay_in_loop,
    after=(coordinated.recover,),
    check=agreed(*BOTH),
    end=nothing_more,
)
FAIL = Scenario(
    name="an exception, a vote of no, a success",
    roles_from=ROLES,
    sure=TWO_PHASES,
    run=coordinated.fail,
    after=(coordinated.recover,),
    check=agreed(*BOTH),
    end=nothing_more,
)
WORK_OFF = Scenario(
    name="consume messages, two databases, a message",
    before=((coordinated.order, None),),
    roles_from=ROLES,
    sure=TWO_PHASES,
    run=coordinated.work_off,
    after=(coordinated.recover, coordinated.work_on),
    check=all_of(agreed(*BOTH), orders_follow),
    end=exactly("1", "2"),
)
READ_OFF = Scenario(
    name="consume a stream, two databases, a message",
    before=((coordinated.order, None),),
    roles_from=ROLES,
    sure=TWO_PHASES,
    run=coordinated.read_off,
    after=(coordinated.recover, coordinated.read_off),
    check=all_of(agreed(*BOTH), cursor_follows),
    end=exactly("1", "2"),
)
RECOVER = Scenario(
    name="recovery of what others left",
    before=(
        (coordinated.pay, "Voting:2"),
        (coordinated.pay, "Voted:2"),
        (coordinated.pay, "Deciding:1"),
        (coordinated.pay, "Decided:1"),
        (coordinated.pay_alone, "Ended:1"),
        (coordinated.fail, "Finishing:1"),
    ),
    sure=("Finishing:1", "Finished:1", "Noting:1", "Noted:1", "Deciding:1", "Decided:1"),
    run=coordinated.recover,
    after=(coordinated.recover,),
    copies=2,
    check=agreed(*BOTH),
    end=nothing_more,
)
TIDY = Scenario(
    name="tidying up behind others",
    before=((coordinated.pay, None),),
    run=coordinated.tidy,
    after=(coordinated.tidy, coordinated.recover),
    check=agreed(*BOTH),
    end=nothing_more,
    sure=("Tidying:1", "Tidied:1", "Tidying:2", "Tidied:2"),
)
TAKE = Scenario(
    name="a database, a service and a message, recovered by two at once",
    roles_from=ROLES,
    run=coordinated.take,
    after=(coordinated.recover,),
    copies=2,
    check=agreed(*TAKEN),
    end=nothing_more,
    sure=TWO_PHASES,
)
TAKE_BY_KEY = Scenario(
    name="a database, a service and a message under a key, tried again at once",
    roles_from=ROLES,
    run=coordinated.take_by_key,
    after=(coordinated.take_by_key,),
    check=agreed(*TAKEN),
    end=exactly("1"),
    sure=TWO_PHASES,
)
SEND_TO_MANY = Scenario(
    name="three brokers, two of which must accept, recovered by two at once",
    roles_from=ROLES,
    run=members.send_to_many,
    after=(members.recover,),
    copies=2,
    check=members.agreed(lambda brokers: brokers >= 2),
    end=nothing_more,
    sure=TWO_PHASES,
)
SEND_BY_TURNS = Scenario(
    name="three brokers by turns",
    roles_from=ROLES,
    run=members.send_by_turns,
    after=(members.recover,),
    check=members.agreed(lambda brokers: brokers == 1),
    end=nothing_more,
    sure=TWO_PHASES,
)
COORDINATED: tuple[tuple[Scenario, str], ...] = (
    *(
        (each, POSTGRESQL)
        for each in (
            PAY,
            IN_LOOP,
            BY_JOURNAL,
            AT_ONCE,
            BY_KEY,
            BY_KEY_AT_ONCE,
            ALONE,
            ONE,
            FAIL,
            WORK_OFF,
            READ_OFF,
            RECOVER,
            TIDY,
        )
    ),
    *((each, MYSQL) for each in (PAY, BY_JOURNAL, AT_ONCE, BY_KEY_AT_ONCE, TIDY)),
    *((each, SQLITE) for each in (PAY, BY_KEY, BY_KEY_AT_ONCE)),
    *((each, SERVICE) for each in (TAKE, TAKE_BY_KEY)),
    *((each, CLUSTER) for each in (SEND_TO_MANY, SEND_BY_TURNS)),
)
"""Each program, and the kind of what takes part beside the bank."""
