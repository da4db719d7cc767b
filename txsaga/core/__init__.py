"""
What every other part needs: values, identities, lifecycles, facts, group commit, and the loop that runs roles.

Nothing here needs a driver or knows a database.
"""
