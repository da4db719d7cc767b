"""
Check-back: transactions that nobody decided are found, checked and settled.

A round lists what is due, asks the evidence first and then the members of the producer group, and writes the decision
or puts the transaction off. What nobody can answer is parked for an operator.
"""
