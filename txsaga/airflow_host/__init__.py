"""
Airflow on one machine, from outside: its home, its processes, what it answers by REST.

Nothing here imports Airflow: the command line stays quick, and `txsaga engine` needs no Airflow beside it.
"""
