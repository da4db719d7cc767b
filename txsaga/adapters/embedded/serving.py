"""Decides whether the server of a home serves, from what it answered and who works in its folder.

A refusal alone says nothing, since any PostgreSQL could have sent it. Together with a living
postmaster of this data folder on that port it is final, and waiting longer would not help.
"""

from txsaga.adapters.embedded.account import Account
from txsaga.adapters.embedded.complaint import complaint, serious_line
from txsaga.adapters.embedded.home import Home
from txsaga.adapters.embedded.probe import Answer, Reply, ask
from txsaga.adapters.embedded.processes import working_in
from txsaga.adapters.embedded.secret import Secret
from txsaga.errors import EmbeddedDatabaseError


def serving(home: Home, account: Account) -> Answer | None:
    """Return the answer of a server that serves, None while there is none; raise if it never will."""
    secret = Secret.read(home)
    answer = ask(secret, home.data)
    if answer.is_ours:
        return answer
    if secret is not None and answer.reply is Reply.NOBODY:
        return None
    processes = working_in(home.data, account)
    if processes.postmaster is None or (secret is not None and processes.port != secret.port):
        return None
    if answer.reply is Reply.BUSY:
        return answer
    raise _never(home, secret, answer)


def _never(home: Home, secret: Secret | None, answer: Answer) -> EmbeddedDatabaseError:
    if secret is None:
        return complaint(
            f"{home.pgpass} is missing or damaged while the server runs: "
            "`txsaga db stop`, then `txsaga db start` sets a new password"
        )
    if "password authentication failed" in answer.text:
        return complaint(
            f"the password in {home.pgpass} is not the server's: `txsaga db stop`, delete that file, "
            "then `txsaga db start` sets a new password"
        )
    why = serious_line(answer.text)
    return complaint(f"the server at {home.root} refuses connections ({why}): look at {home.log}")
